"""One streamed answer of an endpoint: the times of its tokens, their log-probabilities, its text."""

import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gearshift.profiles.engines.certainty import argument_tokens


class _Other(msgspec.Struct):
    token: str = ""
    logprob: float = 0.0


class _Token(msgspec.Struct):
    logprob: float
    token: str = ""
    top_logprobs: list[_Other] | None = None

    @property
    def second(self) -> float | None:
        """The log-probability of the likeliest other token."""
        others = [one.logprob for one in self.top_logprobs or () if one.token != self.token]
        return max(others, default=None)


class _Logprobs(msgspec.Struct):
    """`content` is of chat completions, the rest of text completions."""

    content: list[_Token] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None

    @property
    def listed(self) -> list[_Token]:
        if self.content is not None:
            return self.content
        values = self.token_logprobs or []
        texts = self.tokens or [""] * len(values)
        tops = self.top_logprobs or [None] * len(values)
        return [
            _Token(0.0 if value is None else value, text, [_Other(*pair) for pair in (top or {}).items()])
            for value, text, top in zip(values, texts, tops, strict=False)
        ]


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int = 0
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    text: str | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    model: str | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


@dataclass(slots=True)
class Heard:
    """One answer; `came_ns` has the time of each of its tokens, `sent_ns` that of the request.

    Tokens that come in one chunk have one time. `wrong` says what is wrong with the stream.
    """

    sent_ns: int = 0
    came_ns: list[int] = field(default_factory=list)
    tokens: list[_Token] = field(default_factory=list)
    text: str = ""
    calls: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Name and arguments of each tool call."""
    model: str | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    finish: str = ""
    wrong: str = ""

    def event(self, data: bytes) -> None:
        if data == b"[DONE]" or self.wrong:
            return
        try:
            chunk = _decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.wrong = f"sent a chunk that cannot be read ({error})"
            return
        if chunk.error is not None:
            self.wrong = f"ended its answer with an error ({str(chunk.error)[:300]})"
            return
        self.model = chunk.model or self.model
        if chunk.usage is not None and chunk.usage.prompt_tokens:
            self.prompt_tokens, self.output_tokens = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
        for choice in chunk.choices:
            if choice.index == 0:
                self._choice(choice)

    def _choice(self, choice: _Choice) -> None:
        listed = [] if choice.logprobs is None else choice.logprobs.listed
        said = choice.text or ""
        if choice.delta is not None:
            said += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                name, arguments = self.calls.get(call.index, ("", ""))
                if call.function is not None:
                    name, arguments = name + (call.function.name or ""), arguments + (call.function.arguments or "")
                self.calls[call.index] = name, arguments
            thought = choice.delta.reasoning_content
        else:
            thought = None
        self.text += said
        self.tokens += listed
        self.finish = choice.finish_reason or self.finish
        is_token = said or thought or (choice.delta is not None and choice.delta.tool_calls)
        count = len(listed) or (1 if is_token else 0)
        self.came_ns += [time.perf_counter_ns()] * count

    @property
    def answer(self) -> str:
        """Its text, or as JSON the tool calls."""
        if self.text or not self.calls:
            return self.text
        calls = [{"name": name, "arguments": arguments} for name, arguments in self.calls.values()]
        return msgspec.json.encode(calls).decode()

    @property
    def of_arguments(self) -> list[bool]:
        """The tokens that belong to the arguments of tool calls."""
        texts = [token.token for token in self.tokens]
        return argument_tokens(texts, [arguments for _, arguments in self.calls.values()])
