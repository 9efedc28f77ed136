"""A service that refines, over emulated devices."""

import asyncio
import re

import numpy as np
import uvloop

from gearshift.gear import GearPlan
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import plan_tables
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

    async def main() -> tuple[list[Answer], str]:
        tables, profile, metrics = plan_tables(plan), little_profile(), Metrics()
        rules = DeadlineRules(tables, run_times_ns(plan, tables, profile).tolist())
        backend = EmulatedBackend(tables, plan, profile, times=times)
        options = {"sums": PipelineOptions(answer_within_s=plan.pipeline.objective.latency_s)}
        wrong: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
        service = Service(tables, backend, pipelines=options, deadlines=rules, metrics=metrics)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                each = [service.pipeline.infer({SAMPLE: np.atleast_1d(sample)}) for sample in samples]
                found = list(await asyncio.gather(*each))
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


def test_a_service_on_a_slow_host_learns_how_slow_it_is_and_tells() -> None:
    told = answers(refining_plan(""), *[[3] * 8] * 20, times=4.0)[1]
    ratio = re.search(r'gearshift_slowdown_ratio\{model="large",replica="large-0"\} ([0-9.]+)', told)
    assert ratio is not None
    assert float(ratio[1]) > 1.5
