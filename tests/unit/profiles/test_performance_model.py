import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.capacity import formula_seconds
from benchmarks.shared.imported import sponge_latency
from gearshift.errors import InvalidInput
from gearshift.profiles.curves import performance_models
from gearshift.profiles.performance_model import (
    NO_CHOICE_NS,
    PerformanceModel,
    fit_performance_model,
    formula_coefficients,
    relative_errors,
)
from gearshift.profiles.profile import RunTimeCurve
from tests.often import often

SIZES, CORES = (1, 2, 4, 8), (1, 2, 4)
DATA = os.environ.get("GEARSHIFT_DATA")
needs_data = pytest.mark.skipif(DATA is None, reason="GEARSHIFT_DATA names no folder of real data")

Points = tuple[list[int], list[int], list[float]]


def points_of(coefficients: tuple[float, float, float, float]) -> Points:
    b, c = (axis.ravel() for axis in np.meshgrid(SIZES, CORES, indexing="ij"))
    return b.tolist(), c.tolist(), formula_seconds(coefficients, b.astype(float), c.astype(float)).tolist()


def arrays(points: Points) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    b, c, s = (np.array(values, dtype=np.float64) for values in points)
    return b, c, s


positive = st.floats(1e-4, 1.0)


@settings(deadline=None, derandomize=True, max_examples=often(25))
@given(st.tuples(positive, positive, positive, positive))
def test_run_times_that_follow_the_formula_are_predicted_exactly(drawn: tuple[float, float, float, float]) -> None:
    model = fit_performance_model(*points_of(drawn), model="m")
    assert model.held_out_error < 1e-6
    asked = np.array([3.0, 7.0]), np.array([3.0, 2.0])
    assert model.at(*asked) == pytest.approx(formula_seconds(drawn, *asked), rel=1e-6)


def test_one_wild_measurement_does_not_bend_the_formula() -> None:
    truth = (0.02, 0.01, 0.004, 0.005)
    sizes, cores, seconds = points_of(truth)
    disturbed = [*seconds]
    disturbed[5] *= 8
    fitted = formula_coefficients(*arrays((sizes, cores, disturbed)))
    b, c, s = arrays((sizes, cores, seconds))
    squares = np.linalg.lstsq(np.stack([b / c, 1 / c, b, np.ones_like(b)], axis=1), disturbed, rcond=None)[0]
    assert relative_errors(formula_seconds(fitted, b, c), s)[1] < 1e-6
    assert relative_errors(formula_seconds(squares.tolist(), b, c), s)[1] > 0.2


def test_run_times_that_follow_no_formula_are_interpolated_and_both_errors_are_kept() -> None:
    b, c, _ = points_of((0, 0, 0, 1))
    seconds = [0.01 * max(size, 4) / min(cores, 2) for size, cores in zip(b, c, strict=True)]
    model = fit_performance_model(b, c, seconds, model="m")
    assert model.form == "grid"
    assert model.other_form_error is not None
    assert model.held_out_error < model.other_form_error
    assert model.at(np.array([4.0]), np.array([2.0])) == pytest.approx(0.02)
    assert model.at(np.array([6.0]), np.array([1.0])) == pytest.approx(0.06)


def test_between_core_counts_the_grid_follows_amdahls_law() -> None:
    model = PerformanceModel(
        model="m", form="grid", batch_sizes=(1,), cores=(1, 4), seconds=((0.9, 0.3),),
        held_out_error=0, held_out_worst=0, held_out_points=1,
    )  # fmt: skip
    assert model.at(np.array([1.0]), np.array([2.0])) == pytest.approx(0.1 + 0.8 / 2)


def test_an_incomplete_grid_gets_the_formula() -> None:
    sizes, cores, seconds = points_of((0.02, 0.01, 0.004, 0.005))
    model = fit_performance_model(sizes[:-1], cores[:-1], seconds[:-1], model="m")
    assert (model.form, model.other_form_error) == ("formula", None)


@pytest.mark.parametrize(
    ("sizes", "cores", "says"),
    [
        ([1] * 8, list(range(1, 9)), "8 points of batch size 1 alone and 8 core counts"),
        ([1, 2, 4], [1, 1, 1], "3 points of 3 batch sizes and 1 cores alone"),
        ([1, 2, 1, 2], [1, 1, 2, 2], "4 points of 2 batch sizes"),
        ([1, 2, 4, 1], [1, 1, 1, 2], "there are 4 points"),
    ],
)
def test_too_few_points_are_refused_with_how_many_are_needed(sizes: list[int], cores: list[int], says: str) -> None:
    with pytest.raises(InvalidInput, match=f"{says}.*6 points"):
        fit_performance_model(sizes, cores, [0.1] * len(sizes), model="m")


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_are_none_are_refused(bad: float) -> None:
    sizes, cores, seconds = points_of((0.02, 0.01, 0.004, 0.005))
    with pytest.raises(InvalidInput, match="positive and finite"):
        fit_performance_model(sizes, cores, [bad, *seconds[1:]], model="m")


def test_a_table_has_every_batch_on_every_core_count_and_adds_overheads() -> None:
    model = fit_performance_model(*points_of((0.02, 0.01, 0.004, 0.005)), model="m")
    table = model.table_ns(most_cores=3, largest_batch_size=5, overhead_per_batch_s=0.001, overhead_per_request_s=0.002)
    assert table.shape == (4, 6)
    assert table[2, 3] == pytest.approx(1e9 * (0.06 / 2 + 0.01 / 2 + 0.012 + 0.005 + 0.001 + 0.006), abs=2)
    assert table[0, 1:].tolist() == [NO_CHOICE_NS] * 5
    with pytest.raises(InvalidInput, match="core count 1 to 4"):
        model.table_ns(most_cores=5)


def test_median_and_p95_are_fitted_apart_and_only_where_cores_were_varied() -> None:
    def curve(model: str, cores: int) -> RunTimeCurve:
        median_s = tuple(0.01 * size / cores + 0.001 for size in SIZES)
        return RunTimeCurve(
            model=model, cores=cores, batch_sizes=SIZES, median_s=median_s, p95_s=tuple(2 * s for s in median_s)
        )

    fitted = performance_models([curve("a", 1), curve("b", 1), curve("a", 2)])
    assert [(one.model, one.statistic) for one in fitted] == [("a", "median"), ("a", "p95")]
    at = np.array([3.0]), np.array([2.0])
    assert fitted[1].at(*at) == pytest.approx(2 * fitted[0].at(*at))


@needs_data
def test_sponges_measurements_are_fitted_better_than_by_least_squares() -> None:
    points = sponge_latency(Path(str(DATA)))
    b, c, s = arrays(points)
    mean, worst = relative_errors(formula_seconds(formula_coefficients(b, c, s), b, c), s)
    assert (mean < 0.08, worst < 0.27) == (True, True)
    model = fit_performance_model(*points, model="m")
    assert (model.form, model.held_out_error < 0.065) == ("grid", True)
