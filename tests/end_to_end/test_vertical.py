"""A real server whose worker's cores change in place, quotas of a control group, under a replayed network log."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gearshift.errors import InvalidInput
from gearshift.runtime.actuators.cgroup import make_group, own_groups, remove_group
from tests.examples.test_documented_commands import ROOT, Shell
from tests.scaled_task import write_geared_task, write_scaled_task

DATA = os.environ.get("GEARSHIFT_DATA")
LONGEST_S = 60.0
GEARSHIFT = [sys.executable, "-m", "gearshift"]


def groups_can_be_made() -> bool:
    try:
        remove_group(make_group(f"gearshift-try-{os.getpid()}"))
    except InvalidInput:
        return False
    return True


def write_network(path: Path) -> None:
    """Bytes of each second: 100 KB take 20 ms, then 200 ms to 500 ms, then 20 ms again."""
    rates = [5_000_000, 5_000_000, 500_000, 200_000, 350_000, 5_000_000, 5_000_000]
    path.write_text("".join(f"{i * 1000} {(i + 1) * 1000} 51.0 3.7 {rate} 1000\n" for i, rate in enumerate(rates)))


@pytest.mark.long
@pytest.mark.skipif(not groups_can_be_made(), reason="no control group can be made here")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the worker and the client need a processor each")
def test_a_worker_gets_other_cores_under_a_replayed_network_and_nothing_is_dropped(tmp_path: Path) -> None:
    plan = write_scaled_task(tmp_path)
    write_network(tmp_path / "network.log")
    counts = [5, 5, 5, 60, 60, 5, 5]
    (tmp_path / "trace.csv").write_text("second,requests\n" + "".join(f"{i},{n}\n" for i, n in enumerate(counts)))
    scaler = ["--scaler", "exact", "--core-share", "0.25", "--scaler-period-s", "0.5"]
    serve = [*GEARSHIFT, "serve", str(plan), "--port", "0", "--journal", str(tmp_path / "journal.jsonl"), *scaler]
    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = next(word for word in server.stderr.readline().split() if word.startswith("http"))
            replay = [*GEARSHIFT, "replay", url, "--trace", str(tmp_path / "trace.csv"), "--json", "-"]
            replay += ["--network", str(tmp_path / "network.log"), "--request-kb", "100"]
            replay += ["--slo-ms", "1000", "--deadline-ms", "1000", "--profile", str(tmp_path / "profile")]
            replayed = subprocess.run(replay, capture_output=True, text=True, timeout=LONGEST_S, check=False)
            pid = server.pid
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(LONGEST_S)
    measured = json.loads(replayed.stdout)
    assert measured["share_refused"] == 0
    events = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    changes = [(event["before"], event["cores"]) for event in events if event["event"] == "cores"]
    assert any(after < before for before, after in changes)
    assert any(after > before for before, after in changes)
    assert not [event["problem"] for event in events if event.get("problem")]
    assert not list(Path("/sys/fs/cgroup").glob(f"**/gearshift-{pid}-*"))


@pytest.mark.long
@pytest.mark.skipif(not groups_can_be_made(), reason="no control group can be made here")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the worker and the client need a processor each")
def test_a_worker_has_the_cores_of_the_gear_in_force_and_nothing_is_dropped(tmp_path: Path) -> None:
    plan = write_geared_task(tmp_path, (1,), (4,), pool=4, qps=30.0)
    (tmp_path / "trace.csv").write_text("second,requests\n0,4\n1,60\n2,60\n3,4\n4,4\n5,4\n")
    serve = [*GEARSHIFT, "serve", str(plan), "--port", "0", "--journal", str(tmp_path / "journal.jsonl")]
    with subprocess.Popen([*serve, "--core-share", "0.25"], stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = next(word for word in server.stderr.readline().split() if word.startswith("http"))
            replay = [*GEARSHIFT, "replay", url, "--trace", str(tmp_path / "trace.csv"), "--json", "-"]
            replay += ["--profile", str(tmp_path / "profile")]
            replayed = subprocess.run(replay, capture_output=True, text=True, timeout=LONGEST_S, check=False)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(LONGEST_S)
    assert json.loads(replayed.stdout)["share_refused"] == 0
    events = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    gears = [event["after"] for event in events if event["event"] == "shift"]
    changes = [event["cores"] for event in events if event["event"] == "cores"]
    assert gears[:2] == [1, 0]
    assert changes == [1, *({0: 1, 1: 4}[gear] for gear in gears)]
    assert all(event["took_s"] < 1 and not event["problem"] for event in events if event["event"] == "cores")


@pytest.mark.long
@pytest.mark.skipif(not groups_can_be_made(), reason="no control group can be made here")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the worker and the client need a processor each")
def test_a_worker_whose_group_vanished_is_scaled_again_after_its_end(tmp_path: Path) -> None:
    plan, journal = write_scaled_task(tmp_path), tmp_path / "journal.jsonl"
    (tmp_path / "trace.csv").write_text("second,requests\n0,5\n1,5\n2,5\n")
    scaler = ["--scaler", "exact", "--core-share", "0.25", "--scaler-period-s", "0.2"]
    serve = [*GEARSHIFT, "serve", str(plan), "--port", "0", "--journal", str(journal), *scaler]

    def events(kind: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in journal.read_text().splitlines()]
        return [event for event in found if event["event"] == kind]

    def groups() -> list[Path]:
        return [group for parent in own_groups() for group in parent.glob(f"gearshift-{server.pid}-*")]

    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = next(word for word in server.stderr.readline().split() if word.startswith("http"))
            (group,) = groups()
            worker = int((group / "cgroup.procs").read_text().split()[0])
            remove_group(group)
            os.kill(worker, signal.SIGKILL)
            until = time.monotonic() + LONGEST_S
            while len(events("replica_ready")) < 2:
                assert time.monotonic() < until
                time.sleep(0.05)
            replay = [*GEARSHIFT, "replay", url, "--trace", str(tmp_path / "trace.csv"), "--json", "-"]
            replay += ["--profile", str(tmp_path / "profile"), "--deadline-ms", "1000"]
            replayed = subprocess.run(replay, capture_output=True, text=True, timeout=LONGEST_S, check=False)
            (anew,) = groups()
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(LONGEST_S)
    assert anew != group
    assert json.loads(replayed.stdout)["share_refused"] == 0
    assert [event["cores"] for event in events("cores")][:1] == [1]
    assert not [event["problem"] for event in events("cores") if event["problem"]]


LIVE = re.compile(r"^<!-- live(?:: (\S+))? -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LATE_AT_MOST = 10.0
"""Percent: the machine's other work delays some, and a worker that was not scaled would have half of them late."""


@pytest.mark.long
@pytest.mark.skipif(not groups_can_be_made(), reason="no control group can be made here")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the worker and the client need a processor each")
@pytest.mark.parametrize("log", ["shown", "real"])
def test_the_guide_scales_a_live_model_under_a_network_log(log: str, tmp_path: Path) -> None:
    if log == "real" and DATA is None:
        pytest.skip("GEARSHIFT_DATA names no folder of real data")
    blocks = LIVE.findall((ROOT / "docs" / "guides" / "cores.md").read_text())
    shell = Shell(tmp_path)
    shell.environment["GEARSHIFT_SERVE_PORT"] = shell.ports["8000"]
    for name, text in blocks:
        if name:
            (shell.place / name).write_text(text)
    server, client, static = (
        [line.removeprefix("$ ") for line in text.splitlines()] for name, text in blocks if not name
    )
    try:
        for line in server:
            if log == "real" and line.endswith("> lte.log"):
                shutil.copy(Path(str(DATA)) / "traces" / "lte_bus_0001.log", shell.place / "lte.log")
            else:
                shell.run(line + (" &" if " serve " in line else ""))
        replayed, _ = (shell.run(line) for line in client)
        with urllib.request.urlopen(f"http://127.0.0.1:{shell.ports['8000']}/metrics") as answer:
            metrics = answer.read().decode()
        shell.end()
        shell.run(static[0] + " &")
        constant = shell.run(static[1])
        assert shell.end() == 0
        assert " core-seconds" in shell.run(static[2]).splitlines()[1]
    finally:
        shell.end()
    assert re.search(r"(\d+) requests", constant), constant
    measured = re.search(r"(\d+) requests\n(.*)\n(.*)\n", replayed)
    assert measured is not None, replayed
    outcomes = re.findall(r"^gearshift_requests_total{.*} (\S+)$", metrics, re.MULTILINE)
    assert sum(map(float, outcomes)) == int(measured[1]) > 0
    names, figures = (re.split("  +", line.strip()) for line in measured.groups()[1:])
    late = dict(zip(names, figures[1:], strict=True))["late"]
    assert float(late.removesuffix(" %")) <= LATE_AT_MOST, replayed
    events = [json.loads(line) for line in (shell.place / "journal.jsonl").read_text().splitlines()]
    changes = [(event["before"], event["cores"]) for event in events if event["event"] == "cores"]
    assert any(after < before for before, after in changes)
    assert any(after > before for before, after in changes)
