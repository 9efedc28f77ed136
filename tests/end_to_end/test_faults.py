"""Short forms of the faults of `tests/programs/faults.py`: real servers, sockets and signals."""

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from tests.programs import faults

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the plan has two devices")

TOGETHER = (faults.kill, faults.stop, faults.kill_for_memory, faults.poison)


def test_under_load_no_fault_of_workers_costs_or_doubles_an_answer(tmp_path: Path) -> None:
    tally = asyncio.run(faults.with_load(tmp_path, random.Random(1), TOGETHER))
    assert tally.sound, tally
    assert tally.retries > 0
    assert tally.failed in (1, 2)


ELSEWHERE = ("<lambda>", "lost_stage")
"""Rounds of one fault of workers under load, above together, and of a lost stage, below with either policy."""


HERE = [kind for kind in faults.KINDS if faults.KINDS[kind].__name__ not in ELSEWHERE]
SHORT = ("half of all clients vanish",)
"""Of most of the others, tests that `make test` runs show a part: here above and below, of front ends and of swaps."""


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.long] * (kind not in SHORT)) for kind in HERE])
def test_each_accepted_request_is_answered_once(kind: str) -> None:
    tally = asyncio.run(faults.run_round(kind, seed=1))
    assert tally.sound, tally


@pytest.mark.parametrize("hit", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)])
def test_a_shutdown_in_a_batch_outlasts_a_worker_that_was_hit_just_before(hit: int, tmp_path: Path) -> None:
    assert asyncio.run(faults.shutdown(tmp_path, random.Random(1), [hit])).sound


@pytest.mark.long
@pytest.mark.parametrize("policy", ["degrade", pytest.param("refuse", marks=pytest.mark.long)])
def test_without_a_later_stage_requests_end_as_the_policy_says(policy: str, tmp_path: Path) -> None:
    tally = asyncio.run(faults.lost_stage(tmp_path, random.Random(1), [policy]))
    assert tally.sound
    assert (tally.degraded > 0) == (policy == "degrade")


@pytest.mark.long
def test_in_a_graph_no_fault_of_workers_or_models_costs_or_doubles_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "GRAPHS", [True])
    tally = asyncio.run(faults.with_load(tmp_path, random.Random(1), (faults.kill, faults.raise_in_model, faults.hang)))
    assert tally.sound, tally
    assert tally.failed == 2
    assert tally.degraded > 0


@pytest.mark.long
def test_a_request_that_hangs_is_found_and_fails_alone(tmp_path: Path) -> None:
    async def main() -> faults.Tally:
        async with faults.serving(tmp_path, "--shortest-hang-s", "0.5") as server:
            load = faults.Load(server, random.Random(1))
            await faults.hang(server, load)
            await server.until(server.is_whole)
            await load.check_the_server_s_own_count()
        return load.tally

    tally = asyncio.run(main())
    assert tally.sound, tally


def test_a_tally_that_lacks_an_end_is_not_sound() -> None:
    assert faults.Tally(requests=3, answered=1, degraded=1, failed=1).sound
    assert not faults.Tally(requests=3, answered=2).sound
    assert not faults.Tally(requests=3, answered=2, lost=1).sound
    assert not faults.Tally(requests=1, answered=1, doubled=1).sound


@pytest.fixture
def refines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "REFINES", [True])


@pytest.mark.long
def test_where_rows_are_refined_no_fault_of_workers_costs_or_doubles_an_answer(tmp_path: Path, refines: None) -> None:
    tally = asyncio.run(faults.with_load(tmp_path, random.Random(1), TOGETHER))
    assert tally.sound, tally
    assert tally.refined > 0
    assert tally.retries > 0
    assert tally.failed in (1, 2)


@pytest.mark.long
def test_where_rows_of_two_pipelines_are_refined_no_fault_of_workers_costs_or_doubles_an_answer(
    tmp_path: Path, refines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "SERVED", ["faults", "faults-1"])
    tally = asyncio.run(faults.with_load(tmp_path, random.Random(1), TOGETHER))
    assert tally.sound, tally
    assert tally.refined > 0
    assert tally.retries > 0


NOT_COUNTED = ("shutdown in a batch (SIGTERM)", "front ends killed (kill -9)")
"""Rounds that end without a look at the server's own counts."""


@pytest.mark.long
@pytest.mark.parametrize("kind", [*HERE, "a request that hangs", "later stage lost"])
def test_where_rows_are_refined_each_accepted_request_is_answered_once(kind: str, refines: None) -> None:
    tally = asyncio.run(faults.run_round(kind, seed=1))
    assert tally.sound, tally
    assert tally.refined > 0 or kind in NOT_COUNTED
