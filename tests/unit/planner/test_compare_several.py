"""Runs of several operators in a comparison; the searches have tests of their own."""

import msgspec
import pytest

from gearshift.planner.compare import Run, compared, run_planner, worst_accuracy
from gearshift.reporting.comparison import comparison_sections, runs_of
from gearshift.reporting.drawing.page import html_page
from tests.unit.planner.several.worlds import two_operators

SEVERAL = two_operators()


@pytest.fixture(scope="module")
def run() -> Run:
    return run_planner("apart", SEVERAL)


@pytest.mark.long
def test_a_run_has_the_mean_over_all_requests_and_each_operator(run: Run) -> None:
    assert run.error is None
    assert run.pipelines
    cats, dogs = run.pipelines["cats"], run.pipelines["dogs"]
    assert (cats.latency_objective_s, dogs.latency_objective_s) == (0.05, 0.1)
    assert cats.share + dogs.share == pytest.approx(1)
    mean = cats.share * cats.predicted.accuracy + dogs.share * dogs.predicted.accuracy
    assert run.accuracy == pytest.approx(mean)
    assert run.point == (0.1, run.accuracy)
    late = msgspec.structs.replace(cats.predicted, share_late=0.2, latency_s=_slow(cats.predicted.latency_s, 0.075))
    worse = msgspec.structs.replace(
        run, pipelines=run.pipelines | {"cats": msgspec.structs.replace(cats, predicted=late)}
    )
    assert worse.point == (pytest.approx(0.15), run.accuracy)  # half as long again as its objective, as cats is


def _slow(latency_s, p95: float):
    return msgspec.structs.replace(latency_s, p95=p95)


def test_tables_and_files_have_a_row_for_all_and_one_for_each(run: Run) -> None:
    found = compared([run], worst_accuracy(SEVERAL))
    rows = [line.split(",")[:2] for line in runs_of(found.runs).csv.splitlines()]
    assert rows == [["planner", "pipeline"], ["apart", "all"], ["apart", "cats"], ["apart", "dogs"]]
    assert "<td>cats</td>" in html_page("", "", comparison_sections(found))


def test_the_worst_accuracy_is_the_mean_of_the_operators() -> None:
    share = SEVERAL.share_of_requests
    worst = share["cats"] * worst_accuracy(SEVERAL.requests["cats"]) + share["dogs"] * worst_accuracy(
        SEVERAL.requests["dogs"]
    )
    assert worst_accuracy(SEVERAL) == pytest.approx(worst)
