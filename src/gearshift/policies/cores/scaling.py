"""The cores of a worker, and the size of its batches (Sponge section 3).

`run_ns` is flat: a batch of b on c cores takes `run_ns[c * (largest_batch + 1) + b]`, with a
margin if there is one. Deadlines come in order, earliest first. The choice with the fewest cores
is taken, and of those the one with the smallest batch: the same as `c + penalty * b` with a
penalty below `1 / largest batch`.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import floordiv

from gearshift.clock import NEVER_NS

NO_CHOICE = 0
"""Cores and batch size where no choice meets every deadline."""


def fewest_cores(
    deadlines_ns: Sequence[int],
    waiting: int,
    ready_ns: int,
    rate_qps: float,
    longest_run_ns: int,
    run_ns: Sequence[int],
    most_cores: int,
    largest_batch: int,
) -> tuple[int, int]:
    """Cores and batch size of Sponge Eq. 3, exactly; `NO_CHOICE` for both where there is none.

    The first `waiting` of `deadlines_ns` run in batches of b from `ready_ns` on, when the worker is
    free, and each must be done by its deadline; `rate_qps` must be served, `b >= rate * run`; and
    no batch takes longer than `longest_run_ns`, so that a request that comes after its start can be
    in time. Batch i, from 0, is done after i + 1 runs, and its first request is its most urgent:

        request   0 . . b . . 2b . .    for every full batch
        batch     |  0  |  1  |  2      run <= (deadline[i * b] - ready) / (i + 1)

    and the rest, a smaller batch, comes after the full ones. The least of these bounds is one
    number per b for all cores: `waiting * (1 + 1/2 + ... + 1/largest_batch)` steps, and one for
    every pair of cores and batch size.
    """
    sizes = largest_batch + 1
    cores, batch = most_cores + 1, NO_CHOICE
    left_ns = [due_ns - ready_ns for due_ns in deadlines_ns[:waiting]]
    for b in range(1, largest_batch + 1):
        full, rest = divmod(waiting, b)
        bounds_ns = map(floordiv, left_ns[: full * b : b], range(1, full + 1))
        longest_ns = min(longest_run_ns, min(bounds_ns, default=longest_run_ns))
        for c in range(1, cores):
            ns = run_ns[c * sizes + b]
            in_time = ns <= longest_ns and (rest == 0 or full * ns + run_ns[c * sizes + rest] <= left_ns[full * b])
            if in_time and b * 1e9 >= rate_qps * ns:
                cores, batch = c, b
                break
    return (cores, batch) if batch != NO_CHOICE else (NO_CHOICE, NO_CHOICE)


def fewest_one_core_workers(
    deadlines_ns: Sequence[int],
    waiting: int,
    ready_ns: int,
    rate_qps: float,
    longest_run_ns: int,
    run_ns: Sequence[int],
    most_workers: int,
    largest_batch: int,
) -> int:
    """Like `fewest_cores`, the number of one-core workers; `NO_CHOICE` where there is none.

    All are free from `ready_ns` on, and take the batches in turns: with k of them batch i is done
    after i // k + 1 runs. For each batch size both bounds give a number of workers, and the larger
    one is enough for both:

        rate       k * b >= rate * run
        deadline   (i // k + 1) * run <= deadline[i * b] - ready, so that k > i / (left // run)
    """
    fewest = most_workers + 1
    for b in range(1, largest_batch + 1):
        ns = run_ns[largest_batch + 1 + b]
        if ns > longest_run_ns:
            continue
        workers = max(1, -int(-rate_qps * ns // (b * 1e9)))
        for i, at in enumerate(range(0, waiting, b)):
            runs = (deadlines_ns[at] - ready_ns) // ns
            workers = max(workers, i // runs + 1 if runs > 0 else fewest)
            if workers >= fewest:
                break
        fewest = min(fewest, workers)
    return fewest if fewest <= most_workers else NO_CHOICE


def fewest_misses(
    deadlines_ns: Sequence[int], waiting: int, ready_ns: int, run_ns: Sequence[int], cores: int, largest_batch: int
) -> int:
    """How many of the first `waiting` deadlines are missed, with the best batch size.

    For sharing cores where no choice meets every deadline. A request that cannot be in time in its
    batch is refused then, and delays no other.
    """
    sizes = largest_batch + 1
    fewest = waiting
    longest_ns = deadlines_ns[waiting - 1] - ready_ns if waiting else 0
    for b in range(largest_batch, 0, -1):  # large ones first: with much to do they miss the fewest
        ns = run_ns[cores * sizes + b]
        if waiting - b * (longest_ns // ns) >= fewest:  # even if all batches are full and in time
            continue
        done_ns, at, misses = ready_ns + ns, 0, 0
        while at < waiting and misses < fewest:
            first = bisect_left(deadlines_ns, done_ns, at, waiting)
            misses += first - at
            at, done_ns = first + b, done_ns + ns
        fewest = misses if misses < fewest else fewest
    return fewest


def misses_by_cores(everyone: int, most_cores: int, missed: Callable[[int], int]) -> list[int]:
    """Misses by number of cores, 0 to `most_cores`: `everyone`, then `missed` until it is 0."""
    misses = [everyone]
    while len(misses) <= most_cores:
        misses.append(missed(len(misses)) if misses[-1] else 0)
    return misses


def share_cores(misses: Sequence[Sequence[int]], cores: int, least: Sequence[int]) -> list[int]:
    """Cores for each replica, at least `least` and `cores` in all, with the fewest misses.

    Of equals, the fewest cores. `misses[replica][c]` are the replica's with c cores, from 0 to as
    many as it could use; entry 0 is ignored. Exact: the best of the first r replicas with k cores
    in all is the best over the last one's share of what the others do best with the rest, and
    misses and cores add up. `cores` must be at least the sum of `least`, and each of these at
    least one.
    """
    best: list[tuple[int, int, list[int]] | None] = [(0, 0, [])] + [None] * cores
    for row, fewest in zip(misses, least, strict=True):
        longer: list[tuple[int, int, list[int]] | None] = [None] * (cores + 1)
        for held, before in enumerate(best):
            if before is None:
                continue
            for c in range(fewest, min(len(row) - 1, cores - held) + 1):
                found = before[0] + row[c], before[1] + c, [*before[2], c]
                there = longer[held + c]
                if there is None or found < there:
                    longer[held + c] = found
        best = longer
    shares = min(share for share in best if share is not None)
    return shares[2]


def printed_algorithm_1(
    waiting: int,
    slo_ns: int,
    communication_ns: int,
    run_ns: Sequence[int],
    most_cores: int,
    largest_batch: int,
) -> tuple[int, int]:
    """Cores and batch size by Sponge's Algorithm 1 as printed; `NO_CHOICE` for both if it has none.

    Every request is charged the largest communication latency of all, `communication_ns`, so only
    the number of `waiting` requests counts and not their order; the throughput constraint of Eq. 3
    is not checked; a batch that is done at its deadline is late.
    """
    sizes = largest_batch + 1
    for c in range(1, most_cores + 1):
        for b in range(1, sizes):
            ns = run_ns[c * sizes + b]
            better, queued_ns = True, 0
            for _ in range(0, waiting, b):
                if ns + communication_ns + queued_ns >= slo_ns:
                    better = False
                    break
                queued_ns += ns
            if better:
                return c, b
    return NO_CHOICE, NO_CHOICE


# A worker that several replicas share, one batch at a time -----------------------------------------------------------


def misses_in_turns(
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


def fewest_cores_in_turns(
    deadlines_ns: Sequence[Sequence[int]],
    ready_ns: int,
    rates_qps: Sequence[float],
    longest_run_ns: int,
    run_ns: Sequence[Sequence[Sequence[int]]],
) -> int:
    """The fewest cores on which all replicas of a worker keep all deadlines, else `NO_CHOICE`.

    `run_ns[r][cores][size]`. Like `fewest_cores`, for several queues that take turns: no
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
        if busy <= 1e9 and misses_in_turns(deadlines_ns, ready_ns, times, largest, 1) == 0:
            return cores
    return NO_CHOICE


def cores_in_gear(cores: Sequence[int], gear: int, replicas: int, replica: int) -> int:
    """The cores of a replica in a gear, from the plan's `cores` (gears x replicas)."""
    return cores[gear * replicas + replica]


def change_holds_ns(now_ns: int, in_force: int, wanted: int, effect_ns: int) -> int:
    """When batches start on `wanted` cores.

    On fewer at once, as others may get the rest; on more when they are available, `effect_ns`
    later.
    """
    return now_ns if wanted <= in_force else now_ns + effect_ns
