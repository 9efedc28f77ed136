"""Queues of the kernel, without a bound: lists and heaps in arrays indexed by sample.

Each replica's queue is a doubly linked list in order of entry,

    first[r] -> ... -> last[r]        next[s], previous[s]; NONE at the ends

and, only when the workload has deadlines or priorities, also a pairing heap in order of urgency,

    root[r] -> child[s] -> sibling -> sibling ...        left[s]: the previous sibling, or the parent
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.policies import order
from gearshift.request import NO_DEADLINE_NS
from gearshift.support.compiled import inlined
from gearshift.workload import Workload

NONE = -1

queue_key = inlined(order.queue_key)
is_starving = inlined(order.is_starving)


class Queues(NamedTuple):
    """All queues. `by_urgency` is 1 when the heaps are kept; arrays are (n,) or (replicas,)."""

    by_urgency: Any
    length: Any
    first: Any
    last: Any
    next: Any
    previous: Any
    entered_ns: Any
    priority: Any
    deadline_ns: Any
    root: Any
    child: Any
    sibling: Any
    left: Any


def make_queues(workload: Workload, items: int, replicas: int, *, by_urgency: bool, by_arrival: bool) -> Queues:
    """Empty queues for samples and as many `items`; with `by_arrival` deadlines do not order them."""
    samples = len(workload) + items
    in_heaps = samples if by_urgency else 0
    priority, deadline_ns = workload.priority, None if by_arrival else workload.deadline_ns
    return Queues(
        by_urgency=by_urgency,
        length=np.zeros(replicas, dtype=np.int64),
        first=np.full(replicas, NONE, dtype=np.int32),
        last=np.full(replicas, NONE, dtype=np.int32),
        next=np.full(samples, NONE, dtype=np.int32),
        previous=np.full(samples, NONE, dtype=np.int32),
        entered_ns=np.zeros(samples, dtype=np.int64),
        priority=np.zeros(in_heaps, dtype=np.int64) if priority is None else longer(priority, items),
        deadline_ns=np.full(in_heaps, NO_DEADLINE_NS) if deadline_ns is None else longer(deadline_ns, items),
        root=np.full(replicas, NONE, dtype=np.int32),
        child=np.full(in_heaps, NONE, dtype=np.int32),
        sibling=np.full(in_heaps, NONE, dtype=np.int32),
        left=np.full(in_heaps, NONE, dtype=np.int32),
    )


def longer(of_samples: NDArray[Any], items: int) -> NDArray[Any]:
    """With room for `items` more."""
    return np.concatenate([of_samples, np.zeros(items, of_samples.dtype)]) if items else of_samples


@inlined
def add(q: Queues, replica: int, sample: int, now_ns: int) -> None:
    """Queue `sample` as entered now; samples that enter at one instant are listed by number."""
    q.entered_ns[sample] = now_ns
    before = q.last[replica]
    while before != NONE and q.entered_ns[before] == now_ns and before > sample:
        before = q.previous[before]
    after = q.first[replica] if before == NONE else q.next[before]
    q.previous[sample] = before
    q.next[sample] = after
    if before == NONE:
        q.first[replica] = sample
    else:
        q.next[before] = sample
    if after == NONE:
        q.last[replica] = sample
    else:
        q.previous[after] = sample
    q.length[replica] += 1
    if q.by_urgency:
        q.child[sample] = NONE
        q.sibling[sample] = NONE
        q.left[sample] = NONE
        root = q.root[replica]
        q.root[replica] = sample if root == NONE else _meld(q, root, sample)


@inlined
def head(q: Queues, replica: int) -> Any:
    return q.root[replica] if q.by_urgency else q.first[replica]


@inlined
def take(q: Queues, replica: int, count: int, now_ns: int, starvation_ns: int) -> Any:
    """Remove and chain `count` samples: starving ones by age, then the most urgent."""
    first = q.first[replica]
    q.length[replica] -= count
    if q.by_urgency:
        return _take_by_urgency(q, replica, count, now_ns, starvation_ns)
    if q.length[replica] == 0:
        q.first[replica] = NONE
        q.last[replica] = NONE
        return first
    last, next_of = first, q.next
    for _ in range(count - 1):
        last = next_of[last]
    rest = next_of[last]
    next_of[last] = NONE
    q.first[replica] = rest
    q.previous[rest] = NONE
    return first


def _take_by_urgency_plain(q: Queues, replica: int, count: int, now_ns: int, starvation_ns: int) -> int:
    chain_first = NONE
    chain_last = NONE
    for _ in range(count):
        sample = next_out(q, replica, now_ns, starvation_ns)
        unlink(q.first, q.last, q.next, q.previous, replica, sample)
        _delete(q, replica, sample)
        if chain_last == NONE:
            chain_first = sample
        else:
            q.next[chain_last] = sample
        chain_last = sample
        q.next[sample] = NONE
    return chain_first


@inlined
def remove(q: Queues, replica: int, sample: int) -> None:
    q.length[replica] -= 1
    unlink(q.first, q.last, q.next, q.previous, replica, sample)
    if q.by_urgency:
        _delete(q, replica, sample)


@inlined
def next_out(q: Queues, replica: int, now_ns: int, starvation_ns: int) -> Any:
    """The next sample of a queue by urgency: the oldest if it starves, else the head."""
    oldest = q.first[replica]
    return oldest if is_starving(q.entered_ns[oldest], now_ns, starvation_ns) else q.root[replica]


@inlined
def unlink(first: Any, last: Any, next_of: Any, previous_of: Any, at: int, sample: int) -> None:
    """Take a sample out of the chain that begins at `first[at]` and ends at `last[at]`."""
    before, after = previous_of[sample], next_of[sample]
    if before == NONE:
        first[at] = after
    else:
        next_of[before] = after
    if after == NONE:
        last[at] = before
    else:
        previous_of[after] = before


@inlined
def _goes_before(q: Queues, a: int, b: int) -> bool:
    key_a = queue_key(q.priority[a], q.deadline_ns[a], q.entered_ns[a], a)
    return key_a < queue_key(q.priority[b], q.deadline_ns[b], q.entered_ns[b], b)


@inlined
def _meld(q: Queues, a: int, b: int) -> int:
    if _goes_before(q, b, a):
        a, b = b, a
    eldest = q.child[a]
    q.sibling[b] = eldest
    if eldest != NONE:
        q.left[eldest] = b
    q.left[b] = a
    q.child[a] = b
    return a


@inlined
def _meld_siblings(q: Queues, eldest: int) -> int:
    """Merge a list of siblings into one heap: pairs from the left, then these from the right."""
    pairs = NONE
    while eldest != NONE:
        a = eldest
        b = q.sibling[a]
        eldest = NONE if b == NONE else q.sibling[b]
        q.sibling[a] = NONE
        if b != NONE:
            q.sibling[b] = NONE
            a = _meld(q, a, b)
        q.sibling[a] = pairs
        pairs = a
    whole = NONE
    while pairs != NONE:
        rest = q.sibling[pairs]
        q.sibling[pairs] = NONE
        whole = pairs if whole == NONE else _meld(q, whole, pairs)
        pairs = rest
    if whole != NONE:
        q.left[whole] = NONE
    return whole


@inlined
def _delete(q: Queues, replica: int, sample: int) -> None:
    below = _meld_siblings(q, q.child[sample])
    q.child[sample] = NONE
    if q.root[replica] == sample:
        q.root[replica] = below
        return
    left, right = q.left[sample], q.sibling[sample]
    if q.child[left] == sample:
        q.child[left] = right
    else:
        q.sibling[left] = right
    if right != NONE:
        q.left[right] = left
    q.sibling[sample] = NONE
    if below != NONE:
        q.root[replica] = _meld(q, q.root[replica], below)


_take_by_urgency = inlined(_take_by_urgency_plain)
