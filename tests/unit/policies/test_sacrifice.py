from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.policies.sacrifice import sacrificed

LARGEST = 4
RUN = [0, 10, 12, 14, 16]


def misses(deadlines: list[int], given_up: int) -> int:
    now, missed, queue = 0, given_up, deadlines[given_up:]
    while queue:
        sizes = [b for b in range(1, min(LARGEST, len(queue)) + 1) if now + RUN[b] <= queue[0]]
        if not sizes:
            missed, queue = missed + 1, queue[1:]
        else:
            now, queue = now + RUN[sizes[-1]], queue[sizes[-1] :]
    return missed


def test_nobody_is_given_up_while_all_make_it() -> None:
    assert sacrificed([11, 40, 40, 40], 4, 0, RUN, LARGEST) == 0


def test_one_is_given_up_where_serving_it_alone_costs_others_their_deadlines() -> None:
    assert misses([11, 16, 16, 16, 16], 0) == 4
    assert sacrificed([11, 16, 16, 16, 16], 5, 0, RUN, LARGEST) == 1


def test_an_empty_queue_gives_up_nobody() -> None:
    assert sacrificed([], 0, 0, RUN, LARGEST) == 0


@settings(derandomize=True, max_examples=300)
@given(st.lists(st.integers(0, 80), min_size=1, max_size=12).map(sorted))
def test_never_more_are_missed_than_by_giving_up_nobody_and_no_tried_number_would_be_better(
    deadlines: list[int],
) -> None:
    found = sacrificed(deadlines, len(deadlines), 0, RUN, LARGEST)
    whole = (j for j, due in enumerate(deadlines) if RUN[min(LARGEST, len(deadlines) - j)] <= due)
    tried = range(next(whole, len(deadlines) - 1) + 1)
    assert found in tried
    assert misses(deadlines, found) == min(misses(deadlines, j) for j in tried)
