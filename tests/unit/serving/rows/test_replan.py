"""Plans made anew, in one process but for the planner's; a real server is in `tests/end_to_end/test_adapting.py`."""

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from gearshift.errors import InvalidInput, SwapFailed
from gearshift.objective import Asked, Objective
from gearshift.observability.journal import Journal, JournalFile
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.profiles.store import write_profile
from gearshift.result import LatencySummary, ServingResult
from gearshift.runtime.router.status import ReplanStatus
from gearshift.runtime.service.service import Service
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.operate.control import Control
from gearshift.serving.operate.swap import SwapBody
from gearshift.serving.rows.assembly import make_service
from gearshift.serving.rows.replan import Replans, is_better, plan_options
from gearshift.serving.rows.task import ServingTask, read_task
from gearshift.workload import PlannedLoad
from tests.little_task import little_plan, little_profile, two_gear_plan

LONGEST_S = 120.0


def result(
    *,
    accuracy: float = 0.8,
    p95: float = 0.1,
    p50: float | None = None,
    late: float = 0.0,
    core_s: float | None = None,
) -> ServingResult:
    return ServingResult(
        core_s=core_s,
        requests=100,
        accuracy=accuracy,
        accuracy_interval=(0.0, 1.0),
        latency_s=LatencySummary(mean=p95, p50=p95 if p50 is None else p50, p95=p95, p99=p95),
        share_late=late,
        share_refused=0.0,
        goodput_qps=10.0,
        devices=1,
        utilisation={},
    )


LATENCY, ACCURACY = Objective(latency_s=0.2, percentile=0.95), Objective(accuracy=0.8)
BOTH = Objective(latency_s=0.2, accuracy=0.8)


@pytest.mark.parametrize(
    ("objective", "new", "old", "better"),
    [
        (LATENCY, result(late=0.01), result(late=0.30, accuracy=0.95), True),
        (LATENCY, result(late=0.30, accuracy=0.95), result(late=0.01), False),
        (LATENCY, result(accuracy=0.85, late=0.05), result(late=0.0), True),
        (LATENCY, result(accuracy=0.8005), result(), False),
        (LATENCY, result(late=0.2), result(late=0.4), True),
        (LATENCY, result(), result(), False),
        (ACCURACY, result(accuracy=0.8, p95=0.3), result(accuracy=0.75, p95=0.1), True),
        (ACCURACY, result(accuracy=0.85, p95=0.3), result(accuracy=0.8, p95=0.1), False),
        (ACCURACY, result(p95=0.05), result(p95=0.1), True),
        (BOTH, result(accuracy=0.9), result(accuracy=0.85), True),
        (BOTH, result(accuracy=0.9, late=0.2), result(accuracy=0.85), False),
        (BOTH, result(core_s=90), result(accuracy=0.85, core_s=100), True),
        (BOTH, result(accuracy=0.85, core_s=99), result(core_s=100), False),
    ],
)
def test_a_plan_is_better_that_misses_the_objective_by_less_or_gains_beside_it(
    objective: Objective, new: ServingResult, old: ServingResult, better: bool
) -> None:
    assert is_better(new, old, objective) == better


def test_the_planner_is_asked_again_for_what_it_was_asked_for() -> None:
    operator = little_plan("").pipelines["sums"]
    asked = Asked(
        objective=Objective(accuracy=0.8, confidence=0.9, scope="trace"), ranges=7, most_candidates=64, load="zipf"
    )
    told = plan_options(msgspec.structs.replace(operator, asked=asked), "frontier", 3)
    assert told[:8] == ["--accuracy", "0.8", "--confidence", "0.9", "--scope", "trace", "--seed", "3"]
    assert told[8:] == ["--planner", "frontier", "--ranges", "7", "--load", "zipf"]
    assert "--planner" not in plan_options(msgspec.structs.replace(operator, asked=asked), None, 3)
    silent = plan_options(operator, "by hand", 0)
    assert silent == ["--latency-ms", "100.0", "--percentile", "0.95", "--scope", "every-range", "--seed", "0"]


def test_a_median_and_a_policy_are_asked_for_again() -> None:
    operator = little_plan("").pipelines["sums"]
    asked = Asked(objective=Objective(latency_s=0.05, median_s=0.02), ranges=7, most_candidates=64, policy="best")
    told = plan_options(msgspec.structs.replace(operator, asked=asked), "refine", 3)
    assert " ".join(told).endswith("--seed 3 --p50-ms 20.0 --policy best --ranges 7")
    of_gears = plan_options(msgspec.structs.replace(operator, asked=asked), "frontier", 3)
    assert of_gears[of_gears.index("--planner") + 1] == "frontier"


def test_a_plan_that_breaks_the_median_is_not_better_however_accurate() -> None:
    objective = Objective(latency_s=0.5, median_s=0.02)
    kept, broken = result(accuracy=0.8, p50=0.019), result(accuracy=0.9, p50=0.03)
    assert not is_better(broken, kept, objective)
    assert is_better(kept, broken, objective)
    assert is_better(broken, kept, Objective(latency_s=0.5))


class World:
    """A service whose plan was made for another load, and what plans anew for it."""

    def __init__(self, folder: Path, journal: Journal, longest_s: float) -> None:
        self.folder, self.metrics = folder, Metrics()
        self.task: ServingTask = read_task(folder / "plan.json", "emulated")
        self.service: Service = make_service(self.task, ServerSettings(load_window_s=6.0), self.metrics, journal)
        self.control = Control(self.service, self.task.served)
        self.replans = Replans(
            self.control,
            plans=folder,
            task=lambda: self.task,
            longest_s=longest_s,
            metrics=self.metrics,
            journal=journal,
        )

    async def replanned(self) -> ReplanStatus:
        """The status when planning anew has ended."""
        self.replans.drifted()
        work = self.replans._work
        assert work is not None
        async with asyncio.timeout(3 * LONGEST_S):
            await work
        status = self.control.status().replan
        assert status is not None
        return status


def in_world(
    folder: Path, use: Callable[[World], Awaitable[None]], *, arrivals: int = 300, longest_s: float = LONGEST_S
) -> list[dict[str, Any]]:
    """What the journal says, after six seconds in each of which so many requests came."""
    profile = write_profile(little_profile(), folder / "profile")
    write_plan(two_gear_plan(profile.sha256), folder / "plan.json")
    journal = JournalFile(folder / "journal.jsonl")

    async def main() -> None:
        world = World(folder, journal, longest_s)
        trace = world.service.pipeline.adapting.trace
        for second in range(7):
            trace.ticked(second * 1_000_000_000)
            trace.arrived += arrivals
        try:
            await use(world)
        finally:
            await world.replans.stop()

    with closing(journal), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]
    path = folder / "journal.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


def test_planning_that_fails_is_told_in_the_planners_own_words_and_leaves_no_plan(tmp_path: Path, caplog: Any) -> None:
    async def use(world: World) -> None:
        world.task.operators["sums"].folder.rename(tmp_path / "elsewhere")
        status = await world.replanned()
        assert status.last == "failed"
        assert "`gearshift plan` said: error: " in status.reason
        assert 'gearshift_replans_total{outcome="failed"} 1.0' in world.metrics.text().decode()
        world.replans.drifted()  # at once again: not before another window has passed
        assert world.control.status().replan == status

    before = children()
    events = in_world(tmp_path, use)
    assert [line["event"] for line in events] == ["replan", "replanned"]
    assert events[1]["outcome"] == "failed"
    assert not list(tmp_path.glob("replanned-*.json"))
    assert children() <= before
    assert len([one for one in caplog.records if "no plan could be made" in one.getMessage()]) == 1


def test_planning_that_hangs_is_ended(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        status = await world.replanned()
        assert (status.last, status.reason) == ("failed", "it took longer than 0.05 s")

    before = children()
    in_world(tmp_path, use, longest_s=0.05)
    assert children() <= before


def test_a_server_that_ends_gives_planning_up(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        world.replans.drifted()
        while children() <= before:
            await asyncio.sleep(0)
        await world.replans.stop()
        world.replans.drifted()
        assert world.control.status().replan.running is False  # type: ignore[union-attr]

    before = children()
    in_world(tmp_path, use)
    assert children() <= before


def test_without_requests_nothing_is_planned_for(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        assert (await world.replanned()).reason == "no requests came"

    in_world(tmp_path, use, arrivals=0)


@pytest.mark.long
def test_a_better_plan_is_offered_with_its_trace_beside_it(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        status = await world.replanned()
        assert (status.last, status.offered) == ("offered", "replanned-a.json"), status
        plan = read_plan(tmp_path / "replanned-a.json")
        planned = plan.pipelines["sums"].planned_load
        assert planned is not None
        assert planned.over_s == 6.0
        assert plan.trace.path == "replanned-a.csv"
        assert read_task(tmp_path / "replanned-a.json", "emulated").plan == plan
        assert (tmp_path / "replanned-a.csv").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "replanned-a.csv").read_text().splitlines()[1:] == [f"{s},40" for s in range(6)]

    in_world(tmp_path, use, arrivals=40, longest_s=300.0)


@pytest.mark.long
def test_a_better_plan_that_cannot_take_over_has_failed_and_is_not_offered(tmp_path: Path) -> None:
    async def refuse(asked: SwapBody) -> Any:
        assert (asked.plan, asked.take_over, asked.shadow > 0) == ("replanned-a.json", True, True)
        raise SwapFailed("no memory is left")

    async def use(world: World) -> None:
        world.replans._swap = refuse
        assert await world.replanned() == ReplanStatus(last="failed", reason="no memory is left")

    in_world(tmp_path, use, arrivals=40, longest_s=300.0)


def test_an_offer_that_is_taken_is_none_any_more(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        for offered, left in (("replanned-a.json", "replanned-a.json"), ("plan.json", None)):
            world.control.replan = ReplanStatus(last="offered", offered=offered)
            assert world.control.status().replan == ReplanStatus(last="offered", offered=left)

    in_world(tmp_path, use)


@pytest.mark.parametrize(("flag", "minutes"), [("on", 10), ("off", 0)])
def test_a_flag_turns_scaling_off(tmp_path: Path, flag: Any, minutes: int) -> None:
    profile = write_profile(little_profile(), tmp_path / "profile")
    plan = two_gear_plan(profile.sha256)
    planned = PlannedLoad(shares=(0.5, 0.5), over_s=600.0)
    operator = msgspec.structs.replace(plan.pipelines["sums"], objective=ACCURACY, planned_load=planned)
    write_plan(msgspec.structs.replace(plan, pipelines={"sums": operator}), tmp_path / "plan.json")
    task = read_task(tmp_path / "plan.json", "emulated")
    service = make_service(task, ServerSettings(load_scaling=flag), None, Journal())
    assert service.router.pipeline.scaling._minutes == minutes
    assert service.pipeline.adapting.window_s == 600.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"audit_share": 1.1}, "audit_share is 1.1, needs 0 to 1"),
        ({"load_window_s": 5.0}, "load_window_s is 5.0, needs 6 to 86400"),
        ({"replan": "offer"}, "there is no folder for the plan that is made; give plans"),
        ({"replan": "now", "plans": "."}, "replan is 'now'; use one of off, offer, swap"),
        ({"replan_longest_s": 0}, "replan_longest_s is 0, needs more than 0, up to 86400"),
        ({"load_scaling": "yes"}, "load_scaling is 'yes'; use one of on, off"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        ServerSettings(**given)
