"""Runs of several operators in a comparison; the searches have tests of their own."""

import msgspec
import pytest

from gearshift.cli.views.rows.compare import as_csv
from gearshift.planner import planners
from gearshift.planner.compare import Run, compared, worst_accuracy
from gearshift.planner.comparing.several import PLANNERS, run_planner_of_several, worst_of_several
from gearshift.reporting.comparison_page import comparison_page
from tests.unit.planner.several.worlds import CATS, DOGS, two_operators

SEVERAL = two_operators()


def test_every_planner_of_several_is_in_the_registry() -> None:
    assert tuple(PLANNERS) == planners.OF_SEVERAL


@pytest.fixture(scope="module")
def run() -> Run:
    return run_planner_of_several("apart", SEVERAL)


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
    found = compared([run], worst_of_several(SEVERAL))
    rows = [line.split(",")[:2] for line in as_csv(found).splitlines()]
    assert rows == [["planner", "pipeline"], ["apart", "all"], ["apart", "cats"], ["apart", "dogs"]]
    assert "<td>cats</td>" in comparison_page(found, title="", note="")


def test_the_worst_accuracy_is_the_mean_of_the_operators() -> None:
    share = SEVERAL.share_of_requests
    worst = share["cats"] * worst_accuracy(CATS) + share["dogs"] * worst_accuracy(DOGS)
    assert worst_of_several(SEVERAL) == pytest.approx(worst)
