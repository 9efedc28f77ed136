"""A service that refines, over emulated devices."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import uvloop

from gearshift.clock import NS_PER_S
from gearshift.errors import DeadlinePassed
from gearshift.gear import GearPlan
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import run_times_ns
from gearshift.request import BY_TIME, Answer
from gearshift.runtime.backends.emulated import SAMPLE, EmulatedBackend
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.service.served_pipeline import PipelineOptions
from gearshift.runtime.service.service import Service
from tests.little_task import little_profile, refining_plan

LONGEST_S = 20.0


def answers(plan: GearPlan, *samples: int | list[int], times: float = 1.0) -> tuple[list[Answer], str]:
    """One answer for each sample, or list of rows, sent at once, and the metrics then.

    Devices take `times` the profiled time.
    """

    async def ask(service: Service) -> list[Answer]:
        each = [service.pipeline.infer({SAMPLE: np.atleast_1d(sample)}) for sample in samples]
        return list(await asyncio.gather(*each))

    return in_service(plan, ask, little_profile(), times)


def in_service(
    plan: GearPlan, ask: Callable[[Service], Awaitable[list[Answer]]], profile: Profile, times: float = 1.0
) -> tuple[list[Answer], str]:
    async def main() -> tuple[list[Answer], str]:
        tables, metrics = plan_tables(plan), Metrics()
        rules = DeadlineRules(tables, run_times_ns(plan, tables, profile).tolist())
        backend = EmulatedBackend(tables, plan, profile, times=times)
        options = {"sums": PipelineOptions(answer_within_s=plan.pipeline.objective.latency_s)}
        wrong: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
        service = Service(tables, backend, pipelines=options, deadlines=rules, metrics=metrics)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                found = await ask(service)
                assert wrong == []
                return found, metrics.text().decode()
        finally:
            await service.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def test_a_service_refines_rows_that_gain_and_answers_others_at_once() -> None:
    (sure, doubtful), _ = answers(refining_plan("", margin_s=0.0), 0, 3)
    assert (sure.outcome, sure.reason, sure.rows[0].model) == ("answered", "", "small")
    assert (doubtful.outcome, doubtful.reason, doubtful.rows[0].model) == ("answered", "", "large")


def test_a_row_whose_time_ends_is_answered_by_time_and_counted() -> None:
    (sure, doubtful), metrics = answers(refining_plan("", margin_s=9.9999), 0, 3)
    assert (sure.reason, sure.rows[0].by_time) == ("", False)
    assert (doubtful.outcome, doubtful.reason, doubtful.rows[0].model) == ("answered", BY_TIME, "small")
    assert "gearshift_rows_by_time_total 1" in metrics


def test_a_request_waits_for_all_its_rows_though_the_time_of_one_ends() -> None:
    ((answer,), metrics) = answers(refining_plan("", margin_s=9.995), [3] * 40)
    assert (answer.outcome, answer.reason, len(answer.rows)) == ("answered", BY_TIME, 40)
    by_time = sum(row.by_time for row in answer.rows)
    assert all(row.by_time == (row.model == "small") for row in answer.rows)
    assert f"gearshift_rows_by_time_total {by_time}" in metrics


def test_a_row_whose_batch_overruns_its_time_is_answered_with_what_it_has_and_keeps_that() -> None:
    """`small` takes 80 ms, and `large`, which began as it was to take 4, would take 320; time ends after 300."""
    ((answer,), metrics) = answers(refining_plan("", margin_s=9.7), [3, 0], times=80.0)
    assert (answer.outcome, answer.reason, [row.by_time for row in answer.rows]) == ("answered", BY_TIME, [True, False])
    assert [row.model for row in answer.rows] == ["small", "small"]
    assert answer.outputs["label"].tolist() == ["small-3", "small-0"]  # type: ignore[index]
    assert 'gearshift_batches_total{model="large",reason="refine"} 1.0' in metrics


def test_the_objective_and_the_clients_deadline_end_the_time_to_refine_each_in_its_way() -> None:
    """`large` takes 20 s: too long for the objective of 10 s, for a deadline after 5 s; `small` takes 1 ms."""
    profile = little_profile()
    small, large = profile.curves
    slow = msgspec.structs.replace(large, median_s=(20.0, 40.0), p95_s=(20.0, 40.0))

    async def ask(service: Service) -> list[Answer]:
        rows, now_ns = {SAMPLE: np.array([3])}, service.pipeline.now_ns()
        found = [await service.pipeline.infer(rows)]
        found.append(await service.pipeline.infer(rows, deadline_ns=now_ns + 5 * NS_PER_S))
        with pytest.raises(DeadlinePassed, match=r"^infeasible"):
            await service.pipeline.infer(rows, deadline_ns=service.pipeline.now_ns() + 1)
        return found

    (by_time, degraded), metrics = in_service(refining_plan(""), ask, replace(profile, curves=(small, slow)))
    assert (by_time.outcome, by_time.reason, by_time.rows[0].by_time) == ("answered", BY_TIME, True)
    assert (degraded.outcome, degraded.reason, degraded.rows[0].by_time) == ("degraded", "deadline", False)
    assert "gearshift_rows_by_time_total 1" in metrics


def test_a_service_on_a_slow_host_learns_how_slow_it_is_and_tells() -> None:
    told = answers(refining_plan(""), *[[3] * 8] * 20, times=4.0)[1]
    ratio = re.search(r'gearshift_slowdown_ratio\{model="large",replica="large-0"\} ([0-9.]+)', told)
    assert ratio is not None
    assert float(ratio[1]) > 1.5
