"""What a scaler solves for: the queue there is, and the requests it will meet until it can act again."""

from collections.abc import Sequence
from itertools import chain

from gearshift.policies.scaling import NO_CHOICE, fewest_cores

REMEMBERED_PERIODS = 10
"""For so long the tightest request and the rate of arrivals are remembered: bandwidth that dipped may dip again."""

DEFAULT_MARGIN = 0.05
"""Run times are taken to be longer by this share when cores are chosen."""


def requests_ahead(
    now_ns: int, period_ns: int, waiting_ns: Sequence[int], arrivals_ns: Sequence[int], deadlines_ns: Sequence[int]
) -> list[int]:
    """Deadlines of those that wait and of those expected before the next adaptation, earliest first.

    The coming period is expected to be like the last: each request that came within it comes once more, a period
    later, with the same time left.  `arrivals_ns` and `deadlines_ns` (m,) are of the remembered requests.
    """
    again = (
        deadline_ns + period_ns
        for arrived_ns, deadline_ns in zip(arrivals_ns, deadlines_ns, strict=True)
        if arrived_ns >= now_ns - period_ns
    )
    return sorted(chain(waiting_ns, again))


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
    in_reach = [deadline_ns for deadline_ns in ahead if deadline_ns >= ready_ns + fastest_ns]
    left_ns = [
        deadline_ns - arrived_ns
        for arrived_ns, deadline_ns in zip(arrivals_ns, deadlines_ns, strict=True)
        if deadline_ns - arrived_ns >= fastest_ns
    ]
    cores, _ = fewest_cores(
        in_reach,
        len(in_reach),
        ready_ns,
        len(arrivals_ns) * 1e9 / remembered_ns,
        min(left_ns, default=1 << 61) // 2,
        run_ns,
        most_cores,
        largest_batch,
    )
    return most_cores if cores == NO_CHOICE else cores
