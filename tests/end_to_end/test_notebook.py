"""Verbs that wait, called where an event loop runs, as in the cells of a notebook."""

import asyncio
from pathlib import Path

import pytest

import gearshift
from gearshift.errors import InvalidInput
from gearshift.traces.generate import steady
from tests.little_task import write_little_task
from tests.scaled_task import PROJECT, TASK


@pytest.mark.long
def test_verbs_that_wait_work_where_a_loop_runs(tmp_path: Path) -> None:
    plan = write_little_task(tmp_path)
    measured = tmp_path / "measured"
    measured.mkdir()
    (measured / "gearshift.toml").write_text(f"{PROJECT}[profile]\nbatch_sizes = [1]\nrepeats = 3\n")
    (measured / "task.py").write_text(TASK)
    trace = steady(20, duration_s=0.5)
    how = {"largest_lateness_s": 1000.0}

    async def cells() -> None:
        assert gearshift.profile(measured).models == ("net",)
        replay = gearshift.replay(plan, trace, emulated=True, **how)
        validation = gearshift.validate(plan, trace, backend="emulated", **how)
        assert len(replay.log) == validation.measured.requests == len(trace)

    asyncio.run(cells())


def test_serving_there_says_how_it_is_done(tmp_path: Path) -> None:
    plan = write_little_task(tmp_path)

    async def cell() -> None:
        gearshift.serve(plan, port=0)

    with pytest.raises(InvalidInput, match=r"as in a notebook; start it in a process of its own: gearshift serve"):
        asyncio.run(cell())
