"""No figure that is printed has an exponent, however small or large it is."""

import re
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.cascade import Cascade
from gearshift.cli.common.tables import (
    beyond_the_top,
    figures,
    milliseconds,
    results_table,
    signed_milliseconds,
)
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan, GearPrediction, LoadRange
from gearshift.hardware import identical_devices
from gearshift.load_generator.replay_result import Effort, Lateness, why_invalid
from gearshift.objective import Objective
from gearshift.planner.contract.median import above_median
from gearshift.planner.refine.choice import _cheaper
from gearshift.plans.prices import priced
from gearshift.reporting.gear_rows import GearRow, gear_rows
from gearshift.reporting.headline import headline
from gearshift.reporting.language.words import cascade_text
from gearshift.reporting.notebooks import chart, plan_html, result_html
from gearshift.result import LatencySummary
from gearshift.serving.rows.replan import _said
from gearshift.support.numbers import between_times, plain
from tests.unit.planner import fake
from tests.unit.planner.little import little_request

EXPONENT = re.compile(r"\de[+-]?\d")
MADE = fake.made(little_request(hardware=identical_devices(2, price_per_hour=0.5)), 1, latency_s=0.1)
RESULT = MADE.predictions["task"]
VALUES = st.floats(1e-9, 1e9)


def slow(seconds: float, objective: Objective) -> str:
    """The headline of a plan with this latency."""
    latency = LatencySummary(mean=seconds, p50=seconds, p95=seconds, p99=seconds)
    result = msgspec.structs.replace(RESULT, latency_s=latency, latency_p95_interval_s=(seconds / 3, 3 * seconds))
    pipeline = msgspec.structs.replace(MADE.pipeline, objective=objective)
    return headline(msgspec.structs.replace(MADE, pipelines={"task": pipeline}, predictions={"task": result}))


def gears(value: float) -> list[str]:
    """All that tables and a notebook say of gears at this load, with this latency."""
    predicted = GearPrediction(load_qps=value, accuracy=0.5, latency_p95_s=value, share_late=0.0, utilisation=0.5)
    gear = MADE.pipeline.gears[0]
    both = tuple(
        msgspec.structs.replace(gear, load_range=LoadRange(from_=from_, to=to), predicted=predicted)
        for from_, to in ((0.0, value), (value, None))
    )
    made = msgspec.structs.replace(
        MADE, pipelines={"task": msgspec.structs.replace(MADE.pipeline, gears=both, planned_load=None)}
    )
    rows: list[GearRow] = gear_rows(made, "task")
    return [plan_html(made), beyond_the_top(rows) or "", *(str(one.load_range) for one in both)]


def at_price(price: float) -> GearPlan:
    return msgspec.structs.replace(MADE, hardware=priced(MADE.hardware, price))


def late_sending(late_s: float) -> str:
    sent = Lateness(p50_s=late_s, p95_s=late_s, p99_s=late_s, max_s=late_s, limit_s=0.0, share_over=1.0)
    latency = LatencySummary(mean=late_s, p50=late_s / 2, p95=late_s / 2, p99=late_s / 2)
    return why_invalid(sent, latency, Effort(), answered=1, processes=True)


TOLD: dict[str, Callable[[float], object]] = {
    "a time on the terminal": milliseconds,
    "a difference of times": signed_milliseconds,
    "times between": lambda value: between_times(value, 2 * value),
    "the headline": lambda value: slow(value, Objective(latency_s=0.1)),
    "the headline of a median": lambda value: slow(value, Objective(latency_s=0.1, percentile=0.5)),
    "the headline of another percentile": lambda value: slow(0.1, Objective(latency_s=value, percentile=0.9)),
    "a row of results": lambda value: figures(
        msgspec.structs.replace(RESULT, latency_s=LatencySummary(mean=value, p50=value, p95=value, p99=value))
    ),
    "goodput": lambda value: [
        str(cell)
        for column in results_table("", [("a", msgspec.structs.replace(RESULT, goodput_qps=value))]).columns
        for cell in column.cells
    ],
    "goodput in a notebook": lambda value: result_html(msgspec.structs.replace(RESULT, goodput_qps=value)),
    "gears": gears,
    "the nearest latency": lambda value: Infeasible("none", nearest_latency_s=value),
    "what was asked for": plain,
    "a median that is too high": lambda value: above_median(value, little_request()),
    "a policy's choice": lambda value: _cheaper(at_price(value), at_price(3 * value)),
    "late sending": late_sending,
    "a replanned plan": lambda value: _said(
        msgspec.structs.replace(
            RESULT,
            share_late=min(1.0, value),
            latency_s=LatencySummary(mean=value, p50=value, p95=value, p99=value),
        )
    ),
    "a cascade": lambda value: Cascade(models=("a", "b"), thresholds=(value,)),
    "a cascade of language models": lambda value: cascade_text(Cascade(models=("a", "b"), thresholds=(value,))),
    "a chart in a notebook": lambda value: chart("t", "s", (0.0, value), (0.0, value)),
}


@pytest.mark.parametrize("told", TOLD.values(), ids=TOLD)
@given(value=VALUES)
def test_nothing_that_is_printed_has_an_exponent(told: Callable[[float], object], value: float) -> None:
    shown = str(told(value))
    assert not EXPONENT.search(shown), shown
