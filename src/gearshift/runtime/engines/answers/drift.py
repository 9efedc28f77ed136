"""Whether models answer as recorded: a model that was replaced by another of the same name shows by its answers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gearshift.policies.watch.drift import episode
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, AnswerRecords

Values = NDArray[np.float64] | NDArray[np.int64]

SPAN = 64
"""Answers that are judged together; six spans in a row make an episode (`policies.watch.drift`)."""
MOST_SIGMA = 3.0
"""Standard errors between a span's mean and the recorded one."""
LEAST_EFFECT = 0.2
"""Recorded standard deviations between them, as enough answers show every difference."""


@dataclass(slots=True)
class _Quantity:
    """One number of each answer, with the mean, variance and count of the recorded ones."""

    mean: float
    variance: float
    recorded: int
    drifting: bool = False
    against: int = 0
    latest: float = math.nan
    _values: list[float] = field(default_factory=list)

    def add(self, value: float) -> bool:
        """Whether an episode begins or ends."""
        self._values.append(value)
        if len(self._values) < SPAN:
            return False
        before = self.drifting
        self.latest = sum(self._values) / SPAN
        off = differs(self._values, self.mean, self.variance, self.recorded)
        self._values.clear()
        self.drifting, self.against = episode(before, self.against, off)
        return self.drifting != before


def differs(values: list[float], mean: float, variance: float, recorded: int) -> bool:
    """Whether the mean of values is another than that of the recorded ones (Welch's test), and by much."""
    count = len(values)
    served = sum(values) / count
    spread = sum((value - served) ** 2 for value in values) / max(1, count - 1)
    error = math.sqrt(spread / count + variance / max(1, recorded))
    distance = abs(served - mean)
    rounding = 1e-9 * max(1.0, abs(mean))
    return distance > MOST_SIGMA * error + rounding and distance > LEAST_EFFECT * math.sqrt(variance)


@dataclass(frozen=True, slots=True)
class Change:
    """An episode of a model has begun or ended: `what` of its answers is `served` on average."""

    model: int
    what: str
    drifting: bool
    served: float
    recorded: float


class AnswerDrift:
    """Judges each model by the requests that came to it first: those that another passed on are no fair sample.

    Answers whose length a client or a certain stage has bounded do not count for the length.
    """

    def __init__(self, answers: AnswerRecords) -> None:
        self._answers = answers
        self._quantities: dict[tuple[int, str], _Quantity] = {}
        self._longest: list[int] = answers.output_tokens.max(1).tolist()
        self._changes: list[Change] = []

    def decided(self, model: int, at: int | None, certainty: float, threshold: float) -> None:
        """The certainty at one of `DECIDE_AT_TOKENS`, by which a stage decided; -inf where there was none."""
        recorded = self._answers.certainty[model, :, DECIDE_AT_TOKENS.index(at)]
        where = "the end" if at is None else f"token {at}"
        least, most = float(recorded.min()), float(recorded.max())
        span = most - least
        self._add(model, f"certainty at {where}", min(most + span, max(least - span, certainty)), recorded)
        kept = (recorded >= threshold).astype(float)
        self._add(model, f"share kept at {where} above {threshold:.6g}", float(certainty >= threshold), kept)

    def ended(self, model: int, output_tokens: int, most_tokens: int) -> None:
        """The whole answer had so many tokens, and might have had `most_tokens`."""
        if most_tokens >= self._longest[model]:
            self._add(model, "answer tokens", float(output_tokens), self._answers.output_tokens[model])

    def changes(self) -> Iterator[Change]:
        """Those since the last call."""
        found, self._changes = self._changes, []
        yield from found

    def drifts(self, model: int) -> bool:
        return any(one.drifting for (of, _), one in self._quantities.items() if of == model)

    def _add(self, model: int, what: str, value: float, recorded: Values) -> None:
        one = self._quantities.get((model, what))
        if one is None:
            one = self._quantities[model, what] = _of_recorded(recorded)
        if one.add(value):
            self._changes.append(Change(model, what, one.drifting, one.latest, one.mean))


def _of_recorded(values: Values) -> _Quantity:
    return _Quantity(float(values.mean()), float(values.var(ddof=1)), len(values))
