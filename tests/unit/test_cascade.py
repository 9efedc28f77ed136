import math

import pytest

from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput


def test_a_cascade_has_one_threshold_fewer_than_models() -> None:
    assert Cascade(models=("small", "large"), thresholds=(0.5,)).thresholds == (0.5,)


def test_a_cascade_of_one_model_has_no_thresholds() -> None:
    assert Cascade(models=("only",)).thresholds == ()


@pytest.mark.parametrize(
    ("models", "thresholds", "sentence"),
    [
        ((), (), "a cascade has no models, needs at least one"),
        (("a", "b", "a"), (0.1, 0.2), "cascade a > b > a visits a model more than once"),
        (("a", "b"), (), "cascade a > b has 0 thresholds; give 1, one for each stage but the last"),
        (("a",), (0.5,), "cascade a has 1 thresholds; give 0, one for each stage but the last"),
        (("a", "b"), (math.nan,), "cascade a > b has a threshold that is not finite"),
        (("a", "b"), (math.inf,), "cascade a > b has a threshold that is not finite"),
    ],
)
def test_a_cascade_that_cannot_be_says_why(
    models: tuple[str, ...], thresholds: tuple[float, ...], sentence: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        Cascade(models=models, thresholds=thresholds)
    assert str(caught.value) == sentence


def test_a_cascade_reads_as_its_stages_in_order() -> None:
    assert str(Cascade(models=("a", "b", "c"), thresholds=(0.5, 0.25))) == "a <0.5 > b <0.25 > c"
