"""Replanning by partial latency budgets, a baseline (Gati sections 5.2 and 5.2.1).

The time that is left is split over the nodes of each path to the output, equally or in proportion
to each node's slowest model, and the smallest budget of a node over its paths counts. A node takes
its most accurate model within its budget. Splitting what is left anew at each node is the same as
handing saved time on. Gati's pseudocode contradicts this text twice (it takes the budget off the
base latency, and picks at the root); the text is what is built here. Its tables know no waits, but
the policy that reads them takes waits off the time left, as for ours.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Literal

import msgspec

from gearshift.cascade import TimedQuality
from gearshift.gear import GearPlan, LoadRange
from gearshift.pipeline import Edge
from gearshift.planner.joint.placing import place
from gearshift.planner.joint.replanning.choices import Choices, on_trace, quality_in_time, result_of
from gearshift.planner.joint.replanning.timed_quality import Outcomes, Query
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import Candidate, SteadyTuples, most_visits
from gearshift.profiles.profile import PART_A, PART_B

Split = Literal["equal", "proportional"]


def plan_by_budgets(request: PipelineRequest, front: Sequence[Candidate], split: Split) -> GearPlan:
    """One gear for all loads, whose nodes choose among the models of the front by their budgets.

    The objective's latency is what is split; whether the plan keeps it is not asked. Of the largest
    batches, the one with most quality in time on part A is taken.
    """
    steady = SteadyTuples(request, place(request.profiles.values(), request.hardware, most_visits(front)))
    choices = Choices(steady, front)
    plain = request.gear(LoadRange(from_=0.0), front[0].cascades, steady.settings(front[0], 1))
    tables = partial(budget_tables, split=split)
    made = [
        request.plan(steady.placement, [choices.gear(plain, range(len(front)), size, tables, margin_s=0.0)])
        for size in steady.sizes()
    ]
    best = max(made, key=lambda plan: quality_in_time(on_trace(plan, request, part=PART_A), request))
    predicted = result_of(on_trace(best, request, part=PART_B), request)
    return msgspec.structs.replace(best, planner=f"budgets-{split}", predictions={request.name: predicted})


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
