"""The certainty of a text, made of the log-probabilities of its tokens, one token at a time.

Profiling and serving share it, so that a threshold means the same in both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

BuiltIn = Literal["mean_logprob", "least_logprob", "first_logprob", "margin", "sum_logprob"]
TextCertainty = BuiltIn | Literal["judge"]
LEAST_LOGPROB = -100.0
"""Endpoints write improbable tokens as -9999 or -inf; all below this counts as this."""


@dataclass(slots=True)
class Tally:
    """Sums over tokens: enough for every built-in certainty."""

    count: int = 0
    total: float = 0.0
    least: float = 0.0
    first: float = 0.0
    margin: float = 0.0

    def add(self, logprob: float, margin: float) -> None:
        if self.count == 0:
            self.first = logprob
        self.count += 1
        self.total += logprob
        self.least = min(self.least, logprob)
        self.margin += margin

    def value(self, certainty: BuiltIn) -> float:
        """As unsure as can be where there are no tokens."""
        if self.count == 0:
            return 0.0 if certainty == "margin" else LEAST_LOGPROB
        match certainty:
            case "mean_logprob":
                return self.total / self.count
            case "least_logprob":
                return self.least
            case "first_logprob":
                return self.first
            case "margin":
                return self.margin / self.count
            case "sum_logprob":
                return self.total


@dataclass(slots=True)
class TokenCertainty:
    """An answer's tokens so far; where some are of a tool call's arguments, these alone count."""

    all: Tally = field(default_factory=Tally)
    arguments: Tally = field(default_factory=Tally)

    def add(self, logprob: float, second: float | None = None, *, of_arguments: bool = False) -> None:
        """The next token's log-probability, and the largest one among other tokens, if known.

        The margin is the difference of both probabilities; without a second one it is the first.
        """
        logprob = clipped(logprob)
        margin = math.exp(logprob) - (0.0 if second is None else math.exp(clipped(second)))
        self.all.add(logprob, margin)
        if of_arguments:
            self.arguments.add(logprob, margin)

    @property
    def tally(self) -> Tally:
        return self.arguments if self.arguments.count else self.all

    @property
    def tokens(self) -> int:
        return self.all.count

    def value(self, certainty: BuiltIn) -> float:
        return self.tally.value(certainty)

    def features(self, prompt_tokens: int) -> tuple[float, ...]:
        """The judge's `FEATURES` at this token."""
        tally = self.tally
        return (
            *(tally.value(name) for name in ("mean_logprob", "least_logprob", "first_logprob", "margin")),
            math.log1p(self.tokens),
            math.log1p(prompt_tokens),
        )


FEATURES = ("mean_logprob", "least_logprob", "first_logprob", "margin", "log_output_tokens", "log_prompt_tokens")


def clipped(logprob: float) -> float:
    return 0.0 if logprob > 0 else logprob if logprob >= LEAST_LOGPROB else LEAST_LOGPROB


def recorded_features(
    decide_at: Sequence[int | None],
    logprobs: Sequence[float],
    seconds: Sequence[float | None],
    prompt_tokens: int,
    of_arguments: Sequence[bool] | None = None,
) -> list[tuple[float, ...]]:
    """The features at each of the tokens `decide_at`, None for the end, or at the end of a shorter answer."""
    return [_until(decide, logprobs, seconds, of_arguments).features(prompt_tokens) for decide in decide_at]


def recorded_sums(
    decide_at: Sequence[int | None], logprobs: Sequence[float], of_arguments: Sequence[bool] | None = None
) -> list[float]:
    """As `recorded_features`, the certainty `sum_logprob`."""
    seconds = [None] * len(logprobs)
    return [_until(decide, logprobs, seconds, of_arguments).value("sum_logprob") for decide in decide_at]


def _until(
    token: int | None,
    logprobs: Sequence[float],
    seconds: Sequence[float | None],
    of_arguments: Sequence[bool] | None,
) -> TokenCertainty:
    so_far = TokenCertainty()
    for i, logprob in enumerate(logprobs[:token]):
        so_far.add(logprob, seconds[i], of_arguments=of_arguments is not None and of_arguments[i])
    return so_far


def argument_tokens(tokens: Sequence[str], arguments: Sequence[str]) -> list[bool]:
    """The tokens within the arguments of tool calls, looked up in order in the tokens' text.

    Arguments that do not stand there as they are, such as those that an engine writes anew, count as
    none.
    """
    text, spans, begin = "".join(tokens), [], 0
    for one in arguments:
        place = text.find(one, begin) if one else -1
        if place >= 0:
            spans.append((place, place + len(one)))
            begin = place + len(one)
    marks, at, span = [], 0, 0
    for token in tokens:
        end = at + len(token)
        while span < len(spans) and spans[span][1] <= at:
            span += 1
        marks.append(span < len(spans) and spans[span][0] < end)
        at = end
    return marks
