"""The plans that `benchmarks/pipelines` serves on emulated devices."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.pipelines import served_graphs, three_loads
from benchmarks.pipelines.on_emulated_devices import TUPLES, Task, write_task
from gearshift.serving.rows.make_passing import joint_records_of
from gearshift.serving.rows.task import ServingTask, read_task

ALL_GRAPHS = served_graphs.task_of({name: made for name, (made, _) in served_graphs.graphs().items()})
THREE = Task(operators=three_loads.OPERATORS, pipelines=three_loads.PIPELINES, devices=three_loads.DEVICES)


def read(task: Task, folder: Path) -> ServingTask:
    return read_task(write_task(task, folder), "emulated")


@pytest.mark.parametrize("task", [ALL_GRAPHS, THREE])
def test_every_graph_has_joint_records_that_a_server_reads(task: Task, tmp_path: Path) -> None:
    written = read(task, tmp_path)
    joint = joint_records_of(written)
    assert len(joint) >= len(task.pipelines) - 1
    assert {len(records) for records in joint.values()} == {TUPLES}


def test_fan_outs_have_from_none_to_the_most_rows(tmp_path: Path) -> None:
    written = read(ALL_GRAPHS, tmp_path)
    joint, most = joint_records_of(written)["fan-out"], 4
    rows = np.bincount(joint.tuple_of[joint.node == joint.nodes.index("read")], minlength=TUPLES)
    assert (rows.min(), rows.max()) == (0, most)
    assert np.bincount(rows).min() > TUPLES / (most + 1) / 2


def test_graphs_share_no_device_and_the_three_loads_share_all(tmp_path: Path) -> None:
    written = read(ALL_GRAPHS, tmp_path)
    for pipeline in written.plan.pipelines.values():
        numbers = {node.operator.rpartition("-")[2] for node in pipeline.nodes.values()}
        assert len(numbers) == 1
    users = [name for name, graph in THREE.pipelines.items() if "read" in graph.nodes]
    assert users == list(THREE.pipelines)


def test_the_load_of_each_of_three_moves_across_the_edge_between_its_gears() -> None:
    for name, trace in three_loads.traces(120.0).items():
        edge_qps = THREE.pipelines[name].gears[1].from_qps
        begins = np.searchsorted(trace.arrivals_ns, np.arange(0, 121, 5) * 10**9)
        rates = np.diff(begins) / 5
        assert rates.min() < edge_qps < rates.max()
