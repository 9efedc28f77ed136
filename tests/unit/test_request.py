import pytest

from gearshift.request import LEAST_URGENT, MOST_URGENT, NO_DEADLINE_NS, Request, Sample


def test_a_request_without_a_deadline_is_due_at_the_end_of_time() -> None:
    request = Request(id=1, operator="task", arrived_ns=0)
    assert request.deadline_ns == request.late_after_ns == NO_DEADLINE_NS == 2**62


def test_a_request_is_late_after_its_clients_deadline_also_where_the_objective_wants_it_before() -> None:
    assert Request(id=1, operator="task", arrived_ns=0, deadline_ns=7, answer_by_ns=5).late_after_ns == 7


def test_without_a_clients_deadline_a_request_is_late_after_the_objectives() -> None:
    request = Request(id=1, operator="task", arrived_ns=0, answer_by_ns=7)
    assert request.late_after_ns == 7
    assert request.deadline_ns == NO_DEADLINE_NS


def test_a_request_is_least_urgent_unless_it_says_otherwise() -> None:
    assert Request(id=1, operator="task", arrived_ns=0).priority == LEAST_URGENT
    assert MOST_URGENT < LEAST_URGENT


def test_a_request_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        Request(id=1, operator="task", arrived_ns=0).priority = 1  # type: ignore[misc]


def test_samples_are_the_same_only_when_they_are_one_object() -> None:
    request = Request(id=1, operator="task", arrived_ns=0)
    assert Sample(request, 0, 0) != Sample(request, 0, 0)
