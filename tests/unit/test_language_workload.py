"""Workloads of language models: what is drawn for each arrival, and what is refused."""

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.language_workload import LanguageWorkload, draw_language_workload, numbers_by_id
from gearshift.workload import Trace

ARRIVALS = np.arange(10, dtype=np.int64) * 1000


def test_prompts_are_drawn_in_shuffles_of_the_part():
    made = draw_language_workload(Trace(ARRIVALS, 1.0), np.array([3, 5], dtype=np.int32), seed=1)
    assert sorted(made.record.tolist()) == [3] * 5 + [5] * 5
    assert (made.arrivals_ns == ARRIVALS).all()
    assert made.duration_s == 1.0
    assert made.prompt_tokens is None


def test_a_number_by_id_depends_on_the_place_and_the_seed_alone():
    few, many, other = numbers_by_id(10, 1), numbers_by_id(10_000, 1), numbers_by_id(10_000, 2)
    assert (many[:10] == few).all()
    assert not np.isin(many, other).any()
    assert 0 <= many.min() < many.max() < 1
    shares = np.histogram(many, bins=10, range=(0, 1))[0] / len(many)
    assert abs(shares - 0.1).max() < 0.02  # six standard deviations
    assert abs(np.corrcoef(many[:-1], many[1:])[0, 1]) < 0.05


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("by_id", np.full(10, 1.0), "by_id of a request is not in"),
        ("record", np.full(10, -1, dtype=np.int32), "names a negative prompt"),
        ("record", np.zeros(9, dtype=np.int32), "record has another length"),
        ("output_tokens", np.zeros(10, dtype=np.int64), "output_tokens of a request is below 1"),
        ("arrivals_ns", ARRIVALS[::-1], "not sorted"),
        ("arrivals_ns", ARRIVALS[:0], "has no requests"),
    ],
)
def test_workloads_that_cannot_be_served_are_refused(field, value, message):
    fields = {"arrivals_ns": ARRIVALS, "record": np.zeros(10, dtype=np.int32), "by_id": np.zeros(10), "duration_s": 1.0}
    with pytest.raises(InvalidInput, match=message):
        LanguageWorkload(**{**fields, field: value})
