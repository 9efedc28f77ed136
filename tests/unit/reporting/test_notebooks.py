"""Plans and results show themselves in a notebook, as HTML that stands alone."""

from xml.etree import ElementTree

import msgspec
import numpy as np

from gearshift.gear import GearPrediction
from gearshift.planner.compare import Comparison, Run
from gearshift.plans.plan_tables import plan_tables
from gearshift.reporting.notebooks import chart
from gearshift.result import ServingResult, summarise
from gearshift.simulator.simulation import Simulation
from gearshift.workload import Workload
from tests.little_task import two_gear_plan


def parsed(html: str) -> ElementTree.Element:
    """Well formed, and without anything that is fetched or run."""
    assert not {"<script", "http", "url("} & set(html.lower().split())
    return ElementTree.fromstring(html)


def texts(html: str) -> list[str]:
    return [text.strip() for text in parsed(html).itertext() if text.strip()]


def result(accuracy: float = 0.9) -> ServingResult:
    right = round(100 * accuracy)
    return summarise(
        latency_s=np.full(100, 0.012), quality=np.repeat([1.0, 0.0], [right, 100 - right]),
        requests=100, refused=0, degraded=0, latency_objective_s=0.1, duration_s=10.0, devices=1, utilisation={},
    )  # fmt: skip


def test_a_plan_shows_its_gears_and_its_accuracy_by_load() -> None:
    plan = two_gear_plan("")
    pipeline = plan.pipelines["sums"]
    gears = tuple(
        msgspec.structs.replace(
            gear, predicted=GearPrediction(load_qps=50, accuracy=a, latency_p95_s=0.02, share_late=0, utilisation=0.5)
        )
        for gear, a in zip(pipeline.gears, (0.91, 0.82), strict=True)
    )
    plan = msgspec.structs.replace(
        plan, pipelines={"sums": msgspec.structs.replace(pipeline, gears=gears)}, predictions={"sums": result()}
    )
    found = texts(plan._repr_html_())
    assert any(text.startswith("0: small") and text.endswith("> large") for text in found)
    assert {"1: small", "91.0 %", "82.0 %", "90.0 %", "12 ms"} <= set(found)
    assert len(parsed(plan._repr_html_()).findall(".//svg")) == 1


def test_a_plan_without_predictions_shows_its_gears() -> None:
    assert "1: small" in texts(two_gear_plan("")._repr_html_())


def test_a_result_shows_its_figures() -> None:
    assert texts(result(0.75)._repr_html_())[-7:] == ["100", "75.0 %", "12 ms", "12 ms", "12 ms", "0.0 %", "10/s"]


def simulated() -> Simulation:
    """Ten requests a second for three seconds, one of them refused, of two gears."""
    arrivals_ns = np.arange(30) * 100_000_000
    finished_ns = arrivals_ns + 12_000_000
    finished_ns[7] = -1
    none = np.zeros(30, np.int8)
    return Simulation(
        tables=plan_tables(two_gear_plan("")),
        workload=Workload(arrivals_ns=arrivals_ns, record=np.zeros(30, np.int64), duration_s=3.0),
        finished_ns=finished_ns, written_ns=finished_ns, model=none, gear=none.astype(np.int16), ended=none,
        busy_s=np.zeros(1), batches=np.zeros((2, 4), np.int64), arrived_in_gear=np.array([20, 10]),
        shifts=np.array([[2_000_000_000, 1]]), shifted=np.zeros(1, np.int64), log=[], held=np.zeros((0, 2), np.int64),
    )  # fmt: skip


def test_a_simulation_shows_its_figures_and_load_gear_and_latency_over_time() -> None:
    html = simulated()._repr_html_()
    assert {"30", "12 ms", "1"} <= set(texts(html))
    rate, gear, p95 = (svg.findall(".//path")[1].get("d") or "" for svg in parsed(html).findall(".//svg"))
    assert gear.count("V") == 1
    assert (rate.count("L"), p95.count("L")) == (2, 2)


def test_a_comparison_shows_each_run_and_why_one_failed() -> None:
    runs = (
        Run(planner="optimal", devices=2, latency_objective_s=0.2, planning_s=1.5, predicted=result()),
        Run(planner="single", devices=1, latency_objective_s=0.2, planning_s=0.1, error={"kind": "infeasible"}),
    )
    compared = Comparison(
        planners=("optimal", "single"), columns=(), baselines=(), device_counts=(1, 2), percentile=0.95,
        latencies_s=(0.2,), accuracies=(), reference=(1, 0), runs=runs, grid=(), hypervolumes=(),
    )  # fmt: skip
    found = texts(compared._repr_html_())
    assert found[9:17] == ["optimal", "2", "200 ms", "90.0 %", "12 ms", "12 ms", "0.0 %", "1.5 s"]
    assert "infeasible" in found


def test_names_are_shown_as_text() -> None:
    run = Run(planner="<b>&", devices=1, latency_objective_s=0.2, planning_s=0.1)
    compared = Comparison(
        planners=("<b>&",), columns=(), baselines=(), device_counts=(1,), percentile=0.95,
        latencies_s=(), accuracies=(), reference=(1, 0), runs=(run,), grid=(), hypervolumes=(),
    )  # fmt: skip
    assert texts(compared._repr_html_()).count("<b>&") == 1


def test_a_chart_leaves_gaps_where_there_is_no_value_and_nothing_where_there_is_none_at_all() -> None:
    drawn = parsed(chart("c", "s", (0, 1, 2, 3), (1.0, None, 2.0, 3.0)))
    paths = [path.get("d") for path in drawn.iter("path")]
    assert paths[1].count("M") == 2
    assert chart("c", "s", (0,), (None,)) == ""
