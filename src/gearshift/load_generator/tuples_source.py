"""Recorded request rows of a graph as a source of requests, judged by the items that they went through."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.load_generator.targets import ITEMS
from gearshift.models.config import read_project
from gearshift.models.samples import samples_at
from gearshift.pipeline import Node
from gearshift.profiles.profile import PredictionRecords, Profile
from gearshift.profiles.tuples import OUTERMOST, JointRecords
from gearshift.result import composed_quality

ItemQualities = dict[str, dict[str, float]]
"""The recorded quality of each model's answer, by item of one request row (`item_key`)."""


class _Item(msgspec.Struct, frozen=True):
    """The fields of `gearshift.request.ItemFacts` that count here; other servers' items may have more."""

    node: str
    inside: tuple[int, ...] = ()
    model: str = ""


_items: msgspec.json.Decoder[list[_Item]] = msgspec.json.Decoder(list[_Item])


@dataclass(frozen=True, slots=True, eq=False)
class RecordedTuples:
    """Request rows of pipeline `operator`; `predictions` are by node.

    `samples` has the inputs of each row; None for emulated devices, which take its number. Each
    item is judged by the record of the model that answered it, because an answer has only the
    output of the last node. A server that answers otherwise than the records is not seen.
    """

    operator: str
    joint: JointRecords
    fan_outs: Collection[str]
    predictions: Mapping[str, PredictionRecords]
    samples: Mapping[str, NDArray[Any]] | None
    output: str = ITEMS

    def inputs(self, record: int) -> dict[str, NDArray[Any]]:
        count = len(self.joint)
        require(
            0 <= record < count, f"the workload asks for tuple {record}", remedy=f"there are tuples 0 to {count - 1}"
        )
        if self.samples is None:
            return {"sample": np.array([record], dtype=np.int64)}
        return {name: array[record : record + 1] for name, array in self.samples.items()}

    def label(self, record: int) -> ItemQualities:
        joint, place = self.joint, slice(*self.joint.begin[record : record + 2].tolist())
        inside = list[tuple[int, ...]]()
        rows: dict[tuple[int, int], int] = {}
        qualities = dict[str, dict[str, float]]()
        columns = (joint.node[place].tolist(), joint.parent[place].tolist(), joint.row[place].tolist())
        for number, parent, row in zip(*columns, strict=True):
            node, around = joint.nodes[number], () if parent == OUTERMOST else inside[parent]
            if node in self.fan_outs:
                rows[number, parent] = rows.get((number, parent), -1) + 1
                around = (*around, rows[number, parent])
            inside.append(around)
            known = self.predictions[node]
            qualities[item_key(node, around)] = dict(
                zip(known.models, known.quality[:, row].astype(float).tolist(), strict=True)
            )
        return qualities


def item_key(node: str, inside: Sequence[int]) -> str:
    """An item by its node, and by its rows in the fan-outs around it."""
    return " ".join([node, *map(str, inside)])


def quality_of_items(answered: object, qualities: ItemQualities) -> float:
    """The quality of a request row from `gearshift_items`, as in simulation; an item without record counts as wrong.

    Raises `InvalidInput` for another server's answer.
    """
    try:
        items = _items.decode(answered)  # type: ignore[arg-type]
    except (msgspec.MsgspecError, TypeError) as error:
        raise InvalidInput(
            f"the answer does not tell the items of its nodes ({error})", remedy="replay against a Gearshift server"
        ) from None
    of_items = [
        qualities.get(item_key(item.node, item.inside), {}).get(item.model, 0.0) for item in items if item.model
    ]
    return float(composed_quality(np.array(of_items), np.zeros(len(of_items), dtype=np.int64), 1)[0])


def source_from_tuples(
    name: str, nodes: Mapping[str, Node], joint: JointRecords, profiles: Mapping[str, Profile], project: Path | None
) -> RecordedTuples:
    """The recorded rows of pipeline `name`; `profiles` are by operator, without `project` devices are emulated.

    Raises `InvalidInput` where the project's samples are not those that were recorded.
    """
    samples = None
    if project is not None:
        served = read_project(project).served.get(name)
        require(
            served is not None and bool(served.samples),
            f"pipeline {name!r} has no samples of whole requests",
            where=str(project),
            remedy="give it samples = 'file.py:function', or replay against emulated devices with --emulated",
        )
        made = samples_at(served.samples, project.parent)  # type: ignore[union-attr]
        require(
            len(made) == len(joint),
            f"pipeline {name!r} has {len(made)} samples, and {len(joint)} were recorded",
            where=str(project),
            remedy="profile the project again",
        )
        samples = made.arrays
    return RecordedTuples(
        operator=name,
        joint=joint,
        fan_outs=frozenset(node for node, one in nodes.items() if one.fan_out is not None),
        predictions={node: profiles[one.operator].predictions for node, one in nodes.items()},
        samples=samples,
    )
