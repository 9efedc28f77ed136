"""Decides which answers the strongest model audits, when, and what their disagreement means.

Audits change no answer, and no simulation has them.
"""

import math

ERROR = 1e-3
"""Probability that an interval is ever false, however often it is checked."""
LARGEST_TIME_SHARE = 0.02
"""Share of a replica's time for audits, so that hardly any request finds one running."""
MOST_AUDITED = 1 << 13
"""At this number an estimate restarts or is halved, so that old answers do not hide recent ones."""
LEAST_TO_END = 1 << 10
LEAST_OF_WHOLE = 1 << 11
"""From this many audits of all answers of learned caches on, the estimate itself decides."""

INSIDE = 0
ABOVE = 1
BELOW = -1

_WORD = (1 << 64) - 1


def selected(request_id: int, row: int, seed: int, share: float) -> bool:
    """Whether a row is in the audited `share`: by a hash that does not depend on the answer."""
    mixed = ((request_id << 20) + row + seed * 0x9E3779B97F4A7C15) & _WORD
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        mixed = ((mixed ^ (mixed >> 31)) * factor) & _WORD
    return (mixed ^ (mixed >> 32)) < share * 2.0**64


def has_slack(waiting: int, load: float, planned_qps: float, now_ns: int, rest_until_ns: int) -> bool:
    """An audit may run when nothing waits, load is within the gear's, and the last rest is over."""
    return waiting == 0 and load <= planned_qps and now_ns >= rest_until_ns


def rest_until_ns(now_ns: int, run_ns: int) -> int:
    """The end of the rest in which no other audit starts, after one of `run_ns` that starts now."""
    return now_ns + round(run_ns / LARGEST_TIME_SHARE)


def disagreement_interval(disagreed: int, audited: int) -> tuple[float, float]:
    """An interval for a share, from `disagreed` of `audited` draws, valid at all times.

    It holds every p at which the mixture of all Bernoulli likelihoods with the prior Beta(1/2,
    1/2) is less than 1 / `ERROR` times the likelihood of p. That ratio is a martingale under the
    true p, so it ever reaches 1 / `ERROR` with a probability of at most `ERROR` (Ville 1939;
    Robbins 1970): repeated checks are allowed.
    """
    if audited == 0:
        return 0.0, 1.0
    agreed = audited - disagreed
    mixture = math.lgamma(disagreed + 0.5) + math.lgamma(agreed + 0.5) - math.lgamma(audited + 1) - math.log(math.pi)

    def held(p: float) -> bool:
        likelihood = 0.0
        if disagreed:
            likelihood += disagreed * math.log(p) if p > 0 else -math.inf
        if agreed:
            likelihood += agreed * math.log1p(-p) if p < 1 else -math.inf
        return mixture - likelihood < -math.log(ERROR)

    def end(outside: float) -> float:
        inside = disagreed / audited
        if held(outside):
            return outside
        for _ in range(40):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if held(middle) else (inside, middle)
        return outside

    return end(0.0), end(1.0)


def alarm_after(alarm: int, audited: int, low: float, high: float, planned_low: float, planned_high: float) -> int:
    """Whether the interval is wholly `ABOVE` or `BELOW` the planned one, or may be `INSIDE`.

    An alarm ends only when `LEAST_TO_END` audits do not uphold it: a restarted estimate knows
    nothing yet.
    """
    if low > planned_high:
        return ABOVE
    if high < planned_low:
        return BELOW
    return alarm if audited < LEAST_TO_END else INSIDE


def cache_breaches(hits: tuple[int, int], whole: tuple[int, int], target: float) -> bool:
    """Whether a learned cache must stop answering; each count is (disagreed, audited).

    Both must show less agreement than `target`: its `hits`, and the `whole` of all audited
    answers. The whole is a mean of the hits of each cache and of answers that ran to the end and
    always agree: it falls below the target only where the hits of some cache do. From
    `LEAST_OF_WHOLE` answers on the estimate decides: a choice that spends the whole allowed loss
    is never shown to keep the target, nor to miss it. Fewer must show that they miss it.
    """
    allowed = 1 - target
    if any(disagreed <= allowed * audited for disagreed, audited in (hits, whole)):
        return False
    if whole[1] < LEAST_OF_WHOLE and disagreement_interval(*whole)[0] <= allowed:
        return False
    return disagreement_interval(*hits)[0] > allowed


NEITHER = 0
AUDITED = 1
LEARNT = 2


def drawn(request_id: int, row: int, seed: int, audit_share: float, learn_share: float) -> int:
    """Whether an answer of learned caches is `AUDITED`, `LEARNT` from or `NEITHER`, by hashes."""
    if selected(request_id, row, seed, audit_share):
        return AUDITED
    return LEARNT if selected(request_id, row, seed + 1, learn_share) else NEITHER
