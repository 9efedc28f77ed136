"""Several pipelines replayed at once, on one clock."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.load_generator.in_process import InProcessServer, InProcessTarget
from gearshift.load_generator.replay import Stream, replay_together
from gearshift.load_generator.replay_result import Replay
from gearshift.load_generator.sources import source_from_records
from gearshift.load_generator.targets import Sending
from gearshift.serving.rows.task import read_task
from gearshift.workload import Workload
from tests.two_tasks import write_two_tasks

SENDING = Sending(facts=True)


def workload(count: int, apart_ms: float, records: int) -> Workload:
    arrivals_ns = np.arange(count, dtype=np.int64) * round(apart_ms * 1e6)
    record = (np.arange(count) % records).astype(np.int32)
    return Workload(arrivals_ns=arrivals_ns, record=record, duration_s=count * apart_ms / 1e3)


def replayed(folder: Path, workloads: dict[str, Workload], progress: Any = None) -> dict[str, Replay]:
    task = read_task(write_two_tasks(folder, edge_qps=1e6), "emulated")
    server = InProcessServer(task)
    sources = {name: source_from_records(profile.predictions, name) for name, profile in task.profiles.items()}
    targets = {name: InProcessTarget(server, name, sources[name].output, SENDING) for name in workloads}
    streams = {name: Stream(workload=one, source=sources[name], slo_s=5.0) for name, one in workloads.items()}
    return asyncio.run(replay_together(targets, streams, sending=SENDING, progress=progress))


def test_each_pipeline_has_its_own_results_of_one_run(tmp_path: Path) -> None:
    told = []
    workloads = {"sums": workload(30, 5.0, 10), "numbers": workload(10, 20.0, 20)}
    runs = replayed(tmp_path, workloads, lambda done, total: told.append((done, total)))
    assert {name: run.result.requests for name, run in runs.items()} == {"sums": 30, "numbers": 10}
    assert {name: set(run.log.models) for name, run in runs.items()} == {"sums": {"small", "large"}, "numbers": {"net"}}
    assert [run.result.accuracy for run in runs.values()] == [1.0, 1.0]
    assert runs["sums"].effort.began_ns == pytest.approx(runs["numbers"].effort.began_ns, abs=1e6)
    assert runs["sums"].runs == runs["numbers"].runs  # batches are those of the whole server
    assert told[-1] == (40, 40)


def test_samples_that_are_not_there_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="the workload asks for sample 10"):
        replayed(tmp_path, {"sums": workload(13, 1.0, 13), "numbers": workload(1, 1.0, 1)})
