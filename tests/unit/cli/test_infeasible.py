"""Each command line that is printed for an infeasible request is run, and must succeed."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gearshift.cli.common.plan_hints import steady_hint
from gearshift.planner import planners
from gearshift.profiles.store import write_profile
from gearshift.traces.generate import steady
from gearshift.traces.read import write_trace
from gearshift.workload import Trace
from tests.unit.cli.little import run
from tests.worlds import synthetic_profile

LATENCY, ACCURACY, DEVICES = "--p95-ms", "--accuracy", "--devices"
KINDS: dict[str, tuple[str, dict[str, float], set[str]]] = {
    "too little latency": ("calm.csv", {LATENCY: 0.3}, {LATENCY}),
    "too much load within a latency": ("crowd.csv", {LATENCY: 20}, {DEVICES}),
    "too much load for an accuracy": ("crowd.csv", {ACCURACY: 0.75}, {DEVICES}),
    "too much accuracy": ("calm.csv", {ACCURACY: 0.99}, {ACCURACY}),
    "too much accuracy for the devices": ("busy.csv", {LATENCY: 20, ACCURACY: 0.75}, {ACCURACY, DEVICES}),
    "too much of both": ("calm.csv", {LATENCY: 0.3, ACCURACY: 0.99}, {LATENCY, ACCURACY}),
}
TAKES_ONE_OBJECTIVE = "coordinate"
KNOWS_THE_TRACE = "static-cascade"
"""Without a latency objective a load that ends is never too much."""
SLOW = ("frontier", "optimal", "model-switching", "placement-heuristic")
"""Where an accuracy is asked for."""
SHORT = ("optimal", "single")
"""Planners that `make test` asks; the others take as long again."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, of which a device carries 400 and 130 requests/s alone, and three seconds of 40, 250 and 1,500/s."""
    folder = tmp_path_factory.mktemp("world")
    write_profile(synthetic_profile(models=2, samples=1000, fastest_s=0.002), folder / "profile")
    for name, qps in (("calm", 40), ("busy", 450), ("crowd", 1500)):
        write_trace(steady(qps, 3, seed=1), folder / f"{name}.csv")
    return folder


def cases() -> list[Any]:
    return [
        pytest.param(
            planner,
            kind,
            marks=[pytest.mark.long]
            * (planner not in SHORT or (planner in SLOW and (ACCURACY in asked or kind.startswith("too much")))),
        )
        for planner in planners.for_()
        for kind, (_, asked, _) in KINDS.items()
        if not (planner == TAKES_ONE_OBJECTIVE and len(asked) > 1)
        and not (planner == KNOWS_THE_TRACE and "load for an accuracy" in kind)
    ]


@pytest.mark.parametrize(("planner", "kind"), cases())
def test_every_line_that_is_printed_succeeds(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planner: str, kind: str
) -> None:
    monkeypatch.chdir(world)
    trace, asked, offered = KINDS[kind]
    out = tmp_path / "plan.json"
    options = [str(word) for pair in asked.items() for word in pair]
    done = run(
        "plan", "profile", "--trace", trace, "--planner", planner, "--devices", 1, "--ranges", 2, *options,
        "--out", out, "--json", tmp_path / "e.json",
    )  # fmt: skip
    assert done.exit_code == 3, done.output
    error = json.loads((tmp_path / "e.json").read_text())["error"]
    if "load" not in kind and kind != "too much accuracy for the devices":  # what no load is to blame for
        assert (error["load_range"], error["bottleneck"], error["device"]) == ("", "", "")
        said = "no model answers a request within 0.3 ms" if LATENCY in asked else "an accuracy of 0.99, on any devices"
        assert said in done.stderr
    else:
        assert (error["load_range"][0], error["bottleneck"] in ("m0", "m1"), error["device"]) == ("[", True, "cpu-0")
        assert f"model {error['bottleneck']!r} on device 'cpu-0'" in done.stderr
    lines = [line.removeprefix("try: ") for line in done.stderr.splitlines() if line.startswith("try: ")]
    assert lines == error["commands"]
    changed: set[str] = set()
    for line in lines:
        words = shlex.split(line)
        changed |= {flag for flag in (LATENCY, ACCURACY, DEVICES) if _value(words, flag) != asked.get(flag, 1.0)}
        assert run(*words[1:]).exit_code == 0, line
    assert changed >= offered


def _value(words: list[str], flag: str) -> float:
    return float(words[words.index(flag) + 1]) if flag in words else 1.0


@pytest.mark.long
def test_a_steady_rate_that_fails_as_arrivals_at_random_can_be_planned_as_it_is_said(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world)
    (world / "even.csv").write_text("second,requests\n0,370\n1,370\n2,370\n")
    asked = ("plan", "profile", "--trace", "even.csv", "--p95-ms", 8, "--ranges", 2, "--planner", "coordinate")
    done = run(*asked)
    assert done.exit_code == 3, done.output
    assert "the trace is a steady 370/s, and drawn at random it has up to 3" in done.stdout
    assert "if requests come evenly, plan with --arrivals uniform --scope trace" in done.stdout
    assert run(*asked, "--arrivals", "uniform", "--scope", "trace", "--out", "even.json").exit_code == 0
    too_tight = run(*asked[:5], 0.3, *asked[6:])
    assert (too_tight.exit_code, "--arrivals uniform" in too_tight.output) == (3, False)
    spiky = run(*asked[:3], "crowd.csv", *asked[4:])
    assert (spiky.exit_code, "--arrivals uniform" in spiky.output) == (3, False)


def test_what_is_odd_about_a_trace_is_told_once_where_it_fails(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    (world / "coarse.csv").write_text("arrival_s\n" + "".join(f"{second}\n" * 1500 for second in range(3)))
    done = run("plan", "profile", "--trace", "coarse.csv", "--p95-ms", 8, "--ranges", 2, "--planner", "coordinate")
    assert (done.exit_code, done.stderr.count("warning: 100 % of the requests")) == (3, 1)


def test_a_steady_rate_is_not_looked_for_in_a_pipe_that_was_read() -> None:
    drawn = Trace(np.arange(100, dtype=np.int64), 1.0, of_counts=True)
    read = {"trace": Path("/dev/null"), "rate_scale": 1.0, "start_s": 0.0, "duration_s": None, "seed": 0}
    assert steady_hint(drawn, read | {"arrivals": "poisson"}, "every-range") == ""
    assert steady_hint(drawn, read | {"arrivals": "uniform"}, "every-range").endswith("plan with --scope trace")
