"""Answers of an emulated engine: as long and as sure as recorded ones, in words that are made up."""

import math
import re
from collections.abc import Iterator
from zlib import crc32

from gearshift.errors import require
from gearshift.profiles.engines.certainty import LEAST_LOGPROB
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, LanguageProfile

NUMBERED = re.compile(rb"record (\d+)")


class RecordedAnswers:
    """Recorded answers of one model of a profile.

    A request with "record 7" in its prompt gets the answer recorded for the seventh prompt (from
    0); others get one by a hash of theirs.
    """

    def __init__(self, profile: LanguageProfile, model: str) -> None:
        require(model in profile.models, f"the profile has models {list(profile.models)}, and no {model!r}")
        answers, row = profile.answers, profile.models.index(model)
        self.model, self._kind = model, profile.certainty
        self._certainty: list[list[float]] = answers.certainty[row].tolist()
        self._prompt_tokens: list[int] = answers.prompt_tokens[row].tolist()
        self._output_tokens: list[int] = answers.output_tokens[row].tolist()

    def record(self, prompt: bytes) -> int:
        found = NUMBERED.search(prompt)
        return (int(found[1]) if found else crc32(prompt)) % len(self._output_tokens)

    def tokens(self, record: int) -> tuple[int, int]:
        """Tokens of the prompt and of the answer."""
        return self._prompt_tokens[record], self._output_tokens[record]

    def words(self, record: int) -> Iterator[str]:
        """The text of each token, without end; the first tells model and record."""
        yield f"{self.model}:{record}"
        number = 1
        while True:
            yield f" {number}"
            number += 1

    def pairs(self, record: int, count: int | None = None) -> list[tuple[float, float]]:
        """For each token its log-probability and the likeliest other's, of which the recorded certainty is made.

        That of a judge cannot be made so, and is not. `count` is for an answer that is made longer or
        shorter than recorded, and as sure.
        """
        count = self._output_tokens[record] if count is None else count
        ends = [count if at is None else min(at, count) for at in DECIDE_AT_TOKENS]
        values: list[float] = []
        for end, certainty in zip(ends, self._certainty[record], strict=True):
            more, value = end - len(values), certainty
            if more > 0 and self._kind in ("mean_logprob", "margin"):
                value = (certainty * end - sum(values)) / more
            elif more > 0 and self._kind == "sum_logprob":
                value = (certainty - sum(values)) / more
            values += [value] * more
        if self._kind != "margin":
            return [(value, LEAST_LOGPROB) for value in values]
        return [(_log((1 + margin) / 2), _log((1 - margin) / 2)) for margin in values]


def _log(share: float) -> float:
    return max(LEAST_LOGPROB, math.log(share)) if share > 0 else LEAST_LOGPROB
