"""Joint records: which recorded samples of the operators belong to one request row of a pipeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.pipeline import Edge, Node, scopes_of
from gearshift.profiles.profile import PART_A, PART_B, Parted, PredictionRecords, split_parts

Ints = NDArray[np.int64]

OUTERMOST = -1
"""In place of a fan-out item: the request row itself."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointRecords(Parted):
    """The items that each recorded request row has if every edge is live.

    The items of tuple t are `begin[t]` to `begin[t + 1]`, ordered by node, then by parent. Per
    item (items,): `node` is its number in `nodes`, the pipeline's; `row` the number of the sample
    of that node's operator; `parent` the place within the tuple of the fan-out item around it, or
    `OUTERMOST`. The items of a fan-out node itself lie within those of the fan-out around it.
    `part` (tuples,) is `PART_A` or `PART_B`. With `assumed_independent` the samples of a tuple were
    drawn, not recorded together.
    """

    nodes: tuple[str, ...]
    names: tuple[str, ...]
    begin: Ints
    node: NDArray[np.int32]
    row: NDArray[np.int32]
    parent: NDArray[np.int32]
    part: NDArray[np.int8]
    assumed_independent: bool = False

    def __post_init__(self) -> None:
        tuples, items = len(self.names), len(self.node)
        require(len(self.row) == len(self.parent) == items, "joint records: node, row and parent differ in length")
        require(
            len(self.part) == tuples == len(self.begin) - 1 and int(self.begin[-1]) == items,
            "joint records: part or begin is not one per tuple, or begin does not end with the items",
        )
        what = f"joint records: there are {tuples} tuples, and part A or part B has none"
        self.require_both(what, remedy="record at least two tuples, better thousands")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def tuple_of(self) -> Ints:
        """The number of each item's tuple (items,)."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.begin))

    @property
    def item_around(self) -> Ints:
        """The number of the fan-out item around each item (items,), or `OUTERMOST`."""
        around = self.begin[:-1][self.tuple_of] + self.parent
        return np.where(self.parent == OUTERMOST, OUTERMOST, around).astype(np.int64)


def around_nodes(nodes: Mapping[str, Node], edges: Sequence[Edge]) -> dict[str, str]:
    """The fan-out node within whose items those of each node lie, or "" in the outermost scope.

    Nodes come in topological order.
    """
    scopes = scopes_of(nodes, edges)
    return {name: scope.counted_in if nodes[name].fan_out else scope.opener for name, scope in scopes.items()}


@dataclass(frozen=True, slots=True)
class Items:
    """Items in any order: number of the tuple, node, sample, and index of the item around (items,)."""

    of_tuple: Ints
    node: Ints
    row: Ints
    around: Ints

    def joint_records(
        self,
        nodes: Mapping[str, Node],
        edges: Sequence[Edge],
        *,
        names: Sequence[str],
        part: NDArray[np.int8],
        assumed_independent: bool = False,
    ) -> JointRecords:
        """Order the items by tuple, node and parent, and otherwise as they are."""
        place_in_node = np.zeros(len(self.node), dtype=np.int64)
        number = {name: i for i, name in enumerate(nodes)}
        for name, outer in around_nodes(nodes, edges).items():
            mine = np.flatnonzero(self.node == number[name])
            within = place_in_node[self.around[mine]] if outer else np.zeros(len(mine), dtype=np.int64)
            ordered = mine[np.lexsort((within, self.of_tuple[mine]))]
            place_in_node[ordered] = np.arange(len(mine))
        order = np.lexsort((place_in_node, self.node, self.of_tuple))
        begin = np.concatenate([[0], np.cumsum(np.bincount(self.of_tuple, minlength=len(names)))]).astype(np.int64)
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order)) - begin[self.of_tuple[order]]
        around = self.around[order]
        return JointRecords(
            nodes=tuple(nodes),
            names=tuple(names),
            begin=begin,
            node=self.node[order].astype(np.int32),
            row=self.row[order].astype(np.int32),
            parent=np.where(around == OUTERMOST, OUTERMOST, place[around]).astype(np.int32),
            part=part,
            assumed_independent=assumed_independent,
        )


def samples_alone(node: str, part: NDArray[np.int8]) -> JointRecords:
    """A pipeline of one node: each sample of its operator is a tuple; `part` (samples,) is theirs."""
    samples = len(part)
    return JointRecords(
        nodes=(node,),
        names=tuple(map(str, range(samples))),
        begin=np.arange(samples + 1, dtype=np.int64),
        node=np.zeros(samples, dtype=np.int32),
        row=np.arange(samples, dtype=np.int32),
        parent=np.full(samples, OUTERMOST, dtype=np.int32),
        part=part,
    )


def independent(
    nodes: Mapping[str, Node],
    edges: Sequence[Edge],
    predictions: Mapping[str, PredictionRecords],
    *,
    tuples: int | None = None,
    fan_out_rows: Mapping[str, int] | None = None,
    seed: int = 0,
) -> JointRecords:
    """Draw the samples of each operator for itself, as if errors of operators were independent.

    `predictions` are by operator. Samples of part A make tuples of part A, and those of part B of
    part B. There are as many tuples as the operator with most samples has, or `tuples`. A fan-out
    has `fan_out_rows` rows, by node, or the most it may have.
    """
    generator = np.random.default_rng([seed, 0xD2])
    count = tuples or max(len(records.part) for records in predictions.values())
    part = split_parts(np.arange(count), seed)
    number = {name: i for i, name in enumerate(nodes)}
    made: dict[str, Items] = {}
    begin: dict[str, int] = {}
    for name, outer in around_nodes(nodes, edges).items():
        fan_out = nodes[name].fan_out
        each = (fan_out_rows or {}).get(name, fan_out.most) if fan_out else 1
        of_tuple = np.repeat(made[outer].of_tuple if outer else np.arange(count), each)
        around = begin[outer] + np.repeat(np.arange(len(made[outer].row)), each) if outer else OUTERMOST
        begin[name] = sum(len(items.row) for items in made.values())
        made[name] = Items(
            of_tuple=of_tuple.astype(np.int64),
            node=np.full(len(of_tuple), number[name], dtype=np.int64),
            row=_drawn(predictions[nodes[name].operator], part[of_tuple], generator),
            around=np.broadcast_to(around, of_tuple.shape).astype(np.int64),
        )
    columns = ("of_tuple", "node", "row", "around")
    whole = Items(*(np.concatenate([getattr(items, column) for items in made.values()]) for column in columns))
    names = [str(t) for t in range(count)]
    return whole.joint_records(nodes, edges, names=names, part=part, assumed_independent=True)


def _drawn(records: PredictionRecords, part: NDArray[np.int8], generator: np.random.Generator) -> Ints:
    """A sample for each of `part` (n,), of the same part."""
    row = np.empty(len(part), dtype=np.int64)
    for each in (PART_A, PART_B):
        wanted = part == each
        row[wanted] = generator.choice(records.indices(each), np.count_nonzero(wanted))
    return row
