"""Bisection: where what holds begins. What holds at a number holds at every higher one."""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def least_that(holds: Callable[[int], bool], *, fails: int, at_most: int) -> int:
    """The least number above `fails` that holds, where `at_most` holds."""
    while at_most > fails + 1:
        middle = (fails + at_most) // 2
        if holds(middle):
            at_most = middle
        else:
            fails = middle
    return at_most


def split(
    holds: Callable[[float], bool],
    low: float,
    high: float,
    *,
    precision: float,
    middle: Callable[[float, float], float],
) -> tuple[float, float]:
    """The last number that holds and the first that does not, to `precision` as a share."""
    while high > low * precision:
        between = middle(low, high)
        low, high = (between, high) if holds(between) else (low, between)
    return low, high


def halfway(low: float, high: float) -> float:
    return (low + high) / 2


def geometric(low: float, high: float) -> float:
    return float((low * high) ** 0.5)


def climbed(at: int, count: int, rank: Callable[[int], Any], enough: Callable[[int], bool] = lambda _: False) -> int:
    """The place below `count` whose neighbours rank no better, or the first that is enough, from `at` on."""
    while not enough(at):
        near = range(max(0, at - 1), min(count, at + 2))
        better = min(near, key=lambda place: (rank(place), place != at))
        if better == at:
            break
        at = better
    return at


BEYOND = 6, 4, 2, 1


def last_that_holds(holds: Callable[[int], bool], count: int) -> int:
    """The last of `count` that holds, as far as is found; -1 where none does.

    What holds is taken to end once. As it may begin again a little further on, places `BEYOND` that
    end are tried, too. No place is asked twice.
    """
    if holds(count - 1):
        return count - 1
    failed = set[int]()

    def fails(place: int) -> bool:
        if place not in failed and not holds(place):
            failed.add(place)
        return place in failed

    end = least_that(fails, fails=-1, at_most=count - 1)
    for more in BEYOND:
        if end + more < count - 1 and not fails(end + more):
            return end + more
    return end - 1


def first_found(find: Callable[[int], T | None], *, first: int, last: int) -> T | None:
    """Return the find at the least number from `first` to `last`; None if `last` has none.

    The number is doubled until something is found, then bisected.
    """
    fails, number = first - 1, first
    while (found := find(number)) is None:
        if number == last:
            return None
        fails, number = number, min(2 * number, last)
    best = found

    def holds(middle: int) -> bool:
        nonlocal best
        tried = find(middle)
        best = best if tried is None else tried
        return tried is not None

    least_that(holds, fails=fails, at_most=number)
    return best


def narrowed(
    find: Callable[[float], T | None],
    found: T,
    *,
    fails: float,
    at_most: float,
    precision: float,
    middle: Callable[[float, float], float],
) -> T:
    """Return the find at the least number, to `precision` as a share; `found` is at `at_most`."""
    while at_most > fails * (1 + precision):
        between = middle(fails, at_most)
        if (tried := find(between)) is None:
            fails = between
        else:
            at_most, found = between, tried
    return found
