"""Rows of a query's operators that their project recorded together, as nodes of one pipeline."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.profiles.pipelines.profile_folder import RecordedPipeline, holds_profiles, read_profiles
from gearshift.profiles.tuples import JointRecords, around_nodes
from gearshift.sql.steps import Recorded, StepRecords

Rows = NDArray[np.int32]


class Together(NamedTuple):
    """The records of each step on the same rows, and what they are in words."""

    records: list[StepRecords]
    words: str


def recorded_together(steps: Sequence[Recorded]) -> Together | None:
    """The steps on the requests of the pipeline that recorded most; None where none has a node of each.

    Each operator must be that of one node which runs once for each request.
    """
    folders = {None if step.folder is None else step.folder.resolve().parent for step in steps}
    (folder, *others) = folders
    if len(steps) == 1 or others or folder is None or not holds_profiles(folder):
        return None
    measured = read_profiles(folder)
    operators, best = [step.operator for step in steps], ""
    for name, joint in measured.tuples.items():
        whole = set(operators) <= _rows_of(measured.pipelines[name], joint).keys()
        if whole and (not best or len(joint) > len(measured.tuples[best])):
            best = name
    if not best:
        return None
    joint = measured.tuples[best]
    rows = _rows_of(measured.pipelines[best], joint)
    together = [step.records.on(rows[step.operator], joint.part) for step in steps]
    return Together(together, f"{len(joint)} recorded requests of pipeline {best!r}")


def _rows_of(pipeline: RecordedPipeline, joint: JointRecords) -> Mapping[str, Rows]:
    """By operator the sample (tuples,) of its only node, if that runs once for each request."""
    outermost = [
        name for name, around in around_nodes(pipeline.nodes, pipeline.edges).items()
        if not around and not pipeline.nodes[name].fan_out
    ]  # fmt: skip
    operators = [node.operator for node in pipeline.nodes.values()]
    return {
        pipeline.nodes[name].operator: joint.row[joint.node == joint.nodes.index(name)]
        for name in outermost
        if operators.count(pipeline.nodes[name].operator) == 1
    }
