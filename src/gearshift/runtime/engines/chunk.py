"""What Gearshift reads of the chunks in which an OpenAI-compatible endpoint streams an answer."""

from typing import Any

import msgspec

FIRST_CHOICE = 0


class _Alternative(msgspec.Struct):
    logprob: float


class _Token(msgspec.Struct):
    logprob: float
    top_logprobs: list[_Alternative] | None = None


class Logprobs(msgspec.Struct):
    """`content` is that of chat completions, the other two are those of text completions."""

    content: list[_Token] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None

    def pairs(self) -> list[tuple[float, float]]:
        """For each token its log-probability, and that of the likeliest other one; -inf if not given."""
        if self.content is not None:
            return [(one.logprob, _second([each.logprob for each in one.top_logprobs or ()])) for one in self.content]
        tokens = [0.0 if value is None else value for value in self.token_logprobs or ()]
        top = self.top_logprobs or [None] * len(tokens)
        return [(value, _second([*(other or {}).values()])) for value, other in zip(tokens, top, strict=False)]


class _Delta(msgspec.Struct):
    content: Any = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    function_call: Any = None

    @property
    def has_token(self) -> bool:
        return bool(
            self.content
            or self.tool_calls
            or self.reasoning_content
            or self.reasoning
            or self.refusal
            or self.function_call
        )


class Choice(msgspec.Struct):
    index: int = FIRST_CHOICE
    delta: _Delta | None = None
    text: Any = None
    logprobs: Logprobs | None = None
    finish_reason: Any = None


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None

    def counted(self) -> dict[str, Any]:
        """As clients get it."""
        counts = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens}
        counts["total_tokens"] = self.prompt_tokens + self.completion_tokens
        details = {
            "prompt_tokens_details": self.prompt_tokens_details,
            "completion_tokens_details": self.completion_tokens_details,
        }
        return counts | {name: value for name, value in details.items() if value is not None}


class Chunk(msgspec.Struct):
    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None

    @property
    def first(self) -> Choice | None:
        """The part of the first choice, by which is decided."""
        return next((choice for choice in self.choices if choice.index == FIRST_CHOICE), None)


def tokens_in(choice: Choice, pairs: list[tuple[float, float]]) -> int:
    """The tokens of a part of an answer: as many as have log-probabilities, else one if it has anything."""
    if pairs:
        return len(pairs)
    return 1 if choice.text or (choice.delta is not None and choice.delta.has_token) else 0


decode_chunk = msgspec.json.Decoder(Chunk).decode


def _second(values: list[float]) -> float:
    return sorted(values)[-2] if len(values) >= 2 else float("-inf")
