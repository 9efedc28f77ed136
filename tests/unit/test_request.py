import pytest

from gearshift.request import LEAST_URGENT, MOST_URGENT, NO_DEADLINE_NS, Request, Sample


def test_a_request_without_a_deadline_is_due_at_the_end_of_time() -> None:
    request = Request(id=1, operator="task", arrived_ns=0)
    assert request.deadline_ns == request.order_deadline_ns == NO_DEADLINE_NS == 2**62


def test_a_requests_own_deadline_orders_queues() -> None:
    assert Request(id=1, operator="task", arrived_ns=0, deadline_ns=7).order_deadline_ns == 7


def test_an_operators_default_deadline_counts_as_absent_in_the_order_of_queues() -> None:
    request = Request(id=1, operator="task", arrived_ns=0, deadline_ns=7, deadline_is_default=True)
    assert request.order_deadline_ns == NO_DEADLINE_NS
    assert request.deadline_ns == 7


def test_a_request_is_least_urgent_unless_it_says_otherwise() -> None:
    assert Request(id=1, operator="task", arrived_ns=0).priority == LEAST_URGENT
    assert MOST_URGENT < LEAST_URGENT


def test_a_request_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        Request(id=1, operator="task", arrived_ns=0).priority = 1  # type: ignore[misc]


def test_samples_are_the_same_only_when_they_are_one_object() -> None:
    request = Request(id=1, operator="task", arrived_ns=0)
    assert Sample(request, 0, 0) != Sample(request, 0, 0)
