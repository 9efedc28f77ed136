"""The parts that Gearshift reads of the chunks of an OpenAI-compatible endpoint's stream."""

import math
from typing import Any

import msgspec

FIRST_CHOICE = 0
NULL = b"null"
"""An event of llama.cpp's server that is no chunk, before the answers to several prompts."""


class _Other(msgspec.Struct):
    token: str = ""
    logprob: float | None = 0.0


class Token(msgspec.Struct):
    """Some engines give a token that is all but impossible no log-probability."""

    given: float | None = msgspec.field(name="logprob")
    token: str = ""
    top_logprobs: list[_Other] | None = None

    @property
    def logprob(self) -> float:
        return -math.inf if self.given is None else self.given

    @property
    def second(self) -> float | None:
        """The log-probability of the likeliest other token, where it is given."""
        others = (one for one in self.top_logprobs or () if one.token != self.token)
        return max((-math.inf if one.logprob is None else one.logprob for one in others), default=None)


class _Logprobs(msgspec.Struct):
    """`content` is that of chat completions, the others are those of text completions."""

    content: list[Token] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None

    def listed(self) -> list[Token]:
        if self.content is not None:
            return self.content
        values = self.token_logprobs or []
        texts, tops = self.tokens or [""] * len(values), self.top_logprobs or [None] * len(values)
        return [
            Token(0.0 if value is None else value, text, [_Other(*pair) for pair in (top or {}).items()])
            for value, text, top in zip(values, texts, tops, strict=False)
        ]


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None

    @property
    def text(self) -> str:
        """The part of the arguments; some engines give them whole, as an object."""
        if self.arguments is None or isinstance(self.arguments, str):
            return self.arguments or ""
        return msgspec.json.encode(self.arguments).decode()


class ToolCall(msgspec.Struct):
    given_index: int | None = msgspec.field(name="index", default=0)
    function: _Function | None = None

    @property
    def index(self) -> int:
        return self.given_index or 0


class _Delta(msgspec.Struct):
    content: Any = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: list[ToolCall] | None = None
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
    given_index: int | None = msgspec.field(name="index", default=FIRST_CHOICE)
    delta: _Delta | None = None
    text: Any = None
    logprobs: _Logprobs | None = None
    finish_reason: Any = None

    @property
    def index(self) -> int:
        return FIRST_CHOICE if self.given_index is None else self.given_index

    @property
    def said(self) -> str:
        """Its text, which is empty where it has none."""
        content = self.text if self.delta is None else self.delta.content
        return content if isinstance(content, str) else ""

    @property
    def tokens(self) -> list[Token]:
        """With their log-probabilities, where these are given."""
        return [] if self.logprobs is None else self.logprobs.listed()

    @property
    def arguments(self) -> list[tuple[int, str]]:
        """Parts of the arguments of tool calls, by the call's index."""
        calls = () if self.delta is None else self.delta.tool_calls or ()
        return [(one.index, one.function.text) for one in calls if one.function is not None]

    @property
    def token_count(self) -> int:
        """As many as have log-probabilities, else one if there is anything."""
        listed = 0 if self.logprobs is None else len(self.logprobs.content or self.logprobs.token_logprobs or ())
        return listed or (1 if self.text or (self.delta is not None and self.delta.has_token) else 0)


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None

    @property
    def cached_tokens(self) -> int:
        """The tokens of the prompt that the engine had read before."""
        details = self.prompt_tokens_details
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        return max(0, min(cached, self.prompt_tokens)) if isinstance(cached, int) else 0

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
    given_choices: list[Choice] | None = msgspec.field(name="choices", default=None)
    model: Any = None
    system_fingerprint: Any = None
    given_usage: Any = msgspec.field(name="usage", default=None)
    error: Any = None

    @property
    def choices(self) -> list[Choice]:
        return self.given_choices or []

    @property
    def usage(self) -> Usage | None:
        """None also where it cannot be read: an answer is no worse for that."""
        if self.given_usage is None:
            return None
        try:
            return msgspec.convert(self.given_usage, Usage, strict=False)
        except msgspec.ValidationError:
            return None

    @property
    def first(self) -> Choice | None:
        """The part of the first choice, by which is decided."""
        return next((choice for choice in self.choices if choice.index == FIRST_CHOICE), None)


class NamedChunk(Chunk):
    """As those hear it that ask for a model by name, and check who answers."""

    model: str | None = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
