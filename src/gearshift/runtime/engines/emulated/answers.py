"""Answers of an emulated engine: as long and as sure as recorded ones, in words that are made up."""

import re
from collections.abc import Iterator
from zlib import crc32

from gearshift.errors import require
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, LanguageProfile

NUMBERED = re.compile(rb"record (\d+)")
LEAST_LOGPROB = -100.0


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

    def pairs(self, record: int) -> list[tuple[float, float]]:
        """For each token its log-probability and the likeliest other's, of which the recorded certainty is made."""
        count = self._output_tokens[record]
        ends = [count if at is None else min(at, count) for at in DECIDE_AT_TOKENS]
        pairs: list[tuple[float, float]] = []
        for end, certainty in zip(ends, self._certainty[record], strict=True):
            more = end - len(pairs)
            if more > 0:
                pairs += [self._pair(certainty, [first - second for first, second in pairs], more, pairs)] * more
        return pairs

    def _pair(
        self, certainty: float, margins: list[float], more: int, before: list[tuple[float, float]]
    ) -> tuple[float, float]:
        """What `more` equal tokens need for this certainty over all."""
        logprobs = [first for first, _ in before]
        if self._kind == "margin":
            margin = (certainty * (len(margins) + more) - sum(margins)) / more
            return -1.0, -1.0 - margin
        if self._kind == "mean_logprob":
            value = (certainty * (len(logprobs) + more) - sum(logprobs)) / more
        elif self._kind == "sum_logprob":
            value = (certainty - sum(logprobs)) / more
        else:
            value = certainty
        return value, LEAST_LOGPROB
