"""Decides whether load, run times or the classes of answers have moved from what was planned.

These look back over minutes and change no answer, so the simulator compiles none of them.
"""

import math
from collections.abc import Sequence

STRONG = 0.2
"""A drift begins when it is certain that more than this share of time is spent elsewhere than
planned."""
OVER = 0.1
"""A drift ends when the measured difference is below this."""
ERROR_OF_CHANCE = 1e-6

WRONG_SHARE = 0.2
LEAST_WRONG_NS = 200_000
"""A fifth of a very short batch is within the noise of a clock and an event loop."""
SPANS_PER_EPISODE = 6


def load_distance(ticks: Sequence[int], planned_shares: Sequence[float]) -> float:
    """The Kolmogorov distance of load, `ticks` (gears,), from planned shares (gears,).

    That is the largest difference, over range starts, between the share of time below it and the
    planned share.
    """
    total = sum(ticks)
    if total == 0:
        return 0.0
    below, planned, farthest = 0, 0.0, 0.0
    for count, share in zip(ticks, planned_shares, strict=True):
        below += count
        planned += share
        farthest = max(farthest, abs(below / total - planned))
    return farthest


def load_drifts(drifting: bool, distance: float, windows: float) -> bool:
    """Whether load has drifted, from a `distance` over `windows` meter windows without overlap.

    A drift begins where the distance exceeds by more than `STRONG` the distance that as many draws
    from the planned distribution exceed with probability `ERROR_OF_CHANCE` (Dvoretzky, Kiefer and
    Wolfowitz 1956, with Massart's constant; halved, as the plan's own shares are a sample as
    well). It ends where the distance is below `OVER`.
    """
    if drifting:
        return distance >= OVER
    if windows <= 0:
        return False
    return distance - math.sqrt(math.log(2 / ERROR_OF_CHANCE) / windows) > STRONG


def run_times_are_wrong(observed_ns: int, predicted_ns: int, batches: int) -> bool:
    """Whether the batches took, in sum, a fifth more or less time than was profiled."""
    wrong_ns = abs(observed_ns - predicted_ns)
    return wrong_ns > WRONG_SHARE * predicted_ns and wrong_ns > LEAST_WRONG_NS * batches


def episode(drifting: bool, against: int, wrong: bool) -> tuple[bool, int]:
    """Whether a profile has drifted after ten more seconds, and how many spans in a row disagree.

    An episode begins, and ends, with the sixth in a row.
    """
    if wrong == drifting:
        return drifting, 0
    if against + 1 == SPANS_PER_EPISODE:
        return wrong, 0
    return drifting, against + 1


LATEST = (5, 6, 7, 8, 10, 12, 15, 20, 28, 40, 56, 80, 113, 160)
"""Numbers of latest answers that are tested for another mix."""
ODDS = 1000.0
"""Odds above which another mix is accepted."""


def of_another_mix(labels: Sequence[int], before: Sequence[float], anew: Sequence[float]) -> int:
    """How many of the latest `labels` are of another mix than those before; 0 for none.

    `before` (classes,) counts each class before the first of `labels`, in answers or parts of one;
    `anew` (classes,) does so for a mix of which no answer is known yet. Two hypotheses are
    compared by the likelihood of the latest answers, with classes as likely as they have been
    frequent (a Dirichlet prior): the mix goes on, or a new one has begun with them.
    """
    labels, frequent = [*labels], [*before]
    most, latest, begin = math.log(ODDS), 0, 0
    for count in reversed(LATEST):
        if count <= len(labels):
            for label in labels[begin : len(labels) - count]:
                frequent[label] += 1
            begin = len(labels) - count
            odds = _log_likelihood(labels[begin:], anew) - _log_likelihood(labels[begin:], frequent)
            if odds > most:
                most, latest = odds, count
    return latest


def _log_likelihood(labels: Sequence[int], frequent: Sequence[float]) -> float:
    """Log likelihood of `labels` in their order, given class counts `frequent` before them."""
    seen, known, likely = dict[int, int](), sum(frequent), 0.0
    for i, label in enumerate(labels):
        so_far = seen.get(label, 0)
        likely += math.log((frequent[label] + so_far) / (known + i))
        seen[label] = so_far + 1
    return likely
