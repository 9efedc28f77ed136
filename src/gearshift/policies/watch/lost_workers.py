"""Decides what happens to samples whose worker ended, and when a worker counts as stuck.

The simulator's workers never end, so it compiles none of this.
"""

RUN_AGAIN = 0
POISONOUS = 1
TOO_LATE = 2

WAIT = 0
DEGRADE = 1
REFUSE = 2
FAIL = 3

HANG_FACTOR = 20


def after_loss(attempt: int, companions: int, now_ns: int, run_by_ns: int) -> int:
    """Whether a sample that was running when its worker ended runs again.

    `attempt` is the lost run's, from 1. A sample that was alone on its worker, and had lost one
    before, is taken to be the reason (`POISONOUS`). In company a sample is only suspected, and
    `half` shrinks the company.
    """
    if companions == 0 and attempt >= 2:
        return POISONOUS
    return RUN_AGAIN if now_ns <= run_by_ns else TOO_LATE


def half(samples: int) -> int:
    """How many of a lost batch run together again; the others run in a batch of their own.

    One poisonous sample in a batch of b therefore ends at most `1 + ceil(log2(b))` workers; in a
    batch of one, two.
    """
    return (samples + 1) // 2


def retry_until_ns(lost_ns: int, longest_retry_ns: int, deadline_ns: int, run_ns: int) -> int:
    """The latest start of another run, by the deadline and the time for retries."""
    in_time_ns = deadline_ns - run_ns
    given_up_ns = lost_ns + longest_retry_ns
    return in_time_ns if in_time_ns < given_up_ns else given_up_ns


def without_replica(has_answer: bool, refuses: bool, now_ns: int, run_by_ns: int) -> int:
    """Decide about a sample whose model has no replica, or whose time to run is over.

    With an earlier stage's answer it does not wait: that answer is given, or the request refused,
    as the operator wants. Without one it waits as long as it may.
    """
    if has_answer:
        return REFUSE if refuses else DEGRADE
    return WAIT if now_ns <= run_by_ns else FAIL


def hangs_after_ns(run_ns: int, shortest_hang_ns: int) -> int:
    """How long a batch with profiled time `run_ns` may take before its worker counts as stuck."""
    limit_ns = HANG_FACTOR * run_ns
    return limit_ns if limit_ns > shortest_hang_ns else shortest_hang_ns
