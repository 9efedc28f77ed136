import msgspec
import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.profiles.engines.contexts import answerable
from gearshift.workload import Trace
from tests.language_task import small_engine

ENGINES = [small_engine("small", context_tokens=20), small_engine("large", context_tokens=40)]
TRACE = Trace(
    np.arange(4), 1.0, prompt_tokens=np.array([10, 30, 30, 99]), output_tokens=np.array([10, 10, 11, 1])
)  # of 20, 40, 41 and 100 tokens


def test_requests_beyond_every_context_are_left_out_and_counted() -> None:
    kept, (told, noted) = answerable(TRACE, ENGINES)
    assert kept.arrivals_ns.tolist() == [0, 1]
    assert kept.prompt_tokens is not None
    assert kept.prompt_tokens.tolist() == [10, 30]
    assert told == (
        "2 of 4 requests have more than the 40 tokens of the longest context, and are left out: a server refuses them "
        "with status 400"
    )
    assert noted.startswith("1 of 4 requests have more than the 20 tokens of the shortest context: they are predicted")
    assert answerable(TRACE, ENGINES[1:])[1] == [told]


def test_nothing_is_left_out_where_a_context_is_not_known_or_the_trace_has_no_tokens() -> None:
    unknown = [ENGINES[0], msgspec.structs.replace(ENGINES[1], context_tokens=msgspec.UNSET)]
    assert answerable(TRACE, unknown) == (TRACE, [])
    plain = Trace(TRACE.arrivals_ns, 1.0)
    assert answerable(plain, ENGINES) == (plain, [])


def test_a_trace_of_which_no_request_fits_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"4 of 4 requests have more than the 5 tokens .* serve a model"):
        answerable(TRACE, [small_engine("small", context_tokens=5)])
