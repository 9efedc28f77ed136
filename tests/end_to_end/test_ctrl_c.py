"""Ctrl-C in a process that plans: a plan is written from the line on that says that there is one."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gearshift.planner import planners
from gearshift.planner.contract.planner import BEST
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.store import write_profile
from gearshift.traces.read import write_trace
from gearshift.workload import Trace
from tests.worlds import synthetic_profile

REQUESTS, SECONDS = 400_000, 100.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a profile, and a trace so long that its replays take seconds."""
    folder = tmp_path_factory.mktemp("world")
    write_profile(synthetic_profile(models=3, samples=1000), folder / "profile")
    times_s = np.sort(np.random.default_rng(0).random(REQUESTS) * SECONDS)
    write_trace(Trace((times_s * 1e9).astype(np.int64), SECONDS), folder / "t.csv")
    return folder


@pytest.mark.parametrize(
    "planner",
    [pytest.param(name, marks=[pytest.mark.long] * (name != "optimal")) for name in planners.for_()],
)
@pytest.mark.parametrize("frontier", [False, pytest.param(True, marks=pytest.mark.long)])
def test_ctrl_c_writes_the_best_plan_so_far(world: Path, tmp_path: Path, planner: str, frontier: bool) -> None:
    asked = ["--frontier", "--out", "plans"] if frontier else ["--p95-ms", "30", "--out", "plan.json"]
    command = [
        *(sys.executable, "-m", "gearshift", "plan", str(world / "profile"), "--trace", str(world / "t.csv")),
        *("--devices", "8", "--planner", planner, *asked),
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if BEST in line or ("so far" in line and ", 0 plans" not in line):
            break
    process.send_signal(signal.SIGINT)
    out, rest = process.communicate(timeout=120)
    assert process.returncode == 0, (said, rest)
    assert "the search was ended early: this is the best so far" in out
    files = sorted(tmp_path.glob("plans/*.json") if frontier else [tmp_path / "plan.json"])
    assert files
    assert all(read_plan(file).unfinished for file in files)
