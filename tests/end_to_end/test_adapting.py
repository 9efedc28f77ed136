"""A real server whose world moves: other answers than recorded, and another load than planned."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
import pytest

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, alone
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.store import write_profile
from gearshift.workload import PlannedLoad
from tests.end_to_end.test_server import Server, get, serving, speak
from tests.end_to_end.test_swap import output, sample
from tests.little_task import little_plan, little_profile, two_gear_plan
from tests.unit.cli.little import run

SAMPLES = 100


def disagreeing_profile() -> Profile:
    """`small` is certain of everything, and says otherwise than `large` for every fifth sample."""
    curves = tuple(
        RunTimeCurve(model=model, batch_sizes=(1, 8), median_s=(seconds, 2 * seconds), p95_s=(seconds, 2 * seconds))
        for model, seconds in (("small", 0.0001), ("large", 0.0002))
    )
    said = np.array([["no" if i % 5 == 0 else "yes" for i in range(SAMPLES)], ["yes"] * SAMPLES])
    records = PredictionRecords(
        models=("small", "large"),
        quality=(said == "yes").astype(np.float64),
        certainty=np.ones((2, SAMPLES)),
        part=(np.arange(SAMPLES) % 2).astype(np.int8),
        prediction=said,
    )
    return replace(little_profile(), curves=curves, predictions=records)


@contextmanager
def serving_plan(plan: Path, **settings: Any) -> Iterator[Server]:
    server = Server(plan, "emulated", settings)
    try:
        yield server.ready()
    finally:
        server.process.kill()
        server.wait()


def status(server: Server) -> Any:
    return json.loads(get(server, "/v2/gearshift/status")[1])


async def ask(client: aiohttp.ClientSession, server: Server, asked: Any) -> Any:
    async with client.post(f"{server.url}/v2/models/sums/infer", data=json.dumps(asked)) as response:
        assert response.status == 200, await response.text()
        return await response.json()


def audited(server: Server, numbers: Callable[[int], int], audits: int) -> Any:
    """The disagreement in the status after so many audits of answers to samples with these numbers."""

    async def main(client: aiohttp.ClientSession) -> Any:
        asked = 0
        while True:
            for _ in range(20):
                answer = await ask(client, server, sample(numbers(asked)))
                assert output(answer, "label") == ("no" if numbers(asked) % 5 == 0 else "yes")
                asked += 1
            async with client.get(f"{server.url}/v2/gearshift/status") as response:
                told = (await response.json())["adapting"]["disagreement"]
            if told and told[0]["audited"] >= audits:
                return told[0]

    return speak(main)


def test_the_audit_finds_the_disagreement_that_there_is_and_alarms_when_it_grows(tmp_path: Path) -> None:
    profile = write_profile(disagreeing_profile(), tmp_path / "profile")
    write_plan(little_plan(profile.sha256), tmp_path / "plan.json")
    with serving_plan(tmp_path / "plan.json", audit_share=1.0, audit_seed=3) as server:
        generator = np.random.default_rng(1)
        numbers = generator.integers(0, SAMPLES, 100_000).tolist()
        as_planned = audited(server, numbers.__getitem__, 80)
        assert (as_planned["gear"], as_planned["stage"], as_planned["model"]) == (0, 0, "small")
        assert as_planned["low"] < 0.2 < as_planned["high"]
        assert as_planned["planned_low"] < 0.2 < as_planned["planned_high"]
        assert as_planned["alarm"] == ""

        worse = audited(server, lambda asked: 5 * (asked % 20), as_planned["audited"] + 90)
        assert worse["alarm"] == "above"
        assert 'gearshift_disagreement_alarm{gear="0",stage="0"} 1.0' in get(server, "/metrics")[1]
        assert "is above the planned" in run("status", "--url", server.url).output
        server.until_it_says("the strongest model disagrees with .* of stage 0 in gear 0, above the planned")


def small_alone(sha256: str) -> GearPlan:
    """`small` at all loads, planned for 1000 requests a second and more."""
    plan = two_gear_plan(sha256, edge_qps=1000.0)
    operator = plan.pipelines["sums"]
    low, high = operator.gears
    gears = (
        Gear(
            load_range=LoadRange(from_=0, to=1000.0),
            cascades=alone("task", Cascade(models=("small",))),
            replicas=high.replicas,
        ),
        high,
    )
    assert low.load_range == gears[0].load_range
    changed = msgspec.structs.replace(operator, gears=gears, planned_load=PlannedLoad(shares=(0.0, 1.0), over_s=3600.0))
    return msgspec.structs.replace(plan, pipelines={"sums": changed})


async def until(
    client: aiohttp.ClientSession, server: Server, holds: Callable[[Any], bool], *, rows: int = 20, per_s: int = 20
) -> Any:
    """Send requests of so many rows until something holds of the status."""
    while True:
        numbers = list(range(10)) * (rows // 10)
        asked = {"inputs": [{"name": "sample", "datatype": "INT64", "shape": [rows], "data": numbers}]}
        await asyncio.gather(ask(client, server, asked), asyncio.sleep(1 / per_s))
        async with client.get(f"{server.url}/v2/gearshift/status") as response:
            if holds(told := await response.json()):
                return told


@pytest.mark.long
@pytest.mark.parametrize("replan", ["offer", "swap"])
def test_a_load_that_was_not_planned_for_is_planned_for_anew(
    tmp_path: Path, replan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.end_to_end.test_server.LONGEST_S", 300.0)
    settings = {"plans": str(tmp_path), "replan": replan, "load_window_s": 6.0, "replan_longest_s": 240.0}
    with serving(tmp_path, "emulated", small_alone, **settings) as server:
        ended = speak(lambda client: until(client, server, lambda told: told["replan"]["last"]))
        assert ended["replan"]["last"] == ("offered" if replan == "offer" else "swapped"), ended
        if replan == "offer":
            assert ended["adapting"]["load_drifts"]
            assert ended["adapting"]["load_distance"] == 1
            assert ended["plan"]["path"].endswith("plan.json")
            said = run("status", "--url", server.url).output
            assert "load has drifted: 100 % of the time it is elsewhere than planned" in said
            assert "gearshift swap replanned-a.json" in said
            assert run("swap", "replanned-a.json", "--url", server.url).exit_code == 0
        assert status(server)["plan"]["path"].endswith("replanned-a.json")
        assert not status(server)["adapting"]["load_drifts"]
        answer = speak(lambda client: ask(client, server, sample(1)))
        assert output(answer, "label") == "large-1"
        said = get(server, "/metrics")[1]
        assert f'gearshift_replans_total{{outcome="{ended["replan"]["last"]}"}} 1.0' in said


@pytest.mark.long
def test_a_server_that_is_killed_leaves_no_planner_behind(tmp_path: Path) -> None:
    settings = {"plans": str(tmp_path), "replan": "offer", "load_window_s": 6.0}
    with serving(tmp_path, "emulated", small_alone, **settings) as server:
        # once the planner runs `serving` kills the server, and sees that all of its children end
        speak(lambda client: until(client, server, lambda told: told["replan"]["running"] and bool(server.workers())))
