from gearshift.policies.cores.look_ahead import Sight, cores_ahead, requests_ahead

S = 1_000_000_000
MOST, LARGEST = 8, 4
RUN = [S // 10 // max(c, 1) for c in range(MOST + 1) for _ in range(LARGEST + 1)]
"""A batch of any size takes 100 ms on one core."""


def cores(*, waiting: list[int], arrivals: list[int], left: int = 5 * S, ready: int = 10 * S) -> int:
    deadlines = [arrived + left for arrived in arrivals]
    return cores_ahead(Sight(10 * S, S, 10 * S, waiting, arrivals, deadlines), ready, RUN, MOST, LARGEST)


def test_the_last_period_is_expected_once_more() -> None:
    ahead = requests_ahead(10 * S, S, [12 * S], [8 * S, 9 * S, 9 * S + 5], [9 * S, 9 * S + 7, 10 * S])
    assert ahead == [10 * S + 7, 11 * S, 12 * S]


def test_who_waits_is_served_in_time() -> None:
    assert cores(waiting=[10 * S + S // 10], arrivals=[0]) == 1
    assert cores(waiting=[10 * S + S // 20], arrivals=[0]) == 2


def test_the_running_batch_and_the_effect_of_a_change_are_waited_for() -> None:
    assert cores(waiting=[10 * S + S // 10], arrivals=[0], ready=10 * S + S // 20) == 2


def test_who_is_expected_needs_cores_before_coming() -> None:
    arrivals = [9 * S + i for i in range(40)]
    assert cores(waiting=[], arrivals=arrivals) == 1
    assert cores(waiting=[], arrivals=arrivals, left=S // 2) == 2


def test_a_request_that_had_little_time_left_is_remembered() -> None:
    arrivals = [S, 2 * S]
    deadlines = [S + S // 10, 7 * S]
    assert cores_ahead(Sight(10 * S, S, 10 * S, [], arrivals, deadlines), 10 * S, RUN, MOST, LARGEST) == 2


def test_who_cannot_make_it_on_any_cores_counts_for_nothing() -> None:
    assert cores(waiting=[10 * S + 1], arrivals=[0]) == 1


def test_where_no_choice_serves_all_every_core_is_asked_for() -> None:
    assert cores(waiting=[10 * S + S // 50] * 50, arrivals=[0]) == MOST
