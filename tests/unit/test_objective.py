import math
from typing import Any

import pytest

from gearshift.errors import InvalidInput
from gearshift.objective import Objective


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"percentile": 0.0}, "percentile is 0.0; give a number between 0 and 1"),
        ({"percentile": 95.0}, "percentile is 95.0; write 0.95 for 95 %"),
        ({"percentile": math.nan}, "percentile is nan; give a number between 0 and 1"),
        ({"latency_s": 0.0}, "latency_s is 0.0; give more than 0, up to 1000000000"),
        ({"latency_s": -0.1}, "latency_s is -0.1; give more than 0, up to 1000000000"),
        ({"latency_s": 1.1e9}, "latency_s is 1100000000.0; give more than 0, up to 1000000000"),
        ({"latency_s": math.inf}, "latency_s is inf; give more than 0, up to 1000000000"),
        ({"latency_s": math.nan}, "latency_s is nan; give more than 0, up to 1000000000"),
        ({"accuracy": 1.01}, "accuracy is 1.01; give a number from 0 to 1"),
        ({"accuracy": 93.5}, "accuracy is 93.5; write 0.935 for 93.5 %"),
        ({"accuracy": math.nan}, "accuracy is nan; give a number from 0 to 1"),
        ({"confidence": 1.0}, "confidence is 1.0; give a number between 0 and 1"),
        ({"confidence": 0.0}, "confidence is 0.0; give a number between 0 and 1"),
    ],
)
def test_an_objective_that_cannot_be_names_the_value_and_the_remedy(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Objective(**fields)
    assert str(caught.value) == sentence


def test_an_objective_asks_for_the_95th_percentile_in_every_range_by_default() -> None:
    assert (Objective().percentile, Objective().scope) == (0.95, "every-range")


def test_the_ends_of_accuracy_can_be_asked_for() -> None:
    assert (Objective(accuracy=0).accuracy, Objective(accuracy=1).accuracy) == (0, 1)
