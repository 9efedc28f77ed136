"""How engines that work on the same devices at a time slow each other.

A processor or a GPU gives processes time by turns that are short beside their steps, so k engines
at work have a k-th of its time each, however long the steps of each are. What they take beyond
that, as each evicts what the others had in caches, is a factor that is measured.
"""

from collections.abc import Sequence


def stretch_of(
    replica: int, begin: int, end: int, members: Sequence[int], at_work: Sequence[int], factors: Sequence[float]
) -> float:
    """How many times as long as alone a step of `replica` takes beside those of its devices that are at work.

    They are `members` from `begin` to `end`. `factors` has at `replica * replicas + other` what is
    measured for a pair; of several others at work the largest counts.
    """
    replicas = len(at_work)
    count, largest = 1, 0.0
    for place in range(begin, end):
        other = members[place]
        if other != replica and at_work[other] != 0:
            count += 1
            largest = max(largest, factors[replica * replicas + other])
    return 1.0 if count == 1 else max(1.0, count * largest)


def work_left_ns(left_ns: int, elapsed_ns: int, stretch: float) -> int:
    """The rest of a step that would alone have taken `left_ns` more."""
    return max(0, left_ns - int(elapsed_ns / stretch))


def step_ends_ns(now_ns: int, left_ns: int, stretch: float) -> int:
    return now_ns + int(left_ns * stretch)
