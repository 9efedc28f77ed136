"""Swaps of services in one process; real servers are in `tests/end_to_end/test_swap.py`."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import uvloop

from gearshift.clock import WallClock
from gearshift.errors import InvalidInput, NotReady, SwapFailed
from gearshift.observability.journal import Journal, JournalFile
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.store import write_profile
from gearshift.runtime.backends.base import Batch, BatchEvents
from gearshift.runtime.backends.emulated import EmulatedBackend
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.service.service import Service
from gearshift.serving.operate.control import Control
from gearshift.serving.operate.swap import SwapBody, Swaps, needed_bytes, plan_in, require_same_task
from gearshift.serving.operate.task import ServingTask, read_task
from tests.little_task import little_profile, refining_plan, two_gear_plan
from tests.often import first_short

LONGEST_S = 20.0


@dataclass
class World:
    """A service in force, what can take its place, and what was told of it."""

    control: Control
    swaps: Swaps
    metrics: Metrics
    made: list[Service]
    lose: list[int]
    """Replicas that the next service loses as soon as it has started."""
    fails: list[Exception]
    """What making the next service raises."""
    left: list[int]
    """Bytes of memory that the machine has."""

    async def infer(self, *numbers: int) -> Any:
        return (await self.control.pipelines["sums"].infer({"sample": np.array(numbers)})).outputs["label"].tolist()  # type: ignore[index]


class LosingBackend(EmulatedBackend):
    """Loses workers once it is started; keeps the batches of a replica back that it `holds`."""

    replicas_to_lose: list[int]
    holds = -1
    """The replica whose batches do not begin before `let_go`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.held: list[Batch] = []

    def run(self, batch: Batch) -> None:
        if batch.replica == self.holds:
            self.held.append(batch)
        else:
            super().run(batch)

    def let_go(self) -> None:
        self.holds = -1
        while self.held:
            self.run(self.held.pop(0))

    async def start(self, events: BatchEvents) -> None:
        await super().start(events)
        for replica in self.replicas_to_lose:
            self.lose(replica)


def of_this_machine(task: ServingTask) -> ServingTask:
    """The task as if its models took memory here, a MiB for each replica."""
    operator = task.operators["sums"]
    curves = tuple(msgspec.structs.replace(curve, memory_bytes=1 << 20) for curve in operator.profile.curves)
    measured = replace(operator, profile=replace(operator.profile, curves=curves))
    return replace(task, backend="local", operators={"sums": measured})


def in_world(
    folder: Path, use: Any, *, started: bool = True, edge_qps: float = 50.0, refines: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """What the journal says after `use`; `other.json` may take the place of `plan.json`.

    Those that `refines` names refine their rows; the others have two gears.
    """
    profile = write_profile(little_profile(), folder / "profile")
    for name in ("plan.json", "other.json"):
        gears = two_gear_plan(profile.sha256, edge_qps=edge_qps)
        write_plan(refining_plan(profile.sha256) if name in refines else gears, folder / name)
    journal = JournalFile(folder / "journal.jsonl")

    async def main() -> None:
        clock, metrics, made, lose, fails, left = WallClock(), Metrics(), [], [], [], [1 << 40]

        def make(task: ServingTask, tells: Journal, counts: Metrics | None = None) -> Service:
            if fails:
                raise fails.pop()
            backend = LosingBackend(task.tables, task.plan, task.profile)
            backend.replicas_to_lose = lose.copy()
            rules = DeadlineRules(task.tables, task.run_ns, late="answer") if refines else None
            service = Service(task.tables, backend, clock=clock, journal=tells, metrics=counts, deadlines=rules)
            made.append(service)
            return service

        task = read_task(folder / "plan.json", "emulated")
        control = Control(make(task, journal, metrics), task.served)
        swaps = Swaps(
            control,
            plans=folder,
            task=task,
            read=lambda path: of_this_machine(read_task(path, "emulated")),
            make=make,
            metrics=metrics,
            journal=journal,
            free=lambda: left[0],
        )
        if started:
            await control.service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                await use(World(control, swaps, metrics, made, lose, fails, left))
        finally:
            await swaps.stop()

    with closing(journal), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def test_the_journal_tells_a_swap_from_begin_to_end(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        await world.swaps.swap(SwapBody(plan="other.json", shadow=1.0, shadow_s=0.05))
        assert 'gearshift_swaps_total{outcome="taken_over"} 1.0' in world.metrics.text().decode()

    events = [(line["event"], Path(line.get("plan", "")).name) for line in in_world(tmp_path, use)]
    assert [name for name, _ in events if not name.startswith("replica")] == [
        "ready",
        "swap",
        "ready",
        "shadow",
        "taken_over",
        "drain",
        "stop",
        "stop",
    ]
    assert [plan for name, plan in events if name == "ready"] == ["", "other.json"]
    assert [plan for name, plan in events if name == "stop"] == ["", "other.json"]


def test_what_was_accepted_before_is_answered_and_what_comes_then_by_the_new_plan(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        before = world.control.service
        swap = asyncio.create_task(world.swaps.swap(SwapBody(plan="other.json")))
        answered = []
        while not swap.done():
            answered += await asyncio.gather(*(world.infer(number) for number in range(10)))
        assert [label.partition("-")[2] for (label,) in answered] == [*"0123456789"] * (len(answered) // 10)
        assert world.control.service is world.made[1] is not before
        assert f'outcome="answered"}} {len(answered)}.0' in world.metrics.text().decode()
        with pytest.raises(NotReady):
            await before.pipeline.infer({"sample": np.array([0])})

    in_world(tmp_path, use)


def test_a_request_of_many_rows_is_answered_by_the_plan_that_took_it(tmp_path: Path) -> None:
    numbers = [number % 9 for number in range(200)]

    async def use(world: World) -> None:
        before = world.control.service
        before.pipeline.room.most_requests = 18
        wide = asyncio.create_task(world.infer(*numbers))
        await asyncio.sleep(0)
        assert before.pipeline._wide_room._open.waiting == len(numbers)
        await world.swaps.swap(SwapBody(plan="other.json"))
        assert world.control.service is not before
        world.control.service.pipeline.room.most_requests = 18
        assert len(await world.infer(*numbers)) == len(numbers)
        assert await wide == [f"{'large' if number % 2 else 'small'}-{number}" for number in numbers]
        for service in world.made:
            assert (service.pipeline._wide_room._open.waiting, service.held.held_bytes) == (0, 0)

    in_world(tmp_path, use)


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

    in_world(tmp_path, use, refines=refines)


def test_rows_that_wait_to_be_refined_when_another_plan_takes_over_are_refined(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        before = world.control.service
        backend, large = before.driver.backend, before.driver.router._tables.replica_ids.index("large-0")
        assert isinstance(backend, LosingBackend)
        backend.holds = large
        asked = [asyncio.create_task(world.infer(1)) for _ in range(12)]
        while not (backend.held and before.router.queue_lengths()[large]):
            await asyncio.sleep(0)
        swap = asyncio.create_task(world.swaps.swap(SwapBody(plan="other.json")))
        while world.control.service is before:
            await asyncio.sleep(0)
        assert before.router.queue_lengths()[large] > 0
        backend.let_go()
        assert await asyncio.gather(*asked) == [["large-1"]] * 12
        assert (await swap).taken_over

    in_world(tmp_path, use, refines=["plan.json"])


@pytest.mark.long
def test_what_was_learnt_of_a_slow_host_goes_on_with_the_next_plan(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        slowdown = world.control.service.router.slowdown
        slowdown.ratios = [2.0] * len(slowdown.ratios)
        await world.swaps.swap(SwapBody(plan="other.json"))
        assert world.control.service is world.made[1]
        assert world.control.service.router.slowdown.ratios == [2.0] * len(slowdown.ratios)

    in_world(tmp_path, use, refines=["plan.json", "other.json"])


def test_the_new_plan_begins_in_the_gear_of_the_load(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        while world.control.service.router.gear == 0:
            await world.infer(0)
        swap = asyncio.create_task(world.swaps.swap(SwapBody(plan="other.json")))
        while not swap.done():
            await world.infer(0)
        assert "gearshift_gear 1.0" in world.metrics.text().decode()

    events = in_world(tmp_path, use, edge_qps=0.5)  # for which no machine asks too slowly
    shifts = [line for line in events if line["event"] == "shift" and line.get("plan") == "other.json"]
    assert (shifts[0]["before"], shifts[0]["after"], shifts[0]["reason"]) == (0, 1, "rate")


def test_a_new_plan_that_loses_a_worker_while_it_is_tried_is_given_up(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        before = world.control.service
        world.lose.append(0)
        with pytest.raises(
            SwapFailed, match=r"its replicas \['large-0'\] have no worker, or do not answer; .*plan.json goes on"
        ):
            await world.swaps.swap(SwapBody(plan="other.json"))
        assert world.control.service is before
        assert await world.infer(1) == ["large-1"]
        assert not world.made[1].accepting
        world.lose.clear()
        assert (await world.swaps.swap(SwapBody(plan="other.json"))).taken_over

    events = in_world(tmp_path, use)
    failed = next(line for line in events if line["event"] == "swap_failed")
    assert (failed["plan"], "have no worker" in failed["reason"]) == ("other.json", True)


def test_a_plan_runs_no_other_code_than_that_of_the_project_that_is_served(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        operator = world.swaps.served.operators["sums"]
        served, evil = (
            replace(world.swaps.served, operators={"sums": replace(operator, project=folder / "gearshift.toml")})
            for folder in (tmp_path, tmp_path / "evil")
        )
        require_same_task(served, served, Path("next.json"))
        with pytest.raises(InvalidInput, match=r"next.json: the plan's models are those of another project"):
            require_same_task(evil, served, Path("next.json"))

    in_world(tmp_path, use)


def test_a_fault_of_ours_fails_the_swap_and_the_plan_before_goes_on(tmp_path: Path, monkeypatch: Any) -> None:
    async def use(world: World) -> None:
        def broken(*given: object) -> None:
            raise OverflowError("of this number nobody has thought")

        monkeypatch.setattr("gearshift.serving.operate.swap.require_same_task", broken)
        with pytest.raises(SwapFailed, match=r"an internal error; the server's log explains it; .*plan.json goes on"):
            await world.swaps.swap(SwapBody(plan="other.json"))
        assert await world.infer(1) == ["large-1"]
        assert 'gearshift_swaps_total{outcome="failed"} 1.0' in world.metrics.text().decode()

    assert "swap_failed" in [line["event"] for line in in_world(tmp_path, use)]


@pytest.mark.usefixtures("lost_for_good")
def test_a_new_plan_that_loses_a_worker_as_a_shadow_does_not_take_over(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        swap = asyncio.create_task(world.swaps.swap(SwapBody(plan="other.json", shadow=1.0, shadow_s=0.05)))
        while world.control.pipelines["sums"].shadow is None:
            await asyncio.sleep(0)
        world.made[1].driver.backend.lose(1)  # type: ignore[attr-defined]
        with pytest.raises(SwapFailed, match=r"\['small-0'\] have no worker"):
            await swap
        assert world.control.pipelines["sums"].shadow is None
        assert await world.infer(2) == ["small-2"]

    in_world(tmp_path, use)


def test_nothing_is_swapped_before_the_server_has_started(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        with pytest.raises(NotReady, match="the server is starting"):
            await world.swaps.swap(SwapBody(plan="other.json"))

    in_world(tmp_path, use, started=False)


def test_nothing_is_swapped_while_the_server_ends(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        assert await world.swaps.drain(1.0)
        with pytest.raises(NotReady, match="ending"):
            await world.swaps.swap(SwapBody(plan="other.json"))
        assert len(world.made) == 1

    in_world(tmp_path, use)


def test_a_machine_that_has_no_room_for_the_new_plan_keeps_the_one_before(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        world.fails.append(OSError("Cannot allocate memory"))
        with pytest.raises(SwapFailed, match=r"Cannot allocate memory; .*plan\.json goes on"):
            await world.swaps.swap(SwapBody(plan="other.json"))
        assert await world.infer(2) == ["small-2"]

    assert "swap_failed" in [line["event"] for line in in_world(tmp_path, use)]


@pytest.mark.long
def test_a_plan_whose_models_take_more_memory_than_is_left_is_not_loaded(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        replicas = len(world.swaps.served.plan.placement.replicas)
        world.left[0] = (replicas << 20) - 1
        with pytest.raises(SwapFailed, match=rf"take {replicas} MiB beside those that serve, and .* left.* goes on"):
            await world.swaps.swap(SwapBody(plan="other.json"))
        assert len(world.made) == 1
        world.left[0] = replicas << 20
        await world.swaps.swap(SwapBody(plan="other.json"))
        assert len(world.made) == 2

    in_world(tmp_path, use)


def test_a_plan_that_takes_over_ends_a_drain_and_a_pin(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        world.control.service.pin_gear(1)
        world.control.drain_or_not(b"")
        await world.swaps.swap(SwapBody(plan="other.json"))
        status = world.control.status()
        assert (status.state, status.pinned) == ("serving", False)
        assert await world.infer(1) == ["large-1"]

    in_world(tmp_path, use)


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


def test_emulated_devices_take_no_memory(tmp_path: Path) -> None:
    profile = write_profile(little_profile(), tmp_path / "profile")
    write_plan(two_gear_plan(profile.sha256), tmp_path / "plan.json")
    assert needed_bytes(read_task(tmp_path / "plan.json", "emulated")) == 0
