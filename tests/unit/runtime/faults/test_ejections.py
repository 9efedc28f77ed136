from gearshift.clock import NS_PER_S
from gearshift.runtime.faults.ejections import Ejections, Recent, RetryBudget

S = NS_PER_S


def ejected(times: int = 5) -> tuple[Ejections, list[tuple[int, bool]]]:
    """Two replicas of one model; the first has failed at time 0."""
    changes: list[tuple[int, bool]] = []
    ejections = Ejections([0, 0], lambda replica, failing: changes.append((replica, failing)))
    for _ in range(times):
        ejections.sent(0)
        ejections.failed(0, 0)
    return ejections, changes


def test_five_failures_in_a_row_take_one_out_and_an_answer_begins_the_count_again() -> None:
    ejections, changes = ejected(4)
    ejections.succeeded(0, 0)
    ejections.failed(0, 0)
    assert ejections.is_out == [False, False]
    ejections, changes = ejected(5)
    assert ejections.is_out == [True, False]
    assert changes == [(0, True)]


def test_after_its_pause_one_try_shows_whether_it_is_back() -> None:
    ejections, changes = ejected()
    assert not ejections.look(S - 1)
    assert ejections.look(S)
    assert ejections.is_out == [False, False]
    ejections.sent(0)
    assert ejections.is_out == [True, False], "a second one is not sent meanwhile"
    ejections.succeeded(0, S)
    assert ejections.is_out == [False, False]
    assert changes == [(0, True), (0, False)]


def test_a_failed_probe_doubles_the_pause() -> None:
    ejections, _ = ejected()
    ejections.look(S)
    ejections.sent(0)
    ejections.failed(0, S)
    assert not ejections.look(3 * S - 1)
    assert ejections.look(3 * S)


def test_tries_from_before_it_was_taken_out_do_not_lengthen_its_pause() -> None:
    ejections, _ = ejected()
    for _ in range(20):
        ejections.failed(0, S // 2)
    assert ejections.look(S)


def test_a_probe_whose_client_left_lets_the_next_request_try() -> None:
    ejections, _ = ejected()
    ejections.look(S)
    ejections.sent(0)
    ejections.left(0)
    assert ejections.is_out == [False, False]
    ejections.sent(0)
    assert ejections.is_out == [True, False]


def test_half_of_the_tries_of_ten_seconds_take_it_out_and_older_ones_do_not_count() -> None:
    ejections = Ejections([0, 0])
    for second in range(9):
        ejections.succeeded(0, 2 * second * S)
        ejections.failed(0, (2 * second + 1) * S)
    assert ejections.is_out == [True, False]
    ejections = Ejections([0, 0])
    for second in range(20):
        ejections.succeeded(0, 6 * second * S)
        ejections.failed(0, (6 * second + 3) * S)
    assert ejections.is_out == [False, False]


def test_the_last_one_of_its_model_stays_where_it_answers_half_of_its_tries() -> None:
    ejections = Ejections([0])
    for _ in range(30):
        ejections.succeeded(0, 0)
        ejections.failed(0, 0)
    assert ejections.is_out == [False]


def test_another_process_begins_in_service() -> None:
    ejections, changes = ejected()
    ejections.restarted(0)
    assert ejections.is_out == [False, False]
    assert changes[-1] == (0, False)


def test_a_slow_one_gets_less_than_the_others_of_its_model() -> None:
    ejections = Ejections([0, 0, 1])
    for replica, took_ns in ((0, 100), (1, 1000), (2, 5000)):
        ejections.took(replica, took_ns, 100)
    assert ejections.shares([1000, 1000, 1000, 0, 10, 7]) == [1000, 100, 1000, 0, 1, 7]
    for _ in range(50):
        ejections.took(1, 100, 100)
    assert ejections.shares([1000, 1000, 1000]) == [1000, 1000, 1000]


def test_sums_are_of_the_last_ten_seconds() -> None:
    recent = Recent()
    for second in range(25):
        recent.add(second * S, all=2, counted=1)
    assert recent.sums(24 * S) == (20, 10)
    assert recent.sums(29 * S) == (10, 5)
    assert recent.sums(500 * S) == (0, 0)


def test_retries_are_a_fifth_of_the_requests_of_late() -> None:
    budget = RetryBudget()
    for _ in range(100):
        budget.arrived(0)
    assert sum(budget.take(0) for _ in range(50)) == 20
    assert sum(budget.take(20 * S) for _ in range(50)) == 10
    budget = RetryBudget(least=30)
    assert sum(budget.take(0) for _ in range(50)) == 30
