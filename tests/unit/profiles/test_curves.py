import numpy as np
import pytest

from gearshift.models.samples import Samples
from gearshift.profiles.curves import strongest_model, strongest_of
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve


def samples(labels: object, groups: object = None) -> Samples:
    return Samples(
        np.zeros((4, 2)),
        None if labels is None else np.asarray(labels),
        None if groups is None else np.asarray(groups),
    )


def curve(
    model: str, seconds: float, *, sizes: tuple[int, ...] = (1,), kind: str = "cpu", segment: int = 0
) -> RunTimeCurve:
    times = tuple(seconds * size for size in sizes)
    return RunTimeCurve(model=model, batch_sizes=sizes, median_s=times, p95_s=times, device_kind=kind, segment=segment)


def test_the_strongest_model_is_the_slowest_at_the_largest_batch_all_can_run() -> None:
    steep = RunTimeCurve(model="steep", batch_sizes=(1, 8), median_s=(0.001, 1.0), p95_s=(0.001, 1.0))
    assert strongest_model([steep, curve("flat", 0.01)]) == "flat"
    assert strongest_model([steep, curve("flat", 0.01, sizes=(1, 8))]) == "steep"


def test_models_are_compared_on_the_device_kind_that_all_were_measured_on() -> None:
    curves = [curve("small", 0.1, kind="cpu"), curve("small", 0.01, kind="gpu"), curve("large", 0.05, kind="gpu")]
    assert strongest_model(curves) == "large"


def test_segments_of_a_model_are_added_up() -> None:
    curves = [curve("cached", 0.04), curve("cached", 0.04, segment=1), curve("plain", 0.06)]
    assert strongest_model(curves) == "cached"


def test_segments_count_as_often_as_samples_get_there() -> None:
    curves = [curve("cached", 0.04), curve("cached", 0.04, segment=1), curve("plain", 0.06)]
    assert strongest_model(curves, {"cached": np.array([0, 0, 0, 1])}) == "plain"
    assert strongest_model(curves, {"cached": np.array([0, 1, 1, 1])}) == "cached"


@pytest.mark.parametrize(
    ("labelled", "among", "strongest"),
    [
        (True, ("quick", "slow", "worse"), "slow"),
        (True, ("quick", "worse"), "quick"),
        (False, ("quick", "slow", "worse"), "worse"),
    ],
)
def test_the_strongest_is_the_most_accurate_where_there_are_labels(
    labelled: bool, among: tuple[str, ...], strongest: str
) -> None:
    records = PredictionRecords(
        models=("quick", "slow", "worse"),
        quality=np.array([[1, 1, 0, 1], [1, 1, 0, 1], [1, 0, 0, 1.0]]),
        certainty=np.ones((3, 4)),
        part=np.array([0, 0, 0, 1], dtype=np.int8),
        labelled=labelled,
    )
    curves = (curve("quick", 0.01), curve("slow", 0.02), curve("worse", 0.03))
    assert strongest_of(Profile(operator="o", curves=curves, predictions=records), among) == strongest
