"""The certainty of an answer, from the log-probabilities of its tokens as they come."""

from array import array
from collections.abc import Callable, Sequence

from gearshift.policies.engines.deciding import DECIDES_AT_END

OfTokens = Callable[[Sequence[float], Sequence[float]], float]
"""From the log-probabilities of the tokens so far, and the likeliest others'; at least one token."""


class TokenCertainty:
    """Keeps the log-probabilities of one answer until its stage has decided."""

    __slots__ = ("_logprobs", "_of_tokens", "_second")

    def __init__(self, of_tokens: OfTokens) -> None:
        self._of_tokens = of_tokens
        self._logprobs, self._second = array("d"), array("d")

    def add(self, logprob: float, second: float) -> None:
        self._logprobs.append(logprob)
        self._second.append(second)

    def at(self, decide_at: int) -> float:
        """Over the first `decide_at` tokens, or all; -inf, so not sure, where none had a log-probability."""
        count = len(self._logprobs) if decide_at == DECIDES_AT_END else min(decide_at, len(self._logprobs))
        if count == 0:
            return float("-inf")
        return self._of_tokens(self._logprobs[:count], self._second[:count])


def mean_logprob(logprobs: Sequence[float], second: Sequence[float]) -> float:
    return sum(logprobs) / len(logprobs)


def sum_logprob(logprobs: Sequence[float], second: Sequence[float]) -> float:
    return sum(logprobs)


def least_logprob(logprobs: Sequence[float], second: Sequence[float]) -> float:
    return min(logprobs)


def first_logprob(logprobs: Sequence[float], second: Sequence[float]) -> float:
    return logprobs[0]


def margin(logprobs: Sequence[float], second: Sequence[float]) -> float:
    """The mean distance from the likeliest other token."""
    return sum(a - b for a, b in zip(logprobs, second, strict=True)) / len(logprobs)


OF_TOKENS: dict[str, OfTokens] = {
    "mean_logprob": mean_logprob,
    "sum_logprob": sum_logprob,
    "least_logprob": least_logprob,
    "first_logprob": first_logprob,
    "margin": margin,
}
