"""Decides when a replica that fails is taken out of service, for how long, and how often failed tries are repeated.

The same for engines, endpoints and workers. Outlier ejection with growing pauses is common in load
balancers; a retry budget keeps retries from multiplying the load when many tries fail (Google SRE
book, chapter 21). The simulator's replicas never fail, so it compiles none of this.
"""

MAX_FAILURES_IN_A_ROW = 5
WINDOW_S = 10
"""Seconds over which ended tries, requests and retries are counted."""
MIN_ENDED = 10
FIRST_PAUSE_NS, MAX_PAUSE_NS = 1_000_000_000, 60_000_000_000
RETRY_PERCENT = 20
MIN_RETRIES = 10
SLOW_FACTOR = 3.0
"""A replica that takes this many times as long as the fastest one like it gets less. Load alone makes
less difference.
"""
MIN_SHARE = 0.05


def is_failing(in_a_row: int, ended: int, failed: int, others_in: bool) -> bool:
    """Whether a replica goes out of service after a failure.

    `ended` tries of the last `WINDOW_S` ended, `failed` of them without an answer. A replica that
    answers half of its tries stays unless `others_in`: others of its model are in service.
    """
    if in_a_row >= MAX_FAILURES_IN_A_ROW:
        return True
    return others_in and ended >= MIN_ENDED and 2 * failed >= ended


def pause_ns(last_pause_ns: int, back_for_ns: int) -> int:
    """How long a replica stays out: twice its last pause, if it fails again soon after that.

    It was back in service for `back_for_ns`. After the pause one request tries whether it answers.
    """
    if last_pause_ns == 0 or back_for_ns > MAX_PAUSE_NS:
        return FIRST_PAUSE_NS
    return min(2 * last_pause_ns, MAX_PAUSE_NS)


def may_retry(retries: int, requests: int, least: int) -> bool:
    """Whether a failed try may be repeated, after so many `retries` and `requests` of the last `WINDOW_S`.

    `least` is how many may be repeated however few requests there are: at least what replicas hold
    at once, so that the end of one loses nothing.
    """
    return retries < max(least, MIN_RETRIES, requests * RETRY_PERCENT // 100)


def share_when_slow(share: int, pace: float, best_pace: float) -> int:
    """The load share of a replica whose tries take `pace` times as long as profiled; the best of its model `best_pace`.

    A share that is not 0 stays above 0, so that the replica goes on to be measured.
    """
    if share == 0 or pace <= SLOW_FACTOR * best_pace:
        return share
    return max(1, int(share * max(MIN_SHARE, best_pace / pace)))
