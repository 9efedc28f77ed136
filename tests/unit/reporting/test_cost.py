import msgspec
import pytest

from gearshift.reporting.cost import per_million, requests_per_s
from tests.unit.reporting.test_rows_page import result


def test_a_million_requests_cost_the_hours_that_they_take() -> None:
    run = result()  # 110 requests in 10 s
    assert requests_per_s(run) == pytest.approx(11)
    assert per_million(3.6, run) == pytest.approx(3.6 * 1e6 / 11 / 3600)


def test_the_load_of_a_run_that_answered_nothing_in_time_is_not_known() -> None:
    late = msgspec.structs.replace(result(), share_late=1.0, goodput_qps=0.0)
    assert per_million(1.0, late) is None
