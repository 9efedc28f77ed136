import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import uvloop

from gearshift.observability.journal import Journal
from gearshift.plans.plan_file import write_plan
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import overheads_ns, run_times_ns
from gearshift.profiles.store import write_profile
from gearshift.request import Answer
from gearshift.runtime.backends.emulated import SAMPLE, EmulatedBackend
from gearshift.runtime.service.service import Service
from gearshift.runtime.watch.drift import SPAN_TICKS
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.rows.assembly import make_adapting
from gearshift.serving.rows.task import read_task
from tests.little_task import little_plan, little_profile, write_little_task

LONGEST_S = 20.0


def with_overheads(profile: Profile, per_batch_s: float, per_request_s: float) -> Profile:
    curves = tuple(
        msgspec.structs.replace(curve, overhead_per_batch_s=per_batch_s, overhead_per_request_s=per_request_s)
        if curve.segment == 0
        else curve
        for curve in profile.curves
    )
    return dataclasses.replace(profile, curves=curves)


def with_caches(profile: Profile) -> Profile:
    second = msgspec.structs.replace(profile.curves[0], segment=1)
    exits = np.zeros((2, 10), dtype=np.int64)
    exits[0, ::3] = 1
    records = dataclasses.replace(profile.predictions, exit_segment=exits)
    return dataclasses.replace(profile, curves=(*profile.curves, second), predictions=records)


def answered(backend: EmulatedBackend) -> Answer:
    """What two samples are answered, the second one by both models."""

    async def main() -> Answer:
        service = Service(plan_tables(little_plan("")), backend)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                return await service.pipeline.infer({SAMPLE: np.array([0, 3])})
        finally:
            await service.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


@pytest.mark.parametrize("profile", [little_profile(), with_caches(little_profile())], ids=["whole", "caches"])
@pytest.mark.parametrize("told", [False, True], ids=["own run times", "told run times"])
def test_an_emulated_device_does_not_hold_what_the_service_takes_itself(profile: Profile, told: bool) -> None:
    plan, profile = little_plan(""), with_overheads(profile, per_batch_s=600.0, per_request_s=600.0)
    tables = plan_tables(plan)
    run_ns = run_times_ns(plan, tables, profile).tolist() if told else None
    answer = answered(EmulatedBackend(tables, plan, profile, run_ns=run_ns))
    assert (answer.outcome, len(answer.rows)) == ("answered", 2)


@pytest.mark.parametrize("bare", [little_profile(), with_caches(little_profile())], ids=["whole", "caches"])
def test_overheads_are_what_run_times_have_beyond_the_models(bare: Profile) -> None:
    plan, profile = little_plan(""), with_overheads(bare, 0.002, 0.0001)
    tables = plan_tables(plan)
    overheads = overheads_ns(plan, tables, profile)
    assert (overheads == run_times_ns(plan, tables, profile) - run_times_ns(plan, tables, bare)).all()
    assert overheads[0, :3].tolist() == [0, 2_100_000, 2_200_000]


@pytest.mark.parametrize(("backend", "ratio"), [("emulated", 1.0), ("local", 0.001 / 0.0031)])
def test_drift_is_judged_by_what_devices_of_the_backend_hold(tmp_path: Path, backend: Any, ratio: float) -> None:
    write_little_task(tmp_path)
    profile = write_profile(with_overheads(little_profile(), 0.002, 0.0001), tmp_path / "profile")
    write_plan(little_plan(profile.sha256), tmp_path / "plan.json")
    task = read_task(tmp_path / "plan.json", backend)
    adapting = make_adapting(task, "sums", ServerSettings(), Journal(), lambda: None, task.run_ns)
    small = task.tables.replica_ids.index("small-0")
    adapting._times.batch_finished(small, 1, 1_000_000)
    (told,) = [times for _ in range(SPAN_TICKS) for times in adapting._times.ticked()]
    assert told.ratio == pytest.approx(ratio)
