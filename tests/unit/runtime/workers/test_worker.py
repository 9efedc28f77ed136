import os
import socket
from pathlib import Path

import numpy as np
import pytest

from gearshift.runtime.wire.messages import (
    Done,
    Load,
    Loaded,
    OperatorToLoad,
    ReplicaToLoad,
    Run,
    RunPart,
    SetThreads,
    Stop,
    ThreadsSet,
)
from gearshift.runtime.wire.transport import BlockingConnection, pack_tensors
from gearshift.runtime.workers.worker import InferenceThreads, main_loop
from tests.little_task import INPUTS, write_little_task


def test_an_order_that_comes_behind_a_batch_holds_for_it(tmp_path):
    write_little_task(tmp_path)
    headers, buffers = pack_tensors({"x": np.array([[1.0, 2.0]])})
    load = Load(
        operators=(OperatorToLoad(project=str(tmp_path / "gearshift.toml"), inputs=INPUTS),),
        replicas=(ReplicaToLoad(replica=0, model="small", warm_up_rows=(1,)),),
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        router = BlockingConnection(ours)
        router.send(load)
        router.send(Run(batch=1, replica=0, parts=(RunPart(rows=(0,), tensors=headers),)), buffers)
        router.send(SetThreads(threads=1))
        router.send(Stop())
        assert main_loop(BlockingConnection(theirs)) == 0
        assert [type(router.receive()[0]) for _ in range(3)] == [Loaded, ThreadsSet, Done]


THERE = len(os.sched_getaffinity(0))


def test_no_more_threads_are_set_than_there_are_processors() -> None:
    threads = InferenceThreads(())
    assert threads.ask(1).problem == ""
    answer = threads.ask(THERE + 1)
    assert answer.threads == THERE
    assert "may use" in answer.problem


@pytest.mark.skipif(THERE < 2, reason="there is one processor")
def test_before_a_batch_threads_become_as_few_as_processors_and_as_many_again() -> None:
    threads, there = InferenceThreads(()), os.sched_getaffinity(0)
    first = threads.ask(THERE)
    threads.follow()
    assert threads.ask(THERE).since_ns == first.since_ns
    os.sched_setaffinity(0, {min(there)})
    try:
        threads.follow()
    finally:
        os.sched_setaffinity(0, there)
    fewer_since_ns = threads._since_ns
    assert fewer_since_ns > first.since_ns
    threads.follow()
    again = threads.ask(THERE)
    assert (again.threads, again.problem) == (THERE, "")
    assert again.since_ns > fewer_since_ns


def test_an_onnx_file_has_a_session_for_each_count_before_it_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from gearshift.models.onnx_file import open_onnx_file
    from tests.onnx_files import write_linear

    file = write_linear(tmp_path / "model.onnx", np.eye(2, dtype=np.float32))
    model = open_onnx_file("m", file, device_kind="cpu", where="here")
    threads = InferenceThreads(range(1, THERE + 1))
    threads.add(model)
    sessions = []
    for count in (1, THERE, 1):
        assert threads.ask(count).threads == count
        sessions.append(model.session)
        assert model.session.get_session_options().intra_op_num_threads == count
    assert sessions[0] is sessions[2]
