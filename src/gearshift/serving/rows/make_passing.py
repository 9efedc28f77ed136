"""Finds what passes data along the edges of a task's graphs: models' outputs, or recorded tuples."""

from pathlib import Path

from gearshift.errors import require
from gearshift.profiles.pipelines.profile_folder import read_tuples
from gearshift.profiles.store import TUPLES_FILE
from gearshift.profiles.tuples import JointRecords
from gearshift.runtime.router.flows import Passing
from gearshift.runtime.service.passing import OutputPassing
from gearshift.runtime.service.recorded_passing import RecordedPassing
from gearshift.serving.rows.task import ServingTask


def make_passing(task: ServingTask) -> Passing | None:
    """None without graphs. Raises `InvalidInput` if an emulated pipeline has no joint records."""
    if not task.tables.graph.is_graph:
        return None
    if task.backend != "emulated":
        outputs = {name: profile.outputs for name, profile in task.profiles.items()}
        return OutputPassing(task.plan, task.tables, outputs)
    return RecordedPassing(task.plan, task.tables, joint_records_of(task))


def joint_records_of(task: ServingTask, only: str | None = None) -> dict[str, JointRecords]:
    """The joint records of the plan's graphs, or of `only` one; raises `InvalidInput` where some are missing."""
    graphs = [name for name, one in task.plan.pipelines.items() if one.is_graph and only in (None, name)]
    return {name: _joint_records(task, name) for name in graphs}


def known_joint_records(task: ServingTask, name: str) -> dict[str, JointRecords]:
    """Those of one pipeline by its name, if it is a graph that has some: models serve a graph without."""
    known = task.plan.pipelines[name].is_graph and (_folder(task, name) / TUPLES_FILE).is_file()
    return {name: _joint_records(task, name)} if known else {}


def _folder(task: ServingTask, name: str) -> Path:
    pipeline = task.plan.pipelines[name]
    return task.operators[pipeline.nodes[pipeline.output].operator].folder.parent / name


def _joint_records(task: ServingTask, name: str) -> JointRecords:
    pipeline, folder = task.plan.pipelines[name], _folder(task, name)
    require(
        (folder / TUPLES_FILE).is_file(),
        f"pipeline {name!r} has no joint records, which say what samples of its operators belong together",
        where=str(folder),
        remedy="profile the project with samples of whole requests",
    )
    return read_tuples(folder, pipeline.nodes, pipeline.edges, task.profiles)
