"""The tokens of a prompt that each model is to read, guessed before an engine has counted them."""

from collections.abc import Sequence

from msgspec import UNSET

from gearshift.models.language_config import PICTURE_TOKENS
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.requests.asked import Asked
from gearshift.runtime.engines.requests.engine_request import NO_MOST_TOKENS, EngineRequest
from gearshift.runtime.engines.upstream.chunk import Usage

FIRST_GUESS = 0.25
"""Tokens for each byte of text, before the first answer."""
WEIGHT = 0.05
"""The weight of the latest answer."""


class PromptSizes:
    """Learns from the counts that engines report.

    `picture_tokens` are those of a picture, sound or file for each model, before it has counted
    some. A model has no room for more than `most_tokens` of one prompt.
    """

    def __init__(self, picture_tokens: Sequence[float], most_tokens: Sequence[int]) -> None:
        models = len(picture_tokens)
        self._picture_tokens, self._most_tokens = list(picture_tokens), most_tokens
        self._tokens_per_byte = [FIRST_GUESS] * models
        self._read_share = [1.0] * models
        """The part of prompts that engines have not cached."""
        self._heard, self._heard_pictures = [False] * models, [False] * models

    @classmethod
    def of(cls, tables: EngineTables) -> "PromptSizes":
        """As the engines of each model were profiled; a model without replicas gets no request."""
        pictures, most = [float(PICTURE_TOKENS)] * len(tables.models), [NO_MOST_TOKENS] * len(tables.models)
        for model, engine in zip(tables.replica_model.tolist(), tables.engines, strict=True):
            if engine.picture_tokens is not UNSET:
                pictures[model] = engine.picture_tokens
            most[model] = engine.held_tokens if engine.context_tokens is UNSET else engine.context_tokens
        return cls(pictures, most)

    def tokens(self, asked: Asked) -> list[int]:
        """What each model is to read of it: what engines have cached costs no time."""
        return [max(1, round(self._whole(model, asked) * share)) for model, share in enumerate(self._read_share)]

    def learn(self, request: EngineRequest, asked: Asked, usage: Usage) -> None:
        """From what the request's engine has counted; models that it may go to next are guessed anew."""
        model = request.model
        counted = min(usage.prompt_tokens, self._most_of(model, asked))
        factor = counted / max(1.0, self._whole(model, asked))
        request.prompt_tokens = [
            tokens
            if (request.visited >> other) & 1
            else max(1, min(round(tokens * factor), self._most_of(other, asked)))
            for other, tokens in enumerate(request.prompt_tokens)
        ]
        if asked.media == 0:
            self._move(self._tokens_per_byte, model, counted / max(1, asked.prompt_bytes), self._heard)
        elif self._heard[model]:  # else it is not known what of it is text
            of_text = asked.prompt_bytes * self._tokens_per_byte[model]
            self._move(self._picture_tokens, model, max(0.0, counted - of_text) / asked.media, self._heard_pictures)
        read_share = 1 - usage.cached_tokens / usage.prompt_tokens
        self._read_share[model] += WEIGHT * (read_share - self._read_share[model])

    def _whole(self, model: int, asked: Asked) -> float:
        text, media = asked.prompt_bytes * self._tokens_per_byte[model], asked.media * self._picture_tokens[model]
        return min(text + media, self._most_of(model, asked))

    def _most_of(self, model: int, asked: Asked) -> int:
        """Of all prompts in one request, of which engines refuse those that are longer."""
        return self._most_tokens[model] * max(1, asked.choices)

    def _move(self, values: list[float], model: int, latest: float, heard: list[bool]) -> None:
        weight = WEIGHT if heard[model] else 1.0
        values[model] += weight * (latest - values[model])
        heard[model] = True
