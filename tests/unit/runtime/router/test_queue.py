from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.policies.order import queue_key
from gearshift.request import LEAST_URGENT, NO_DEADLINE_NS, Request, Sample
from gearshift.runtime.router.queue import MOST_GONE, WaitingQueue
from tests.often import often


def sample(sequence: int, *, priority: int = LEAST_URGENT, deadline_ns: int = NO_DEADLINE_NS) -> Sample:
    request = Request(id=sequence, operator="task", arrived_ns=0, priority=priority, deadline_ns=deadline_ns)
    return Sample(request, 0, sequence)


def sequences(samples: list[Sample]) -> list[int]:
    return [one.sequence for one in samples]


def a_queue(*entries: tuple[Sample, int], starvation_ns: int = 0) -> WaitingQueue:
    queue = WaitingQueue(starvation_ns)
    for one, entered_ns in entries:
        queue.add(one, entered_ns)
    return queue


def test_samples_leave_in_the_order_in_which_they_entered() -> None:
    queue = a_queue((sample(3), 10), (sample(1), 20), (sample(2), 30))
    assert sequences(queue.take(3, 40)) == [3, 1, 2]


def test_samples_that_entered_together_leave_in_the_order_of_arrival() -> None:
    queue = a_queue((sample(3), 10), (sample(1), 10), (sample(2), 10))
    assert sequences(queue.take(3, 40)) == [1, 2, 3]


def test_a_queue_is_limited_from_a_deadline_on_until_it_is_empty() -> None:
    queue = a_queue((sample(1), 10))
    assert not queue.limited
    limited = sample(2, deadline_ns=100)
    queue.add(limited, 20)
    assert queue.limited
    queue.remove(limited)
    assert queue.limited  # until it is empty, or every sample that leaves would have to be looked at
    queue.take(1, 30)
    assert not queue.limited


def test_the_most_urgent_class_leaves_first() -> None:
    queue = a_queue((sample(1, priority=5), 10), (sample(2, priority=1), 20))
    assert queue.head().sequence == 2
    assert queue.oldest().sequence == 1


def test_within_a_class_the_earliest_deadline_leaves_first() -> None:
    queue = a_queue((sample(1, deadline_ns=900), 10), (sample(2, deadline_ns=100), 20), (sample(3), 5))
    assert sequences(queue.take(3, 40)) == [2, 1, 3]


def test_the_time_that_the_objective_wants_does_not_order_the_queue() -> None:
    request = Request(id=2, operator="task", arrived_ns=0, answer_by_ns=1)
    queue = a_queue((sample(1), 10), (Sample(request, 0, 2), 20))
    assert queue.head().sequence == 1


def test_starving_samples_leave_by_age_before_the_most_urgent() -> None:
    queue = a_queue(
        (sample(1), 0), (sample(2), 10), (sample(3, priority=2), 80), (sample(4, priority=1), 90), starvation_ns=90
    )
    assert sequences(queue.take(3, 100)) == [1, 2, 4]


def test_a_queue_starves_when_its_oldest_does() -> None:
    queue = a_queue((sample(1), 10), (sample(2, priority=1), 60), starvation_ns=50)
    assert not queue.is_starving(59)
    assert queue.is_starving(60)


def test_a_batch_leaves_the_rest_where_it_was() -> None:
    queue = a_queue((sample(1), 10), (sample(2), 20), (sample(3), 30))
    queue.take(1, 40)
    assert len(queue) == 2
    assert (queue.head().sequence, queue.oldest().sequence, queue.oldest().entered_ns) == (2, 2, 20)


def test_a_removed_sample_is_no_longer_head_nor_oldest() -> None:
    first, second = sample(1), sample(2)
    queue = a_queue((first, 10), (second, 20))
    assert queue.remove(first)
    assert (len(queue), queue.head(), queue.oldest()) == (1, second, second)


def test_a_sample_that_is_not_here_is_not_removed() -> None:
    first = sample(1)
    queue = a_queue((first, 10))
    assert not queue.remove(sample(2))
    queue.take(1, 20)
    assert not queue.remove(first)


def test_a_cleared_queue_gives_back_what_waited_oldest_first() -> None:
    gone, urgent, late = sample(1), sample(2, priority=1), sample(0)
    queue = a_queue((gone, 10), (late, 30), (urgent, 20))
    queue.remove(gone)
    assert queue.clear() == [urgent, late]
    assert (len(queue), queue.clear()) == (0, [])


def test_what_has_left_is_forgotten_while_others_still_wait() -> None:
    patient = sample(0, priority=9)
    queue = a_queue((patient, 0), starvation_ns=1 << 60)
    for number in range(1, 1001):
        queue.add(sample(number, priority=1), number)
        assert sequences(queue.take(1, number)) == [number]
    for number in range(1001, 2001):  # and the other way round: those that leave are behind in both orders
        late = sample(number, priority=10)
        queue.add(late, number)
        assert queue.remove(late)
    assert (len(queue), queue.head(), queue.oldest()) == (1, patient, patient)
    assert max(len(queue._by_urgency), len(queue._by_entry)) <= MOST_GONE + 2


@settings(deadline=None, derandomize=True, max_examples=often(200))
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 3), st.integers(0, 3)),
            st.tuples(st.just("take"), st.integers(1, 3), st.just(0)),
            st.tuples(st.just("remove"), st.integers(0, 40), st.just(0)),
        ),
        max_size=60,
    ),
    st.sampled_from([0, 7]),
)
def test_a_queue_behaves_as_a_list_that_is_searched_anew_each_time(
    steps: list[tuple[str, int, int]], starvation_ns: int
) -> None:
    queue, waiting, made = WaitingQueue(starvation_ns), [], []
    for now_ns, (what, number, deadline_ns) in enumerate(steps):
        if what == "add":
            made.append(sample(len(made), priority=number, deadline_ns=deadline_ns))
            queue.add(made[-1], now_ns)
            waiting.append(made[-1])
        elif what == "remove" and made:
            victim = made[number % len(made)]
            assert queue.remove(victim) == (victim in waiting)
            waiting = [one for one in waiting if one is not victim]
        elif what == "take":
            count = min(number, len(waiting))
            expected = []
            for _ in range(count):
                oldest = min(waiting, key=lambda one: (one.entered_ns, one.sequence))
                urgent = min(
                    waiting,
                    key=lambda one: queue_key(
                        one.request.priority, one.request.deadline_ns, one.entered_ns, one.sequence
                    ),
                )
                starving = 0 < starvation_ns <= now_ns - oldest.entered_ns
                expected.append(oldest if starving else urgent)
                waiting.remove(expected[-1])
            assert queue.take(count, now_ns) == expected
        assert len(queue) == len(waiting)
