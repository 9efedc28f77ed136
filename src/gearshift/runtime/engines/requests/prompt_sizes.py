"""The tokens of a prompt for each model, guessed from its bytes before an engine has counted them."""

FIRST_GUESS = 0.25
"""Tokens for each byte, before the first answer."""
WEIGHT = 0.05
"""The weight of the latest answer."""


class PromptSizes:
    """Learns from the counts that engines report."""

    def __init__(self, models: int) -> None:
        self._tokens_per_byte = [FIRST_GUESS] * models
        self._heard = [False] * models

    def tokens(self, size_bytes: int) -> list[int]:
        return [max(1, round(size_bytes * rate)) for rate in self._tokens_per_byte]

    def learn(self, model: int, size_bytes: int, tokens: int) -> None:
        rate = tokens / max(1, size_bytes)
        weight = WEIGHT if self._heard[model] else 1.0
        self._tokens_per_byte[model] += weight * (rate - self._tokens_per_byte[model])
        self._heard[model] = True
