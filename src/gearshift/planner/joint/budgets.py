"""Replanning by partial latency budgets, a baseline (Gati sections 5.2 and 5.2.1).

The time that is left is split over the nodes of each path to the output, equally or in proportion
to each node's slowest model, and the smallest budget of a node over its paths counts. A node takes
its most accurate model within its budget. Splitting what is left anew at each node is the same as
handing saved time on. Gati's pseudocode contradicts this text twice (it takes the budget off the
base latency, and picks at the root); the text is what is built here. Waits are not reckoned with.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

from gearshift.gear import TimedQuality
from gearshift.pipeline import Edge
from gearshift.planner.joint.timed_quality import Outcomes, Query

Split = Literal["equal", "proportional"]


def budget_tables(query: Query, split: Split) -> dict[str, tuple[TimedQuality, ...]]:
    """Tables by which `policies/replanning.best_choice` picks as Gati does.

    An implementation is within the budget from its run time divided by the node's share of the
    time left; it then counts with its own quality alone.
    """
    shares = _shares(query.outcomes, query.edges, split)
    return {
        node: tuple(
            TimedQuality(
                remaining_ms=(math.ceil(each.longest_ms / shares[node]),),
                quality=(float(each.share @ each.quality),),
            )
            for each in implementations
        )
        for node, implementations in query.outcomes.items()
    }


def _shares(outcomes: Mapping[str, Sequence[Outcomes]], edges: Sequence[Edge], split: Split) -> dict[str, Fraction]:
    """Each node's part of the time that is left when it begins: the smallest over its paths.

    Nodes that take no time, such as functions, get none of it.
    """
    slowest_ms = {node: max(each.longest_ms for each in of_node) for node, of_node in outcomes.items()}
    weights = {node: ms if split == "proportional" else min(ms, 1) for node, ms in slowest_ms.items()}

    def heaviest(node: str) -> int:
        return weights[node] + max((heaviest(edge.to) for edge in edges if edge.from_ == node), default=0)

    return {node: Fraction(weight, heaviest(node)) if weight else Fraction(1) for node, weight in weights.items()}
