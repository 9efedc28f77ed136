"""What a scaler solves for: the queue there is, and the requests it will meet until it can act again."""

from bisect import bisect_left
from collections.abc import Sequence
from operator import sub

from gearshift.policies.scaling import NO_CHOICE, fewest_cores, fewest_one_core_workers

REMEMBERED_PERIODS = 10
"""For so long the tightest request and the rate of arrivals are remembered: bandwidth that dipped may dip again."""

NO_LIMIT_NS = 1 << 61
DEFAULT_MARGIN = 0.05
"""Run times are taken to be longer by this share when cores are chosen."""


def requests_ahead(
    now_ns: int, period_ns: int, waiting_ns: Sequence[int], arrivals_ns: Sequence[int], deadlines_ns: Sequence[int]
) -> list[int]:
    """Deadlines of those that wait and of those expected before the next adaptation, earliest first.

    The coming period is expected to be like the last: each request that came within it comes once more, a period
    later, with the same time left.  `arrivals_ns`, which rise, and `deadlines_ns` (m,) are of the remembered requests.
    """
    last = bisect_left(arrivals_ns, now_ns - period_ns)
    return sorted([*waiting_ns, *(deadline_ns + period_ns for deadline_ns in deadlines_ns[last:])])


def least_left_ns(arrivals_ns: Sequence[int], deadlines_ns: Sequence[int], fastest_ns: int) -> int:
    """The least time that one of these requests (m,) had left when it came, of those with at least `fastest_ns`."""
    left_ns = list(map(sub, deadlines_ns, arrivals_ns))
    least_ns = min(left_ns, default=NO_LIMIT_NS)
    if least_ns >= fastest_ns:
        return least_ns
    return min((ns for ns in left_ns if ns >= fastest_ns), default=NO_LIMIT_NS)


def _in_reach(deadlines_ns: list[int], earliest_ns: int) -> list[int]:
    """Those of the deadlines, earliest first, that somebody could keep who is done at `earliest_ns`."""
    return deadlines_ns[bisect_left(deadlines_ns, earliest_ns) :]


def cores_ahead(
    now_ns: int,
    ready_ns: int,
    period_ns: int,
    remembered_ns: int,
    waiting_ns: Sequence[int],
    arrivals_ns: Sequence[int],
    deadlines_ns: Sequence[int],
    run_ns: Sequence[int],
    most_cores: int,
    largest_batch: int,
) -> int:
    """The fewest cores with which everyone in sight makes it until the next adaptation; the most, where none do.

    `ready_ns` is when the running batch is done and a change has taken effect: nothing starts under it before.
    `arrivals_ns` and `deadlines_ns` (m,) are of the requests that came in the last `remembered_ns`, of which Sponge
    Eq. 3 gets their rate, and half the least time that one had left as the longest batch, since who just misses a
    batch waits for its end and then for that of its own.  Who cannot make it even alone and at once does not count:
    no cores help.  `run_ns` is as in `scaling`, margin included.
    """
    fastest_ns = run_ns[most_cores * (largest_batch + 1) + 1]
    ahead = requests_ahead(now_ns, period_ns, waiting_ns, arrivals_ns, deadlines_ns)
    in_reach = _in_reach(ahead, ready_ns + fastest_ns)
    cores, _ = fewest_cores(
        in_reach,
        len(in_reach),
        ready_ns,
        len(arrivals_ns) * 1e9 / remembered_ns,
        least_left_ns(arrivals_ns, deadlines_ns, fastest_ns) // 2,
        run_ns,
        most_cores,
        largest_batch,
    )
    return most_cores if cores == NO_CHOICE else cores


def workers_ahead(
    now_ns: int,
    ready_ns: int,
    period_ns: int,
    remembered_ns: int,
    waiting_ns: Sequence[int],
    arrivals_ns: Sequence[int],
    deadlines_ns: Sequence[int],
    run_ns: Sequence[int],
    most_workers: int,
    largest_batch: int,
) -> int:
    """As `cores_ahead`, how many workers of one core each; `NO_CHOICE` where none suffice.

    All of them are free from `ready_ns` on.
    """
    fastest_ns = run_ns[largest_batch + 2]
    ahead = requests_ahead(now_ns, period_ns, waiting_ns, arrivals_ns, deadlines_ns)
    in_reach = _in_reach(ahead, ready_ns + fastest_ns)
    return fewest_one_core_workers(
        in_reach,
        len(in_reach),
        ready_ns,
        len(arrivals_ns) * 1e9 / remembered_ns,
        least_left_ns(arrivals_ns, deadlines_ns, fastest_ns) // 2,
        run_ns,
        most_workers,
        largest_batch,
    )
