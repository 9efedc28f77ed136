"""Whether answers are of other classes than before, and since when.

Learned caches are set for a mix of classes (`caches.class_mix`); the process that adapts them asks when it is another
one.  No simulation knows of classes.
"""

import math
from collections.abc import Sequence

LATEST = (5, 6, 7, 8, 10, 12, 15, 20, 28, 40, 56, 80, 113, 160)
"""How many of the latest answers may be of another mix."""
ODDS = 1000.0
"""At which another mix is believed."""


def of_another_mix(labels: Sequence[int], before: Sequence[float], anew: Sequence[float]) -> int:
    """How many of the latest of `labels` are of another mix than those before them; 0 where none are.

    `before` (classes,) says how often each class had come when the first of `labels` came, in answers or parts of one,
    and `anew` (classes,) the same of a mix of which no answer is known yet.  Two hypotheses are compared by how likely
    each makes the latest answers, a class being as likely as it has been frequent (a Dirichlet prior): that all goes
    on, or that a mix has begun with them.
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
    """Of `labels`, in their order, where each class had been so `frequent` before."""
    seen, known, likely = dict[int, int](), sum(frequent), 0.0
    for i, label in enumerate(labels):
        so_far = seen.get(label, 0)
        likely += math.log((frequent[label] + so_far) / (known + i))
        seen[label] = so_far + 1
    return likely
