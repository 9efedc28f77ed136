import re

from markupsafe import escape

from gearshift.planner.one_alone import OneAlone
from gearshift.reporting.plan_parts import alone_below
from gearshift.result import LatencySummary, ServingResult


def result(accuracy: float, seconds: float) -> ServingResult:
    return ServingResult(
        requests=100,
        accuracy=accuracy,
        accuracy_interval=(0.0, 1.0),
        latency_s=LatencySummary(mean=seconds, p50=seconds, p95=seconds, p99=seconds),
        share_late=0.25,
        share_refused=0.0,
        goodput_qps=1.0,
        devices=1,
        utilisation={},
    )


PLAN = result(0.9, 0.1)


def shown(*alone: OneAlone) -> str:
    drawn = str(escape(alone_below(PLAN, alone, right="quality", time="TTFT p95")))
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", drawn))


def test_a_model_alone_stands_below_the_plan_with_its_simulated_figures() -> None:
    words = shown(OneAlone(models={"read": "large"}, predicted=result(0.95, 0.3)))
    assert "this plan 90.0 % 100 ms 25.0 %" in words
    assert "large alone 95.0 % 300 ms 25.0 %" in words


def test_a_model_that_cannot_serve_alone_has_the_reason_and_no_figure() -> None:
    words = shown(OneAlone(models={"read": "large"}, reason="no room for <large>"))
    assert words.rstrip().endswith("large alone no room for &lt;large&gt;")


def test_nothing_is_shown_without_a_model_alone() -> None:
    assert alone_below(PLAN, (), right="accuracy", time="p95") is None
