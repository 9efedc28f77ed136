"""Whether models answer as recorded: a model that was replaced by another of the same name shows by its answers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.policies.watch.drift import episode
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, AnswerRecords

SPAN = 64
"""Answers that are judged together; six spans in a row make an episode (`policies.watch.drift`)."""
MOST_SIGMA = 3.0
"""Standard errors between a span's mean and the recorded one."""
LEAST_EFFECT = 0.2
"""Recorded standard deviations between them, as enough answers show every difference."""
LEFT = 24 * SPAN
"""Values of a model's other quantities that end an episode of one that had none meanwhile."""


class Quantity(NamedTuple):
    """A number of each answer; `at` a token (None: the end) for certainties and shares, `threshold` for shares."""

    model: int
    kind: Literal["certainty", "share kept", "answer tokens"]
    at: int | None = None
    threshold: float = 0.0

    def __str__(self) -> str:
        where = "the end" if self.at is None else f"token {self.at}"
        match self.kind:
            case "certainty":
                return f"certainty at {where}"
            case "share kept":
                return f"share kept at {where} above {self.threshold:.6g}"
            case _:
                return self.kind

    def recorded(self, answers: AnswerRecords) -> NDArray[np.float64]:
        """That of each recorded answer (prompts,)."""
        if self.kind == "answer tokens":
            return np.asarray(answers.output_tokens[self.model], dtype=np.float64)
        certainty: NDArray[np.float64] = answers.certainty[self.model, :, DECIDE_AT_TOKENS.index(self.at)]
        return certainty if self.kind == "certainty" else (certainty >= self.threshold).astype(np.float64)


@dataclass(slots=True)
class _Values:
    """The latest values of a quantity, with the mean, variance and count of the recorded ones.

    They are taken as from `least` to `most` at most. `latest_at` counts the model's values until the latest of these.
    """

    mean: float
    variance: float
    recorded: int
    least: float
    most: float
    latest_at: int = 0
    drifting: bool = False
    against: int = 0
    latest: float = math.nan
    _values: list[float] = field(default_factory=list)

    def add(self, value: float) -> bool:
        """Whether a span ends."""
        self._values.append(min(self.most, max(self.least, value)))
        if len(self._values) < SPAN:
            return False
        self.latest = sum(self._values) / SPAN
        off = differs(self._values, self.mean, self.variance, self.recorded)
        self._values.clear()
        self.drifting, self.against = episode(self.drifting, self.against, off)
        return True


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

    Answers whose length a client or a certain stage may have bounded do not count for the length.
    """

    def __init__(self, answers: AnswerRecords) -> None:
        self._answers = answers
        self._values: dict[Quantity, _Values] = {}
        self._count = [0] * len(answers.models)
        """Values of each model."""
        self._longest: list[int] = answers.output_tokens.max(1).tolist()
        self._changes: list[Change] = []

    def decided(self, model: int, at: int | None, certainty: float, threshold: float) -> None:
        """The certainty at one of `DECIDE_AT_TOKENS`, by which a stage decided; -inf where there was none."""
        self._add(Quantity(model, "certainty", at), certainty)
        self._add(Quantity(model, "share kept", at, threshold), float(certainty >= threshold))

    def ended(self, model: int, output_tokens: int, most_tokens: int) -> None:
        """The whole answer had so many tokens, and might have had `most_tokens`; recorded ones were bounded too."""
        if most_tokens >= self._longest[model]:
            self._add(Quantity(model, "answer tokens"), float(output_tokens))

    def changes(self) -> Iterator[Change]:
        """Those since the last call."""
        found, self._changes = self._changes, []
        yield from found

    def drifts(self, model: int) -> bool:
        return any(one.drifting for what, one in self._values.items() if what.model == model)

    def compares_as(self, other: "AnswerDrift") -> bool:
        """Whether the other one compares the same models with the same recorded answers."""
        mine, its = self._answers, other._answers
        return (
            mine.models == its.models
            and np.array_equal(mine.certainty, its.certainty)
            and np.array_equal(mine.output_tokens, its.output_tokens)
        )

    def _add(self, what: Quantity, value: float) -> None:
        one = self._values.get(what)
        if one is None:
            one = self._values[what] = _recorded(what, self._answers)
        self._count[what.model] = one.latest_at = self._count[what.model] + 1
        was_drifting = one.drifting
        if one.add(value):
            self._tell(what, one, was_drifting)
            self._end_left(what.model)

    def _end_left(self, model: int) -> None:
        """End the episodes of what no stage decides by any more, as gears with its token or threshold were left."""
        for what, one in self._values.items():
            if what.model == model and one.drifting and self._count[model] - one.latest_at >= LEFT:
                one.drifting, one.against = False, 0
                self._tell(what, one, True)

    def _tell(self, what: Quantity, one: _Values, was_drifting: bool) -> None:
        if one.drifting != was_drifting:
            self._changes.append(Change(what.model, str(what), one.drifting, one.latest, one.mean))


def _recorded(what: Quantity, answers: AnswerRecords) -> _Values:
    values = what.recorded(answers)
    least, most = float(values.min()), float(values.max())
    if what.kind == "answer tokens":
        least = 0.0
    elif what.kind == "certainty":
        least, most = least - (most - least), most + (most - least)
    else:
        least, most = 0.0, 1.0
    return _Values(float(values.mean()), float(values.var(ddof=1)), len(values), least, most)
