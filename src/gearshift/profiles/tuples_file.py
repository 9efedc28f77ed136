"""Read and write joint records as a table: `tuples.csv`, or Parquet."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.pipeline import Edge, Node
from gearshift.profiles.cells import WHOLE, shown, text
from gearshift.profiles.profile import split_parts
from gearshift.profiles.store import TUPLES
from gearshift.profiles.table import Table, read_table
from gearshift.profiles.tuples import OUTERMOST, Items, JointRecords, around_nodes

Ints = NDArray[np.int64]

COLUMNS = ("tuple", "node", "parent", "row")


def read_joint_records(
    folder: Path,
    nodes: Mapping[str, Node],
    edges: Sequence[Edge],
    samples: Mapping[str, int | Sequence[str]],
    *,
    seed: int = 0,
) -> JointRecords:
    """Read `tuples` in `folder`, CSV or Parquet: each row is an item that a recorded request row has.

    `samples` has for each operator how many it recorded, and the file then numbers them from 0; or
    their names. Raises `InvalidInput` with file and line for unknown nodes and samples, for
    parents that are missing or too many, and for items that a tuple lacks or has twice.
    """
    table = read_table(
        folder / TUPLES, required=("tuple", "node", "row"), optional=("parent",), columns=", ".join(COLUMNS)
    )
    reading = _Reading(table, nodes, around_nodes(nodes, edges), samples)
    names, items = reading.items()
    return items.joint_records(nodes, edges, names=names, part=split_parts(np.arange(len(names)), seed))


def encoded_joint_records(records: JointRecords) -> bytes:
    """The content of `tuples.csv`, with samples by number."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    around = records.item_around
    parents = np.where(around == OUTERMOST, OUTERMOST, records.row[around]).tolist()
    columns = (records.tuple_of.tolist(), records.node.tolist(), parents, records.row.tolist())
    writer.writerows(
        (records.names[of_tuple], records.nodes[node], "" if parent == OUTERMOST else parent, row)
        for of_tuple, node, parent, row in zip(*columns, strict=True)
    )
    return file.getvalue().encode()


@dataclass(frozen=True, slots=True)
class _Reading:
    """The table, the pipeline's nodes, the fan-out node around each, and the operators' samples."""

    table: Table
    nodes: Mapping[str, Node]
    around: Mapping[str, str]
    samples: Mapping[str, int | Sequence[str]]

    def items(self) -> tuple[list[str], Items]:
        """The tuples' names, in order of appearance, and the items as in the file."""
        index: dict[str, int] = {}
        named = self.table.parsed("tuple", text)
        of_tuple = np.array([index.setdefault(name, len(index)) for name in named], dtype=np.int64)
        require(
            len(index) >= 2,
            "there is one tuple, and plans need some to choose on and others to confirm on",
            where=str(self.table.path),
            remedy="record at least two tuples, better thousands",
        )
        number = {name: i for i, name in enumerate(self.nodes)}
        node = np.array(self.table.parsed("node", partial(_known_node, number)), dtype=np.int64)
        self._require_rows_of_all_nodes(node)
        outer = np.array([number.get(self.around[name], OUTERMOST) for name in self.nodes])[node]
        row = self._samples("row", node)
        around = np.full(len(node), OUTERMOST, dtype=np.int64)
        parents = self._samples("parent", outer) if "parent" in self.table.columns else around
        for name in {name for name in self.around.values() if name}:
            within = np.flatnonzero(outer == number[name])
            around[within] = self._found_around(name, node == number[name], of_tuple, row, within, parents)
        items = Items(of_tuple=of_tuple, node=node, row=row, around=around)
        for name, node_ in self.nodes.items():
            if not node_.fan_out:
                self._require_one_each(name, items, list(index), np.flatnonzero(node == number[name]))
        return list(index), items

    def _require_rows_of_all_nodes(self, node: Ints) -> None:
        counts = np.bincount(node, minlength=len(self.nodes))
        missing = [name for name, count in zip(self.nodes, counts, strict=True) if not count]
        require(
            not missing,
            f"there are no rows of node{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}",
            where=str(self.table.path),
            remedy="write a row for each item of each node, of functions too",
        )

    def _samples(self, column: str, of_node: Ints) -> Ints:
        """The samples (rows,) in a column, each of the operator of its node; none for `OUTERMOST`."""
        finders = [_finder(node.operator, self.samples) for node in self.nodes.values()]
        seen: dict[tuple[int, str], int] = {}
        pairs = list(zip(of_node.tolist(), self.table.columns[column], strict=True))
        for pair in dict.fromkeys(pairs):
            of, cell = pair
            try:
                seen[pair] = _nothing(cell) if of == OUTERMOST else finders[of](cell)
            except InvalidInput as error:
                where = self.table.where(pairs.index(pair), column)
                raise InvalidInput(error.what, where=where, remedy=error.remedy) from None
        return np.fromiter(map(seen.__getitem__, pairs), dtype=np.int64, count=len(pairs))

    def _found_around(
        self, name: str, is_fan_out: NDArray[np.bool_], of_tuple: Ints, row: Ints, within: Ints, parents: Ints
    ) -> Ints:
        """The items of fan-out node `name` around the items `within`, by tuple and sample."""
        fan_out = np.flatnonzero(is_fan_out)
        span = max(int(row.max()), int(parents.max())) + 2
        key = of_tuple[fan_out] * span + row[fan_out]
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        doubled = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(doubled):
            first, second = fan_out[order[doubled[0]]], fan_out[order[doubled[0] + 1]]
            raise InvalidInput(
                f"the tuple has this row of node {name!r} a second time, after {self.table.place(first)}, so that "
                f"rows within it have two parents",
                where=self.table.where(int(second), "row"),
                remedy="record every item of a fan-out as a sample of its own",
            )
        wanted = of_tuple[within] * span + parents[within]
        place = np.searchsorted(ordered, wanted).clip(0, len(ordered) - 1)
        lost = np.flatnonzero(ordered[place] != wanted)
        if len(lost):
            at = int(within[lost[0]])
            cell = self.table.columns["parent"][at] if "parent" in self.table.columns else ""
            raise InvalidInput(
                f"the tuple has no row {shown(cell)} of node {name!r}" if cell.strip() else "the cell is empty",
                where=self.table.where(at, "parent"),
                remedy=f"give as parent the row of node {name!r} around this one",
            )
        return np.asarray(fan_out[order[place]], dtype=np.int64)

    def _require_one_each(self, name: str, items: Items, names: Sequence[str], mine: Ints) -> None:
        """Node `name`, whose items are `mine`, runs once for each fan-out item or tuple around it."""
        outer = self.around[name]
        if outer:
            around = np.flatnonzero(items.node == list(self.nodes).index(outer))
            owner = np.searchsorted(around, items.around[mine])
        else:
            around, owner = np.unique(items.of_tuple, return_index=True)[1], items.of_tuple[mine]
        counts = np.bincount(owner, minlength=len(around))
        twice = np.flatnonzero(counts > 1)
        if len(twice):
            first, second = mine[owner == twice[0]][:2]
            raise InvalidInput(
                f"node {name!r} of tuple {shown(names[items.of_tuple[second]])} is there a second time, after "
                f"{self.table.place(first)}",
                where=self.table.where(int(second), "node"),
                remedy=f"keep one row for each {'row of ' + repr(outer) if outer else 'tuple'}",
            )
        none = np.flatnonzero(counts == 0)
        if len(none):
            at = int(around[none[0]])
            more = f", and {len(none) - 1} more lack it" if len(none) > 1 else ""
            this = f"row {shown(self.table.columns['row'][at])} of node {outer!r} in " if outer else ""
            raise InvalidInput(
                f"{this}tuple {shown(names[items.of_tuple[at]])} has no row of node {name!r}{more}",
                where=self.table.where(at, "tuple"),
                remedy="write a row for every node, whether its edges were live or not",
            )


def _known_node(number: Mapping[str, int], cell: str) -> int:
    known = number.get(cell.strip())
    if known is None:
        text(cell)
        raise InvalidInput(f"the pipeline has no node {shown(cell)}", remedy=f"its nodes are {', '.join(number)}")
    return known


def _nothing(cell: str) -> int:
    require(
        not cell.strip(),
        f"the cell is {shown(cell)}, and no fan-out is around this node",
        remedy="leave the cell empty",
    )
    return OUTERMOST


def _finder(operator: str, samples: Mapping[str, int | Sequence[str]]) -> Callable[[str], int]:
    """The function that finds the number of the sample of `operator` which a cell names."""
    require(operator in samples, f"there are no predictions of operator {operator!r}", remedy="record them")
    known = samples[operator]
    if isinstance(known, int):
        return partial(_numbered, operator, known)
    return partial(_named, operator, {name: i for i, name in enumerate(known)})


def _numbered(operator: str, count: int, cell: str) -> int:
    sample = int(cell) if cell.isdecimal() and len(cell) < 16 else WHOLE(cell)
    if sample >= count:
        raise InvalidInput(
            f"the cell is {shown(cell)}, and operator {operator!r} has predictions of {count} samples",
            remedy=f"give 0 to {count - 1}, the sample's place in the predictions",
        )
    return sample


def _named(operator: str, number: Mapping[str, int], cell: str) -> int:
    sample = number.get(cell)
    if sample is None:
        text(cell)
        raise InvalidInput(
            f"operator {operator!r} has no predictions of sample {shown(cell)}",
            remedy="name a sample of its predictions, or add it there",
        )
    return sample
