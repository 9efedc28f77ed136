import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from gearshift.errors import GearshiftError, ModelFailed
from gearshift.plan_tables import plan_tables
from gearshift.request import Request, Sample
from gearshift.runtime.backends.base import Batch
from gearshift.runtime.backends.local import LocalBackend
from tests.conformance.test_backend_contract import Events
from tests.little_task import INPUTS, TASK, little_plan, write_little_task


def backend_of(folder: Path, task: str = TASK, **options: Any) -> LocalBackend:
    write_little_task(folder)
    (folder / "task.py").write_text(task)
    plan = little_plan("")
    return LocalBackend(plan_tables(plan, "sums"), plan, project=folder / "gearshift.toml", inputs=INPUTS, **options)


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def start(backend: LocalBackend) -> None:
    async def main() -> None:
        try:
            await backend.start(Events())
        finally:
            await backend.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (TASK + "\ndef large():\n    raise ValueError('no weights')\n", "'large' cannot be loaded.*no weights"),
        (TASK + "\ndef large():\n    os._exit(3)\n", "ended with status 3 while it loaded"),
        (TASK + "\ndef large():\n    os.kill(os.getpid(), 9)\n", "ended by signal 9 while it loaded"),
        ("import nothing_of_this_name", "cannot be loaded.*nothing_of_this_name"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_named_and_nothing_is_left(tmp_path, task, reason):
    before = children()
    with pytest.raises(GearshiftError, match=reason):
        start(backend_of(tmp_path, task))
    assert children() == before


def test_loading_has_a_longest_time(tmp_path):
    before = children()
    begun = time.monotonic()
    with pytest.raises(ModelFailed, match=r"took longer than 0\.5 s"):
        start(backend_of(tmp_path, TASK + "\ndef large():\n    time.sleep(60)\n", longest_start_s=0.5))
    assert time.monotonic() - begun < 10
    assert children() == before


def test_a_model_that_refuses_zeros_is_served_all_the_same_and_said_to_have_not_run(tmp_path):
    told: list[str] = []
    start(backend_of(tmp_path, TASK.replace("(first == 666)", "(first == 0)"), say=told.append))
    raised = "raised ValueError: a secret of the model (task.py, line 9) in its function"
    assert sorted(told) == [
        f"model {name!r} failed its warm-up on zeros ({raised}); it has not run yet" for name in ("large", "small")
    ]


def test_what_a_model_starts_and_prints_neither_stays_nor_gets_in_the_way(tmp_path, capfd):
    pid_file = tmp_path / "pid"
    task = (
        TASK
        + f"""
import subprocess
def large():
    print("a word on standard output")
    child = subprocess.Popen(["sleep", "600"])
    open({str(pid_file)!r}, "w").write(str(child.pid))
    return answer("large", lambda first: np.ones(len(first)))
"""
    )
    start(backend_of(tmp_path, task))
    captured = capfd.readouterr()
    assert "a word on standard output" not in captured.out
    assert is_gone_soon(int(pid_file.read_text()))


def test_a_worker_that_hangs_is_replaced(tmp_path):
    async def main() -> None:
        backend, events = backend_of(tmp_path, longest_batch_s=0.3), Events()
        await backend.start(events)
        request = Request(id=1, operator="sums", arrived_ns=0)
        small = 1
        os.kill(backend.worker_pids()[small], signal.SIGSTOP)
        backend.run(Batch(1, small, [Sample(request, 0, 0, {"x": np.array([[1.0, 2.0]])})]))
        await events.until(lambda seen: seen.count(("ready", small)) == 2)
        assert ("lost", small) in events.seen
        backend.run(Batch(2, small, [Sample(request, 0, 0, {"x": np.array([[1.0, 2.0]])})]))
        await events.until(lambda seen: ("batch", 2) in seen)
        await backend.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def is_gone_soon(pid: int) -> bool:
    """A killed process may be a zombie until its new parent reaps it."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False
