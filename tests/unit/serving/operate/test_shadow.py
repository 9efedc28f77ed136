import asyncio
from typing import Any

import numpy as np
import pytest
import uvloop

from gearshift.plans.plan_tables import plan_tables
from gearshift.request import Answer
from gearshift.runtime.backends.emulated import EmulatedBackend
from gearshift.runtime.service.served_pipeline import PipelineOptions
from gearshift.runtime.service.service import Service
from gearshift.serving.operate import shadow as shadow_module
from gearshift.serving.operate.shadow import Comparison, Shadow, rows_agreed
from tests.little_task import little_plan, little_profile


def compared(share: float, numbers: list[int], expected: list[str], **service: Any) -> Comparison:
    """What a shadow makes of requests for these samples, all offered at once, that were answered so."""

    async def main() -> Comparison:
        plan = little_plan("")
        tables = plan_tables(plan)
        running = Service(tables, EmulatedBackend(tables, plan, little_profile()), **service)
        await running.start()
        try:
            shadow = Shadow(running.pipelines["sums"], share)
            for number, label in zip(numbers, expected, strict=True):
                outputs = {"label": np.array([label], dtype=object), "quality": np.array([1.0])}
                shadow.offer(
                    {"sample": np.array([number])}, Answer(outcome="answered", outputs=outputs), 5_000_000, 100
                )
            return await shadow.finished()
        finally:
            await running.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def test_answers_are_compared_output_by_output() -> None:
    found = compared(1.0, [0, 1, 2, 3], ["small-0", "large-1", "large-2", "large-3"])
    assert (found.requests, found.rows, found.failed, found.skipped) == (4, 4, 0, 0)
    assert found.agreement == {"label": 0.75, "quality": 1.0}
    assert found.latency_in_force_s is not None
    assert found.latency_shadow_s is not None
    assert found.latency_in_force_s.p95 == 0.005
    assert found.latency_shadow_s.p50 >= 0.001


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.5, 1.0])
def test_so_many_requests_are_copied_as_the_share_says(share: float) -> None:
    assert abs(compared(share, [0] * 60, ["small-0"] * 60).requests - 60 * share) < 1.5


def test_requests_that_alternate_are_both_copied() -> None:
    assert 0.4 < compared(0.5, [0, 1] * 30, ["small-0"] * 60).agreement["label"] < 0.6


def test_without_requests_there_is_nothing_to_compare() -> None:
    found = compared(1.0, [], [])
    assert (found.requests, found.agreement, found.latency_shadow_s) == (0, {}, None)


def test_a_shadow_that_falls_behind_leaves_requests_out() -> None:
    count = shadow_module.MOST_OPEN + 10
    found = compared(1.0, [0] * count, ["small-0"] * count)
    assert (found.requests, found.skipped) == (shadow_module.MOST_OPEN, 10)


def test_copies_that_fail_are_counted() -> None:
    assert compared(1.0, [10], ["small-10"]).failed == 1


@pytest.mark.parametrize(
    "bound", [{"pipelines": {"sums": PipelineOptions(most_waiting_requests=1)}}, {"most_waiting_bytes": 2000}]
)
def test_copies_beyond_the_shadows_own_bounds_are_left_out(bound: dict[str, Any]) -> None:
    found = compared(1.0, [0] * 10, ["small-0"] * 10, **bound)
    assert (found.failed, found.skipped > 0, found.skipped + found.requests) == (0, True, 10)


@pytest.mark.parametrize(
    ("a", "b", "rows"),
    [
        (np.array([1, 2, 3]), np.array([1, 2, 4]), 2),
        (np.array(["a", "b"], dtype=object), np.array(["a", "c"], dtype=object), 1),
        (np.array([[0.1, 0.9], [0.5, 0.5]]), np.array([[0.1, 0.900001], [0.6, 0.4]]), 1),
        (np.array(["a", "b"], dtype=object), np.array([b"a", "b"], dtype=object), 2),
        (np.array(["1", "b"], dtype=object), np.array([1, 2]), 1),
        (np.array([np.nan]), np.array([np.nan]), 1),
        (np.array([1.0, 2.0]), np.array([1.0]), 0),
        (np.array([1.0]), None, 0),
        (None, np.array([1.0]), 0),
    ],
)
def test_rows_agree(a: Any, b: Any, rows: int) -> None:
    assert rows_agreed(a, b) == rows
