"""Swaps of plans of operators in one process; real servers are in `tests/end_to_end/test_swap.py`."""

import asyncio
from pathlib import Path

import pytest

from gearshift.errors import SwapFailed
from gearshift.serving.operate.swap import SwapBody
from gearshift.serving.rows import served
from tests.often import first_short
from tests.unit.serving.swap_worlds import LosingBackend, LosingRows, World, in_world


def test_a_request_of_many_rows_is_answered_by_the_plan_that_took_it(tmp_path: Path) -> None:
    numbers = [number % 9 for number in range(200)]

    async def use(world: World) -> None:
        before = world.service
        before.pipeline.room.most_requests = 18
        wide = asyncio.create_task(world.infer(*numbers))
        await asyncio.sleep(0)
        assert before.pipeline._wide_room._open.waiting == len(numbers)
        await world.swaps.swap(SwapBody(plan="other.json"))
        assert world.service is not before
        world.service.pipeline.room.most_requests = 18
        assert len(await world.infer(*numbers)) == len(numbers)
        assert await wide == [f"{'large' if number % 2 else 'small'}-{number}" for number in numbers]
        for service in world.made:
            assert (service.pipeline._wide_room._open.waiting, service.held.held_bytes) == (0, 0)

    in_world(LosingRows(), tmp_path, use)


@pytest.mark.parametrize("refines", first_short([["plan.json", "other.json"], ["plan.json"], ["other.json"]]))
def test_all_requests_are_answered_where_a_plan_that_refines_is_swapped_for_another(
    refines: list[str], tmp_path: Path
) -> None:
    async def use(world: World) -> None:
        for plan in ("other.json", "plan.json"):
            swap = asyncio.create_task(world.swaps.swap(SwapBody(plan=plan)))
            answered = []
            while not swap.done():
                answered += await asyncio.gather(*(world.infer(number) for number in range(10)))
            assert [label.partition("-")[2] for (label,) in answered] == [*"0123456789"] * (len(answered) // 10)
            assert swap.result().taken_over
            assert plan not in refines or await world.infer(1) == ["large-1"]

    in_world(LosingRows(refines), tmp_path, use)


def test_rows_that_wait_to_be_refined_when_another_plan_takes_over_are_refined(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        before = world.service
        backend, large = before.driver.backend, before.driver.router._tables.replica_ids.index("large-0")
        assert isinstance(backend, LosingBackend)
        backend.holds = large
        asked = [asyncio.create_task(world.infer(1)) for _ in range(12)]
        while not (backend.held and before.router.queue_lengths()[large]):
            await asyncio.sleep(0)
        swap = asyncio.create_task(world.swaps.swap(SwapBody(plan="other.json")))
        while world.service is before:
            await asyncio.sleep(0)
        assert before.router.queue_lengths()[large] > 0
        backend.let_go()
        assert await asyncio.gather(*asked) == [["large-1"]] * 12
        assert (await swap).taken_over

    in_world(LosingRows(["plan.json"]), tmp_path, use)


@pytest.mark.long
def test_what_was_learnt_of_a_slow_host_goes_on_with_the_next_plan(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        slowdown = world.service.router.slowdown
        slowdown.ratios = [2.0] * len(slowdown.ratios)
        await world.swaps.swap(SwapBody(plan="other.json"))
        assert world.service is world.made[1]
        assert world.service.router.slowdown.ratios == [2.0] * len(slowdown.ratios)

    in_world(LosingRows(["plan.json", "other.json"]), tmp_path, use)


def test_the_new_plan_begins_in_the_gear_of_the_load(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        while world.service.router.gear == 0:
            await world.infer(0)
        swap = asyncio.create_task(world.swaps.swap(SwapBody(plan="other.json")))
        while not swap.done():
            await world.infer(0)
        assert "gearshift_gear 1.0" in world.told

    events = in_world(LosingRows(edge_qps=0.5), tmp_path, use)  # for which no machine asks too slowly
    shifts = [line for line in events if line["event"] == "shift" and line.get("plan") == "other.json"]
    assert (shifts[0]["before"], shifts[0]["after"], shifts[0]["reason"]) == (0, 1, "rate")


@pytest.mark.usefixtures("lost_for_good")
def test_a_new_plan_that_loses_a_worker_as_a_shadow_does_not_take_over(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        swap = asyncio.create_task(world.swaps.swap(SwapBody(plan="other.json", shadow=1.0, shadow_s=0.05)))
        while world.control.pipelines["sums"].shadow is None:
            await asyncio.sleep(0)
        world.made[1].driver.backend.lose(1)
        with pytest.raises(SwapFailed, match=r"\['small-0'\] have no worker"):
            await swap
        assert world.control.pipelines["sums"].shadow is None
        assert await world.infer(2) == ["small-2"]

    in_world(LosingRows(), tmp_path, use)


@pytest.mark.long
def test_a_plan_whose_models_take_more_memory_than_is_left_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(world: World) -> None:
        replicas = len(world.swaps.deployment.task.plan.placement.replicas)
        monkeypatch.setattr(served, "free_bytes", lambda: (replicas << 20) - 1)
        with pytest.raises(SwapFailed, match=rf"take {replicas} MiB beside those that serve, and .* left.* goes on"):
            await world.swaps.swap(SwapBody(plan="other.json"))
        assert len(world.made) == 1
        monkeypatch.setattr(served, "free_bytes", lambda: replicas << 20)
        await world.swaps.swap(SwapBody(plan="other.json"))
        assert len(world.made) == 2

    in_world(LosingRows(), tmp_path, use)


def test_a_shadow_is_told_in_the_journal_before_its_plan_takes_over(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        await world.swaps.swap(SwapBody(plan="other.json", shadow=1.0, shadow_s=0.05))

    events = [line["event"] for line in in_world(LosingRows(), tmp_path, use)]
    assert events[events.index("shadow") + 1] == "taken_over"
