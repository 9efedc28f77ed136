"""What a deadline decides: how large a batch may be, who is dropped when, and when a cascade answers with what it has.

Run times are those of the performance model, per replica and batch size.  A deadline of a client decides; one that
only the operator's objective gave (`Request.order_deadline_ns`) does not.
"""

from collections.abc import Sequence

from gearshift.decisions import Ending
from gearshift.request import NO_DEADLINE_NS

INFEASIBLE = int(Ending.INFEASIBLE)
EXPIRED_IN_QUEUE = int(Ending.EXPIRED_IN_QUEUE)

RUN = 0
HOLDERS_GIVE_WAY = 1
NEXT_GIVES_WAY = 2

_SPARE_NS = 1_000_000
_WORTH_PERCENT = 95
"""A batch that uses its devices as well as this, against a whole one, is never given up for it."""


MARGIN_PERCENT, LEAST_OVERSHOOTS = 95, 20
"""How many of the recent answers a margin would have brought in time, and how few say nothing yet."""


def margin_ns(overshoots_ns: Sequence[int], way_ns: int) -> int:
    """Nanoseconds before their deadlines at which batches should end.

    `overshoots_ns`: delays of recent answers against the profiled run times, in any order; `way_ns`: time of a request
    and its answer outside the router.  In simulation the margin is 0: simulated batches end when they should, and
    simulated deadlines hold at the router.
    """
    count = len(overshoots_ns)
    if count < LEAST_OVERSHOOTS:
        return way_ns
    return max(0, way_ns + sorted(overshoots_ns)[(MARGIN_PERCENT * count + 99) // 100 - 1])


def aimed_ns(deadline_ns: int, margin_ns: int) -> int:
    """By when a batch is to end for an answer by the deadline."""
    return deadline_ns if deadline_ns == NO_DEADLINE_NS else deadline_ns - margin_ns


def in_time(deadline_ns: int, now_ns: int, run_ns: int) -> bool:
    """Whether what starts now and takes `run_ns` ends by the deadline."""
    return now_ns + run_ns <= deadline_ns


def gives_up_ns(deadline_ns: int, run_ns: int) -> int:
    """The first instant at which a batch of one sample, which takes `run_ns`, would end too late."""
    return deadline_ns - run_ns + 1


def why_dropped(deadline_ns: int, now_ns: int) -> int:
    """`EXPIRED_IN_QUEUE` after the deadline; before it `INFEASIBLE`, as the run would end too late."""
    return EXPIRED_IN_QUEUE if now_ns > deadline_ns else INFEASIBLE


def start_by_ns(wait_ends_ns: int, deadline_ns: int, run_ns: int) -> int:
    """When a batch that is not full starts: its longest wait ends, or it ends by the head's deadline.

    It has a millisecond to spare, as a timer that was set for the last instant would come after it.
    """
    latest_ns = deadline_ns - run_ns - _SPARE_NS
    return latest_ns if latest_ns < wait_ends_ns else wait_ends_ns


def goes_first(now_ns: int, others_run_ns: int, waiting: int, most: int, run_ns: int, deadline_ns: int) -> bool:
    """Whether samples without any answer go before a batch of samples that have one, and would run `others_run_ns`.

    So it is where not all of them, `waiting` in batches of up to `most` that take `run_ns` each, would be done by the
    earliest of their deadlines after that batch: what it would better costs them their only answer.
    """
    batches = (waiting + most - 1) // most
    return now_ns + others_run_ns + batches * run_ns > deadline_ns


def when_limited(
    now_ns: int,
    size: int,
    waiting: int,
    whole: int,
    run_ns: int,
    whole_run_ns: int,
    one_run_ns: int,
    behind_run_ns: int,
    tightest_ns: int,
    next_ns: int,
) -> int:
    """What gives way when a batch of `size` may not take the next sample, because a deadline would be missed.

    `tightest_ns` is the earliest deadline in the batch, `next_ns` that of the next sample; `waiting` samples wait
    behind.  Without deadlines the batch would be `whole`.  The runs are those of the batch, the whole one, the next
    sample alone, and the largest batch of those behind.

    `RUN`: the small batch starts, the others wait for it.  That is so whenever they can, or where it uses its devices
    nearly as well as a whole one.  Else it would cost more samples than it serves, as each batch after it would be as
    small: then those go that hold it back (`HOLDERS_GIVE_WAY`), or the next sample (`NEXT_GIVES_WAY`).
    """
    if 100 * size * whole_run_ns >= _WORTH_PERCENT * whole * run_ns or waiting <= size:
        return RUN
    if tightest_ns < now_ns + whole_run_ns:
        return HOLDERS_GIVE_WAY if next_ns < now_ns + run_ns + behind_run_ns else RUN
    return NEXT_GIVES_WAY if next_ns < now_ns + run_ns + one_run_ns else RUN
