import pytest

from gearshift.policies.bulk import bulk_batch_size, shortest_queue

RUN_NS = [0, 10, 11, 12, 13, 14]
"""A batch of b takes 9 + b."""


@pytest.mark.parametrize(
    ("lengths", "begin", "end", "place"),
    [
        ([3, 1, 2], 0, 3, 1),
        ([3, 1, 2], 2, 3, 2),
        ([2, 1, 1], 0, 3, 1),
        ([-1, 5, 6], 0, 3, 1),
        ([-1, -1], 0, 2, -1),
        ([4], 0, 0, -1),
    ],
)
def test_the_shortest_queue_is_the_first_of_those_that_may_be_used(lengths, begin, end, place):
    assert shortest_queue(lengths, begin, end) == place


@pytest.mark.parametrize(
    ("queued", "largest", "starvation_ns", "size"),
    [
        (3, 5, 0, 3),  # no objective, so that any batch is short enough
        (9, 5, 0, 5),
        (9, 5, 200 * 12, 3),
        (9, 5, 200 * 12 - 1, 2),
        (9, 5, 1, 1),  # none is short enough, and one sample may run
    ],
)
def test_a_batch_of_bulk_work_is_short(queued, largest, starvation_ns, size):
    assert bulk_batch_size(queued, largest, RUN_NS, starvation_ns) == size
