"""Decides which incoming message is dropped when all together take too much memory."""

from collections.abc import Sequence


def given_up(held_bytes: Sequence[int], most_bytes: int) -> int | None:
    """The place of the connection that must drop its message; None where all may go on.

    `held_bytes` are in the order in which the connections' youngest messages began. Among those
    that take more than an equal share, the youngest is dropped: the others are further on, and
    small messages are never in the way of large ones. A single one always goes on: another bound
    limits its size.
    """
    holding = sum(held > 0 for held in held_bytes)
    if sum(held_bytes) <= most_bytes or holding < 2:
        return None
    return max(place for place, held in enumerate(held_bytes) if held > most_bytes // holding)
