"""The parts that Gearshift reads of the chunks of an OpenAI-compatible endpoint's stream."""

import math
from itertools import islice
from typing import Annotated, Any

import msgspec

FIRST_CHOICE = 0
MOST_PARTS = 1 << 10
"""Parts of choices in one chunk, and of calls of tools; a request has at most 128 choices."""
MOST_VALUES = 1 << 17
"""Values in the JSON of one chunk, such as 800 tokens with their twenty likeliest others."""
FEW_VALUES_BYTES = MOST_VALUES
"""A chunk of this size cannot have more."""
OWN_COUNTS = frozenset(
    ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details", "")
)
MOST_OTHERS = 32
MOST_PROMPT_TOKENS, MOST_OUTPUT_TOKENS = 1 << 24, 1 << 31
"""Counts beyond these are none: no model has so much context."""
NULL = b"null"
"""An event of llama.cpp's server that is no chunk, before the answers to several prompts."""


class BadAnswer(ValueError):
    """The answer of an endpoint is none; the text says why, after the endpoint's name."""


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
    given_name: Any = msgspec.field(name="name", default=None)
    arguments: Any = None

    @property
    def name(self) -> str:
        return self.given_name if isinstance(self.given_name, str) else ""

    @property
    def text(self) -> str:
        """The part of the arguments; some engines give them whole, as an object."""
        if self.arguments is None or isinstance(self.arguments, str):
            return self.arguments or ""
        return msgspec.json.encode(self.arguments).decode()


class ToolCall(msgspec.Struct):
    """A part of a call of a tool; `tool_calls.Places` says of which one."""

    id: Any = None
    index: Any = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: Any = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    reasoning_text: Any = None
    thinking: Any = None
    thinking_blocks: Any = None
    audio: Any = None
    given_calls: list[ToolCall] | ToolCall | None = msgspec.field(name="tool_calls", default=None)
    """TGI gives a part of one call that is in no list."""
    function_call: Any = None

    @property
    def has_token(self) -> bool:
        return bool(
            self.content
            or self.given_calls
            or self.reasoning_content
            or self.reasoning
            or self.reasoning_details
            or self.reasoning_text
            or self.thinking
            or self.thinking_blocks
            or self.refusal
            or self.function_call
            or self.audio
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
        """Its text, which is empty where it has none; of a list of parts that of the parts that are text."""
        content = self.text if self.delta is None else self.delta.content
        if isinstance(content, list):
            return "".join(
                str(part.get("text") or "")
                for part in content
                if isinstance(part, dict) and part.get("type", "text") == "text"
            )
        return content if isinstance(content, str) else ""

    @property
    def tokens(self) -> list[Token]:
        """With their log-probabilities, where these are given."""
        return [] if self.logprobs is None else self.logprobs.listed()

    @property
    def tool_calls(self) -> list[ToolCall]:
        calls = None if self.delta is None else self.delta.given_calls
        return [calls] if isinstance(calls, ToolCall) else calls or []

    @property
    def token_count(self) -> int:
        """As many as have log-probabilities, else one if there is anything."""
        listed = 0 if self.logprobs is None else len(self.logprobs.content or self.logprobs.token_logprobs or ())
        return listed or (1 if self.text or (self.delta is not None and self.delta.has_token) else 0)


_Prompt = Annotated[int, msgspec.Meta(ge=0, le=MOST_PROMPT_TOKENS)]
_Output = Annotated[int, msgspec.Meta(ge=0, le=MOST_OUTPUT_TOKENS)]


class Usage(msgspec.Struct):
    prompt_tokens: _Prompt = 0
    completion_tokens: _Output = 0
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None
    others: dict[str, Any] = msgspec.field(name="", default_factory=dict)
    """Counts that only some vendors give, such as costs and tokens from caches."""

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
        return counts | {name: value for name, value in details.items() if value is not None} | self.others


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
        """None also where counts are null or not given; raises `BadAnswer` where they are no numbers of tokens."""
        if self.given_usage is None:
            return None
        if not isinstance(self.given_usage, dict):
            raise BadAnswer("gave a chunk whose usage is no count of tokens")
        given = {name: value for name, value in self.given_usage.items() if value is not None}
        if not given.keys() & {"prompt_tokens", "completion_tokens"}:
            return None
        try:
            if any(isinstance(given.get(name), bool) for name in ("prompt_tokens", "completion_tokens")):
                raise msgspec.ValidationError("Expected `int`, got `bool`")
            usage = msgspec.convert(given, Usage, strict=False)
        except msgspec.ValidationError as error:
            raise BadAnswer(f"gave a chunk whose usage is no count of tokens: {error}") from None
        others = ((name, value) for name, value in given.items() if name not in OWN_COUNTS)
        usage.others = dict(islice((one for one in others if isinstance(one[1], (int, float))), MOST_OTHERS))
        return usage

    @property
    def first(self) -> Choice | None:
        """The part of the first choice, by which is decided."""
        return next((choice for choice in self.choices if choice.index == FIRST_CHOICE), None)


class NamedChunk(Chunk):
    """As those hear it that ask for a model by name, and check who answers."""

    model: str | None = None


_decode = msgspec.json.Decoder(Chunk).decode


def decode_chunk(data: bytes) -> Chunk:
    """Raises `BadAnswer`; takes time for the bytes and for at most `MOST_VALUES` values."""
    if has_too_many_values(data):
        raise BadAnswer(f"gave a chunk that has more than {MOST_VALUES} values")
    try:
        chunk = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(f"gave a chunk that cannot be read: {error}") from None
    if len(chunk.choices) > MOST_PARTS:
        raise BadAnswer(f"gave a chunk that has {len(chunk.choices)} choices")
    if any(len(choice.tool_calls) > MOST_PARTS for choice in chunk.choices):
        raise BadAnswer(f"gave a chunk that has more than {MOST_PARTS} calls of tools")
    return chunk


def has_too_many_values(data: bytes) -> bool:
    """Whether its JSON may have more than `MOST_VALUES`, of which each begins a list or follows on a comma."""
    if len(data) <= FEW_VALUES_BYTES:
        return False
    return data.count(b",") + data.count(b"[") + data.count(b"{") > MOST_VALUES
