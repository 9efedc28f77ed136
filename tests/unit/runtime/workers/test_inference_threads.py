import os
from pathlib import Path

import numpy as np
import pytest

from gearshift.runtime.workers.inference_threads import InferenceThreads

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
