"""Which replica of a model takes a sample."""

from collections.abc import MutableSequence, Sequence

from gearshift.gear import SHARE_UNIT

_NOTHING = -(1 << 62)


def choose_replica(shares: Sequence[int], base: int, credits: MutableSequence[int], begin: int, end: int) -> int:
    """Smooth weighted round robin over replicas `begin` to `end`; `shares[base + replica]` add up to `SHARE_UNIT`.

    Every replica gains its share as credit; the richest with a share (the first among equals) takes the sample and
    pays `SHARE_UNIT`.  Changes `credits`; answers -1 where none has a share.  Whole numbers, so that it is exact.
    """
    if base < 0 or begin < 0:  # never so; but it lets the compiled form add and compare several replicas at once
        return -1
    richest = _NOTHING
    for replica in range(begin, end):
        share = shares[base + replica]
        credits[replica] += share
        richest = max(richest, credits[replica] if share > 0 else _NOTHING)
    for replica in range(begin, end):
        if credits[replica] == richest and shares[base + replica] > 0:
            credits[replica] -= SHARE_UNIT
            return replica
    return -1


def carry_credits(shares: Sequence[int], base: int, credits: MutableSequence[int], replicas: int) -> None:
    """At a gear shift: replicas that keep a share keep their credit, the others lose it.  Changes `credits`."""
    for replica in range(replicas):
        if shares[base + replica] <= 0:
            credits[replica] = 0
