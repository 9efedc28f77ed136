"""Decides whether answers have other classes than before, and since when.

Learned caches are set for a mix of classes (`caches.class_mix`); the process that adapts them asks
when the mix changes. No simulation has classes.
"""

import math
from collections.abc import Sequence

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
