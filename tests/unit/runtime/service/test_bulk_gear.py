import math

import pytest

from gearshift.errors import UnknownModel
from gearshift.request import BulkWork
from gearshift.runtime.service.bulk_gear import bulk_gear_of

ACCURACIES = [0.95, 0.9, 0.92, 0.7]


@pytest.mark.parametrize(
    ("asked", "accuracies", "objective", "gear"),
    [
        (BulkWork(gear=3), ACCURACIES, 0.9, 3),
        (BulkWork(), ACCURACIES, 0.9, 2),
        (BulkWork(accuracy=0.7), ACCURACIES, 0.9, 3),
        (BulkWork(accuracy=0.93), ACCURACIES, None, 0),
        (BulkWork(), ACCURACIES, None, 0),
        (BulkWork(), ACCURACIES, 0.99, 0),  # as good as the plan has it
        (BulkWork(), [math.nan] * 4, 0.5, 0),
    ],
)
def test_the_gear_is_the_cheapest_that_is_good_enough(asked, accuracies, objective, gear):
    assert bulk_gear_of(asked, accuracies, 4, objective) == gear


@pytest.mark.parametrize(
    ("asked", "accuracies", "said"),
    [
        (BulkWork(gear=4), ACCURACIES, "parameters: gear is 4, the plan has gears 0 to 3; give one of these"),
        (
            BulkWork(accuracy=0.96),
            ACCURACIES,
            "parameters: no gear of the plan reaches accuracy 0.96: the best gear is predicted to have 0.95; "
            "ask for less, or name a gear",
        ),
        (
            BulkWork(accuracy=0.5),
            [math.nan] * 4,
            "parameters: no gear of the plan reaches accuracy 0.5: the plan predicts none of its gears; "
            "ask for less, or name a gear",
        ),
    ],
)
def test_a_gear_that_the_plan_does_not_have_is_told(asked, accuracies, said):
    with pytest.raises(UnknownModel) as raised:
        bulk_gear_of(asked, accuracies, 4, None)
    assert str(raised.value) == said
