"""Bisection: where what holds begins. What holds at a number holds at every higher one."""

from collections.abc import Callable
from typing import TypeVar

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
