"""Which replica of a model takes a sample: stride scheduling on a ring.

Waldspurger and Weihl 1995. A model's replicas with a share form a ring, in the order in which they
are due for their next sample:

    last[model] -> first due -> ... -> last due, the same replica
    next: following[replica]; none: last is -1

A replica that takes a sample is due again one stride later. Strides are inverse to shares, so equal
shares take turns.
"""

from collections.abc import MutableSequence, Sequence

from gearshift.gear import SHARE_UNIT

_ONE_SAMPLE = 1 << 20
"""Time in a ring: a sample takes this much, so that the stride of a share s of `SHARE_UNIT` is
2^40 / s. Strides are rounded by less than one, which moves no replica by a sample within 2^20
samples. Products stay within 2^60; times would reach 2^62 after 4 * 10^12 samples without a
shift."""


def choose_replica(
    model: int,
    last: MutableSequence[int],
    following: MutableSequence[int],
    due: MutableSequence[int],
    stride: Sequence[int],
) -> int:
    """The replica of `model` that is due first, moved back in the ring; -1 where none has a share.

    Of replicas due at the same time the one that has stood there longer goes first.
    """
    back = last[model]
    if back < 0:
        return -1
    replica = following[back]
    due[replica] += stride[replica]
    if due[replica] >= due[back]:
        last[model] = replica
        return replica
    before = replica
    while due[following[before]] <= due[replica]:
        before = following[before]
    if before != replica:
        following[back] = following[replica]
        following[replica] = following[before]
        following[before] = replica
    return replica


def carry_turns(
    shares: Sequence[int],
    base: int,
    model: int,
    begin: int,
    end: int,
    last: MutableSequence[int],
    following: MutableSequence[int],
    due: MutableSequence[int],
    stride: MutableSequence[int],
) -> None:
    """Bring the ring of `model`, replicas `begin` to `end`, to `shares[base + replica]`.

    A replica that keeps a share is as far through its new stride as it was through its old one.
    Those that had none (stride 0) begin spread evenly over theirs, so that they do not all come at
    once.
    """
    tail = last[model]
    now = 0 if tail < 0 else due[following[tail]]
    for replica in range(begin, end):
        if stride[replica] == 0 and shares[base + replica] > 0:
            stride[replica] = _ONE_SAMPLE
            due[replica] = now + (replica - begin) * _ONE_SAMPLE // (end - begin)
            following[replica] = replica
            if tail >= 0:
                following[replica], following[tail] = following[tail], replica
            tail = replica
    last[model] = -1
    replica = -1 if tail < 0 else following[tail]
    while replica >= 0:
        after = -1 if replica == tail else following[replica]
        share = shares[base + replica]
        through = (due[replica] - now) * _ONE_SAMPLE // stride[replica]
        stride[replica] = 0 if share == 0 else _ONE_SAMPLE * SHARE_UNIT // share
        due[replica] = through * stride[replica] // _ONE_SAMPLE
        back = last[model]
        if share > 0 and back < 0:
            following[replica] = last[model] = replica
        elif share > 0:
            before = back
            if due[replica] >= due[back]:
                last[model] = replica
            else:
                while due[following[before]] <= due[replica]:
                    before = following[before]
            following[replica], following[before] = following[before], replica
        replica = after
