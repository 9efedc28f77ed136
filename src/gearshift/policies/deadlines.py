"""Deadlines: limit batch sizes, drop samples, and answer with an earlier stage's answer.

Run times are those of the performance model, per replica and batch size. Only a client's deadline
decides; the objective's (`Request.answer_by_ns`) does not.
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
"""A batch that uses its devices at least this well, in percent of a whole one, always starts."""


MARGIN_PERCENT, LEAST_OVERSHOOTS = 95, 20
"""Share of recent answers that the margin brings in time, and the fewest answers to estimate it."""


def margin_ns(overshoots_ns: Sequence[int], way_ns: int) -> int:
    """Nanoseconds before their deadlines at which batches should end.

    `overshoots_ns`: delays of recent answers against the profiled run times, in any order;
    `way_ns`: time of a request and its answer outside the router. In simulation the margin is 0:
    simulated batches take their profiled time, and simulated deadlines hold at the router.
    """
    count = len(overshoots_ns)
    if count < LEAST_OVERSHOOTS:
        return way_ns
    return max(0, way_ns + sorted(overshoots_ns)[(MARGIN_PERCENT * count + 99) // 100 - 1])


def aimed_ns(deadline_ns: int, margin_ns: int) -> int:
    """The time by which a batch must end for an answer by the deadline."""
    return deadline_ns if deadline_ns == NO_DEADLINE_NS else deadline_ns - margin_ns


def in_time(deadline_ns: int, now_ns: int, run_ns: int) -> bool:
    """Whether a run of `run_ns` that starts now ends by the deadline."""
    return now_ns + run_ns <= deadline_ns


def gives_up_ns(deadline_ns: int, run_ns: int) -> int:
    """The first instant at which a batch of one sample (`run_ns`) would end too late."""
    return deadline_ns - run_ns + 1


def why_dropped(deadline_ns: int, now_ns: int) -> int:
    """`EXPIRED_IN_QUEUE` after the deadline; before it `INFEASIBLE`: the run would end late."""
    return EXPIRED_IN_QUEUE if now_ns > deadline_ns else INFEASIBLE


def start_by_ns(wait_ends_ns: int, deadline_ns: int, run_ns: int) -> int:
    """A partial batch starts when its longest wait ends, or in time for its head's deadline.

    It has a millisecond to spare, as a timer set for the last instant would fire after it.
    """
    latest_ns = deadline_ns - run_ns - _SPARE_NS
    return latest_ns if latest_ns < wait_ends_ns else wait_ends_ns


def goes_first(now_ns: int, others_run_ns: int, waiting: int, most: int, run_ns: int, deadline_ns: int) -> bool:
    """Whether samples without any answer go before a batch of samples that have one.

    That batch would run `others_run_ns`. The others go first if, after it, not all `waiting` of
    them, in batches of up to `most` that take `run_ns` each, would be done by the earliest of
    their deadlines: a better answer for the batch would cost them their only one.
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
    """Decide what gives way when a deadline forbids a batch of `size` to take the next sample.

    `tightest_ns` is the earliest deadline in the batch, `next_ns` that of the next sample, and
    `waiting` samples are still queued. Without deadlines the batch would be `whole`. The runs are
    those of the batch, the whole one, the next sample alone, and the largest batch of those behind.

    `RUN`: the small batch starts, and the others wait. That is chosen whenever they can wait, or
    where it uses its devices nearly as well as a whole one. Otherwise it would cost more samples
    than it serves, as each batch after it would be as small: then the samples that limit it are
    dropped (`HOLDERS_GIVE_WAY`), or the next sample (`NEXT_GIVES_WAY`).
    """
    if 100 * size * whole_run_ns >= _WORTH_PERCENT * whole * run_ns or waiting <= size:
        return RUN
    if tightest_ns < now_ns + whole_run_ns:
        return HOLDERS_GIVE_WAY if next_ns < now_ns + run_ns + behind_run_ns else RUN
    return NEXT_GIVES_WAY if next_ns < now_ns + run_ns + one_run_ns else RUN
