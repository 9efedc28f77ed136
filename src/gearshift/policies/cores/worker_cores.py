"""The cores of a worker that several replicas share, one batch at a time."""

from collections.abc import Sequence

from gearshift.clock import NEVER_NS
from gearshift.policies.cores.scaling import NO_CHOICE


def worker_misses(
    deadlines_ns: Sequence[Sequence[int]],
    ready_ns: int,
    run_ns: Sequence[Sequence[int]],
    largest: Sequence[int],
    enough: int,
) -> int:
    """Count waiting requests that miss their deadline when served as by the router; up to `enough`.

    Service begins at `ready_ns`. `deadlines_ns[r]` come earliest first, batches of replica r take
    `run_ns[r][size]` and have up to `largest[r]` samples. The next replica is the one with the
    most urgent head, with as large a batch as that allows; a request that cannot be in time is
    refused.
    """
    taken = [0] * len(deadlines_ns)
    at_ns, misses = ready_ns, 0
    while misses < enough:
        chosen, tightest_ns = -1, NEVER_NS
        for r, due_ns in enumerate(deadlines_ns):
            if taken[r] < len(due_ns) and (chosen < 0 or due_ns[taken[r]] < tightest_ns):
                chosen, tightest_ns = r, due_ns[taken[r]]
        if chosen < 0:
            break
        times = run_ns[chosen]
        if at_ns + times[1] > tightest_ns:
            misses += 1
            taken[chosen] += 1
            continue
        waiting = len(deadlines_ns[chosen]) - taken[chosen]
        size = waiting if waiting < largest[chosen] else largest[chosen]
        while at_ns + times[size] > tightest_ns:
            size -= 1
        at_ns += times[size]
        taken[chosen] += size
    return misses


def fewest_worker_cores(
    deadlines_ns: Sequence[Sequence[int]],
    ready_ns: int,
    rates_qps: Sequence[float],
    longest_run_ns: int,
    run_ns: Sequence[Sequence[Sequence[int]]],
) -> int:
    """The fewest cores on which all replicas of a worker keep all deadlines, else `NO_CHOICE`.

    `run_ns[r][cores][size]`. Like `scaling.fewest_cores`, for several queues that take turns: no
    batch is longer than `longest_run_ns`, and with the largest such batches the replicas'
    `rates_qps` keep the worker busy for at most all of its time. Not exact: batches are as large
    as the router would make them, even where smaller ones would do better.
    """
    for cores in range(1, len(run_ns[0])):
        times = [table[cores] for table in run_ns]
        largest = [max((b for b in range(1, len(row)) if row[b] <= longest_run_ns), default=0) for row in times]
        if 0 in largest:
            continue
        busy = sum(rate * row[b] / b for rate, row, b in zip(rates_qps, times, largest, strict=True))
        if busy <= 1e9 and worker_misses(deadlines_ns, ready_ns, times, largest, 1) == 0:
            return cores
    return NO_CHOICE
