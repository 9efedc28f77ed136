"""All processors are used, and plans are the same bytes on however many."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tests
from gearshift.planner import planners
from gearshift.planner.evaluate import confirm
from gearshift.planner.evaluate.confirm import MOST_REQUESTS_AT_ONCE, replays_at_once
from gearshift.plans.plan_file import encode_plan
from gearshift.profiles.profile import PART_A
from tests.unit.planner.little import little_request, single_plan


def have_processors(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)), raising=False)


def test_as_many_replays_run_at_once_as_there_are_processors_and_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    have_processors(monkeypatch, 64)
    assert replays_at_once(1_000) == 64
    assert replays_at_once(10_000_000) == MOST_REQUESTS_AT_ONCE // 10_000_000
    assert replays_at_once(2 * MOST_REQUESTS_AT_ONCE) == 1
    have_processors(monkeypatch, 1)
    assert replays_at_once(1_000) == 1


def test_a_confirmation_replays_on_every_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    have_processors(monkeypatch, 3)
    all_there, workload_of = threading.Barrier(3, timeout=30), confirm.workload_of

    def together(*arguments: Any, **named: Any) -> Any:
        all_there.wait()
        return workload_of(*arguments, **named)

    made = single_plan("m0")
    monkeypatch.setattr(confirm, "workload_of", together)
    confirm.replay(made, little_request(), part=PART_A, seeds=3)
    assert not all_there.broken


def slo_plan() -> bytes:
    return encode_plan(planners.plan("optimal", little_request(ranges=2, most_candidates=4)))


def frontier() -> bytes:
    return b"".join(map(encode_plan, planners.frontier("optimal", little_request(devices=2))))


PLANNED = [slo_plan, pytest.param(frontier, marks=pytest.mark.long)]


@pytest.mark.parametrize("plan", PLANNED)
def test_plans_are_the_same_bytes_on_however_many_threads(
    plan: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = set()
    for count in (1, 5):
        have_processors(monkeypatch, count)
        made.add(plan())
    assert len(made) == 1


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two processors"
)
@pytest.mark.parametrize("plan", PLANNED)
@pytest.mark.long
def test_plans_are_the_same_bytes_on_one_processor_and_on_two(plan: Callable[[], bytes]) -> None:
    processors = sorted(os.sched_getaffinity(0))
    one, two = made_on(plan, processors[:1]), made_on(plan, processors[:2])
    assert one
    assert one == two


def made_on(plan: Callable[[], bytes], processors: list[int]) -> bytes:
    """What `plan` answers in a process that may use these processors only."""
    script = (
        f"import os, sys; os.sched_setaffinity(0, {processors}); "
        f"from {__name__} import {plan.__name__} as plan; sys.stdout.buffer.write(plan())"
    )
    place = Path(tests.__file__).parent.parent
    return subprocess.run([sys.executable, "-c", script], cwd=place, check=True, stdout=subprocess.PIPE).stdout
