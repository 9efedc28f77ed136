"""Look-ahead of a scaler: the present queue, and the requests until it can act again."""

from bisect import bisect_left
from collections.abc import Sequence
from operator import sub
from typing import NamedTuple

from gearshift.policies.cores.scaling import NO_CHOICE, fewest_cores, fewest_cores_in_turns, fewest_one_core_workers

REMEMBERED_PERIODS = 10
"""How long the tightest request and the arrival rate are remembered: bandwidth that dipped may dip
again."""

NO_LIMIT_NS = 1 << 61
DEFAULT_MARGIN = 0.05
"""Run times are taken to be longer by this share when cores are chosen."""


def requests_ahead(
    now_ns: int, period_ns: int, waiting_ns: Sequence[int], arrivals_ns: Sequence[int], deadlines_ns: Sequence[int]
) -> list[int]:
    """Deadlines, earliest first, of those waiting and expected before the next adaptation.

    The coming period is expected to be like the last: each request that came within it comes once
    more, a period later, with the same time left. `arrivals_ns`, which rise, and `deadlines_ns`
    (m,) are of the remembered requests.
    """
    last = bisect_left(arrivals_ns, now_ns - period_ns)
    return sorted([*waiting_ns, *(deadline_ns + period_ns for deadline_ns in deadlines_ns[last:])])


def least_left_ns(arrivals_ns: Sequence[int], deadlines_ns: Sequence[int], fastest_ns: int) -> int:
    """The least time left on arrival of these requests (m,), ignoring less than `fastest_ns`."""
    left_ns = list(map(sub, deadlines_ns, arrivals_ns))
    least_ns = min(left_ns, default=NO_LIMIT_NS)
    if least_ns >= fastest_ns:
        return least_ns
    return min((ns for ns in left_ns if ns >= fastest_ns), default=NO_LIMIT_NS)


class Sight(NamedTuple):
    """The view of a scaler at `now_ns`, until it can act again a period later.

    `waiting_ns` are the deadlines of waiting requests; `arrivals_ns`, which rise, and
    `deadlines_ns` (m,) are of the requests that came in the last `remembered_ns`, which give the
    rate in Sponge Eq. 3.
    """

    now_ns: int
    period_ns: int
    remembered_ns: int
    waiting_ns: Sequence[int]
    arrivals_ns: Sequence[int]
    deadlines_ns: Sequence[int]


def _to_serve(seen: Sight, ready_ns: int, fastest_ns: int) -> tuple[list[int], int, int, float, int]:
    """Arguments for `policies.scaling`: deadlines, their number, `ready_ns`, a rate, a longest run.

    The longest run of a batch is half the least time that a request had left, since a request that
    just misses a batch waits for its end and then for that of its own. Requests that cannot be in
    time even alone and at once do not count.
    """
    ahead = requests_ahead(seen.now_ns, seen.period_ns, seen.waiting_ns, seen.arrivals_ns, seen.deadlines_ns)
    in_reach = ahead[bisect_left(ahead, ready_ns + fastest_ns) :]
    rate_qps = len(seen.arrivals_ns) * 1e9 / seen.remembered_ns
    longest_ns = least_left_ns(seen.arrivals_ns, seen.deadlines_ns, fastest_ns) // 2
    return in_reach, len(in_reach), ready_ns, rate_qps, longest_ns


def cores_ahead(seen: Sight, ready_ns: int, run_ns: Sequence[int], most_cores: int, largest_batch: int) -> int:
    """The fewest cores with which all are in time until the next adaptation, or the most.

    `ready_ns` is when the running batch is done and a change has taken effect: nothing starts
    under it before. `run_ns` is as in `scaling`, with the margin.
    """
    fastest_ns = run_ns[most_cores * (largest_batch + 1) + 1]
    cores, _ = fewest_cores(*_to_serve(seen, ready_ns, fastest_ns), run_ns, most_cores, largest_batch)
    return most_cores if cores == NO_CHOICE else cores


def workers_ahead(seen: Sight, ready_ns: int, run_ns: Sequence[int], most_workers: int, largest_batch: int) -> int:
    """Like `cores_ahead`, for one-core workers, all free from `ready_ns`; else `NO_CHOICE`."""
    fastest_ns = run_ns[largest_batch + 2]
    return fewest_one_core_workers(*_to_serve(seen, ready_ns, fastest_ns), run_ns, most_workers, largest_batch)


def cores_of_turns(seen: Sequence[Sight], ready_ns: int, run_ns: Sequence[Sequence[Sequence[int]]]) -> int:
    """Like `cores_ahead`, for replicas that take turns on a worker; `run_ns[r][cores][size]`."""
    served = [_to_serve(one, ready_ns, table[-1][1]) for one, table in zip(seen, run_ns, strict=True)]
    deadlines_ns, _, _, rates_qps, longest_ns = zip(*served, strict=True)
    cores = fewest_cores_in_turns(deadlines_ns, ready_ns, rates_qps, min(longest_ns), run_ns)
    return len(run_ns[0]) - 1 if cores == NO_CHOICE else cores
