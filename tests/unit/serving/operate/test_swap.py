"""Swaps of plans of each kind in one process; real servers are in `tests/end_to_end`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gearshift.errors import InvalidInput, NotReady, SwapFailed
from gearshift.serving.operate.swap import SwapBody, plan_in
from tests.unit.serving.swap_worlds import EnginesHere, LosingRows, World, in_world

Use = Callable[[World], Awaitable[None]]
InWorld = Callable[..., list[Any]]
NEXT = SwapBody(plan="other.json")


@pytest.fixture(params=[LosingRows, EnginesHere])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> InWorld:
    """Has a server of each kind used, and gives what its journal says."""

    def in_one(use: Use, **options: Any) -> list[Any]:
        return in_world(request.param(), tmp_path, use, **options)

    return in_one


async def labels(world: World, numbers: Sequence[int] = range(10)) -> list[str]:
    return [label for (label,) in await asyncio.gather(*(world.infer(number) for number in numbers))]


def numbers_of(labels: Sequence[str]) -> list[str]:
    return [label.partition("-")[2] for label in labels]


def test_the_journal_tells_a_swap_from_begin_to_end(served: InWorld) -> None:
    async def use(world: World) -> None:
        await world.swaps.swap(NEXT)
        assert 'gearshift_swaps_total{outcome="taken_over"} 1.0' in world.told

    told = [(line["event"], Path(line.get("plan", "")).name) for line in served(use)]
    events = [(event, plan) for event, plan in told if not event.startswith(("replica", "found"))]
    assert sorted(events[2:4]) == [("ready", "other.json"), ("taken_over", "other.json")]
    assert events[:2] == [("ready", ""), ("swap", "other.json")]
    assert events[4:] == [("drain", ""), ("stop", ""), ("stop", "other.json")]


def test_what_was_accepted_before_is_answered_and_what_comes_then_by_the_new_plan(served: InWorld) -> None:
    async def use(world: World) -> None:
        before = world.service
        swap = asyncio.create_task(world.swaps.swap(NEXT))
        answered = []
        while not swap.done():
            answered += await labels(world)
        assert numbers_of(answered) == [*"0123456789"] * (len(answered) // 10)
        assert world.service is world.control.operated is world.made[1] is not before
        assert f'outcome="answered"}} {len(answered)}.0' in world.told
        assert not before.accepting

    served(use)


def test_a_new_plan_with_a_replica_that_does_not_answer_is_given_up(served: InWorld) -> None:
    async def use(world: World) -> None:
        before = world.service
        world.kind.lose_one(world)
        with pytest.raises(SwapFailed, match=r"its replicas \['large-0'\],? .*do not answer; .*plan.json goes on"):
            await world.swaps.swap(NEXT)
        assert world.service is before
        assert numbers_of(await labels(world, [2])) == ["2"]
        assert not world.made[1].accepting

    failed = next(line for line in served(use) if line["event"] == "swap_failed")
    assert (failed["plan"], "do not answer" in failed["reason"]) == ("other.json", True)


def test_a_fault_of_ours_fails_the_swap_and_the_plan_before_goes_on(served: InWorld) -> None:
    async def use(world: World) -> None:
        world.kind.fails.append(OverflowError("of this number nobody has thought"))
        with pytest.raises(SwapFailed, match=r"an internal error; the server's log explains it; .*plan.json goes on"):
            await world.swaps.swap(NEXT)
        assert numbers_of(await labels(world)) == [*"0123456789"]
        assert 'gearshift_swaps_total{outcome="failed"} 1.0' in world.told

    assert "swap_failed" in [line["event"] for line in served(use)]


def test_a_machine_that_has_no_room_for_the_new_plan_keeps_the_one_before(served: InWorld) -> None:
    async def use(world: World) -> None:
        world.kind.fails.append(OSError("Cannot allocate memory"))
        with pytest.raises(SwapFailed, match=r"Cannot allocate memory; .*plan\.json goes on"):
            await world.swaps.swap(NEXT)
        assert (await world.swaps.swap(NEXT)).taken_over

    served(use)


def test_arrivals_are_recorded_on_where_a_plan_did_not_take_over(
    served: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[list[int]] = []

    async def use(world: World) -> None:
        before = world.swaps.deployment
        (trace,) = before.traces.values()
        trace.record = lambda requests, _: recorded.append(requests)
        trace.ticked(world.service.now_ns())
        await labels(world, [1])

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(type(world.service), "take_over_from", broken)
        with pytest.raises(SwapFailed, match=r"plan\.json goes on"):
            await world.swaps.swap(NEXT)
        assert not world.made[1].accepting
        await labels(world, [1])
        assert world.swaps.deployment is before
        (trace,) = before.traces.values()
        trace.end(world.service.now_ns())

    served(use)
    assert sum(map(sum, recorded)) == 2


def test_nothing_is_swapped_before_the_server_has_started(served: InWorld) -> None:
    async def use(world: World) -> None:
        with pytest.raises(NotReady, match="the server is starting"):
            await world.swaps.swap(NEXT)

    served(use, started=False)


def test_nothing_is_swapped_while_the_server_ends(served: InWorld) -> None:
    async def use(world: World) -> None:
        assert await world.swaps.drain(1.0)
        with pytest.raises(NotReady, match="ending"):
            await world.swaps.swap(NEXT)
        assert len(world.made) == 1

    served(use)


def test_a_plan_that_takes_over_ends_a_drain_and_a_pin(served: InWorld) -> None:
    async def use(world: World) -> None:
        world.control.pin_or_free(b'{"pin": 0}')
        world.control.drain_or_not(b"")
        await world.swaps.swap(NEXT)
        status = world.control.status()
        assert (status.state, status.pinned) == ("serving", False)
        assert await labels(world, [1]) == ["large-1"]

    served(use)


def test_a_plan_is_named_by_a_file_of_the_folder_alone(tmp_path: Path) -> None:
    inside, outside = tmp_path / "plans", tmp_path / "secret.json"
    (inside / "sub").mkdir(parents=True)
    for path in (inside / "a.json", inside / "sub" / "b.json", outside):
        path.write_text("{}")
    (inside / "link.json").symlink_to(outside)
    (inside / "near.json").symlink_to(inside / "a.json")
    assert plan_in(inside, "a.json") == inside / "a.json"
    for name in (
        "../secret.json",
        "sub/b.json",
        "link.json",
        "near.json",
        "sub",
        "a.json\n",
        "a.json\0",
        str(outside),
        "",
    ):
        with pytest.raises(InvalidInput, match="in the folder given by --plans"):
            plan_in(inside, name)
