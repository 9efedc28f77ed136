"""Which replica of a model takes a sample."""

from collections.abc import MutableSequence, Sequence


def choose_replica(shares: Sequence[float], base: int, credits: MutableSequence[float], begin: int, end: int) -> int:
    """Smooth weighted round robin over replicas `begin` to `end`; `shares[base + replica]` are their weights.

    Every replica with a share gains it as credit; the richest (the first among equals) takes the sample and pays 1.
    Changes `credits`; answers -1 where none has a share.
    """
    chosen = -1
    for replica in range(begin, end):
        share = shares[base + replica]
        if share > 0.0:
            credits[replica] += share
            if chosen < 0 or credits[replica] > credits[chosen]:
                chosen = replica
    if chosen >= 0:
        credits[chosen] -= 1.0
    return chosen


def carry_credits(shares: Sequence[float], base: int, credits: MutableSequence[float], replicas: int) -> None:
    """At a gear shift: replicas that keep a share keep their credit, the others lose it.  Changes `credits`."""
    for replica in range(replicas):
        if shares[base + replica] <= 0.0:
            credits[replica] = 0.0
