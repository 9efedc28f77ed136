"""The answers of an emulated engine to one request, in the forms of OpenAI's API."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec

from gearshift.profiles.engines.stepping import Generation
from gearshift.runtime.engines.requests.asked import CHAT

JSON, EVENTS = b"application/json", b"text/event-stream"


class Faults(msgspec.Struct):
    """The field `emulated` of a body: what goes wrong with it, at `model` alone where that is given."""

    model: str = ""
    cut_after: int | None = None
    """Close the connection after so many tokens."""
    silent_after: int | None = None
    """Send nothing more after so many tokens."""
    error_after: int | None = None
    """Send an error in the stream after so many tokens."""
    status: int = 0
    """Answer with this status."""


class StreamOptions(msgspec.Struct):
    include_usage: bool = False


class Body(msgspec.Struct):
    """The fields that an emulated engine reads."""

    model: str
    messages: Any = None
    prompt: Any = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    ignore_eos: bool = False
    """As in vLLM and llama.cpp: the answer goes on to `max_tokens`. Here its prompt has a token for each word."""
    emulated: Faults = msgspec.field(default_factory=Faults)

    @property
    def most_tokens(self) -> int:
        given = [one for one in (self.max_tokens, self.max_completion_tokens) if one is not None]
        return min(given, default=1 << 30)

    @property
    def wants_logprobs(self) -> bool:
        return self.logprobs not in (None, False)


class Sender(Protocol):
    """The connection of a request."""

    def head(self, status: int, content_type: bytes, length: int | None) -> None: ...

    def write(self, data: bytes) -> None: ...

    def end(self) -> None:
        """The answer is whole."""
        ...

    def cut(self) -> None: ...


class Reply:
    """Sends the tokens of one answer as `generation` gets them."""

    def __init__(
        self,
        number: int,
        path: str,
        body: Body,
        generation: Generation,
        words: Iterator[str],
        pairs: Sequence[tuple[float, float]],
        whole_tokens: int,
        sender: Sender,
    ) -> None:
        self.generation, self._body, self._words, self._pairs = generation, body, words, pairs
        self._is_chat, self._sender, self._whole_tokens = path == CHAT, sender, whole_tokens
        self._choices = range(body.n or 1)
        kind = "chat.completion" if self._is_chat else "text_completion"
        self._base = {
            "id": f"{'chatcmpl' if self._is_chat else 'cmpl'}-{number}",
            "object": f"{kind}.chunk" if self._is_chat and body.stream else kind,
            "created": int(time.time()),
            "model": body.model,
        }
        self._text: list[str] = []
        self.is_silent = False
        if body.stream:
            sender.head(200, EVENTS, None)
            if self._is_chat:
                self._send([self._choice(index, {"role": "assistant", "content": ""}, None) for index in self._choices])

    def token(self) -> bool:
        """Send one more token; False where the connection is closed by a fault."""
        place, faults = len(self._text), self._body.emulated
        applies = not faults.model or faults.model == self._body.model
        if applies and faults.cut_after == place:
            self._sender.cut()
            return False
        if applies and faults.error_after == place and self._body.stream:
            self._event({"error": {"message": "an emulated fault", "type": "server_error", "code": 500}})
            self._sender.cut()
            return False
        self.is_silent = self.is_silent or (applies and faults.silent_after == place)
        word = next(self._words)
        self._text.append(word)
        if self.is_silent:
            return True
        last = place + 1 == self.generation.output_tokens
        if self._body.stream:
            self._send([self._choice(index, {"content": word}, [word], place) for index in self._choices])
            if last:
                self._send([self._choice(index, {}, None, finish=self._finish) for index in self._choices])
        if last:
            self._end()
        return True

    def cut(self) -> None:
        self._sender.cut()

    @property
    def _finish(self) -> str:
        return "length" if self.generation.output_tokens < self._whole_tokens else "stop"

    @property
    def _usage(self) -> dict[str, int]:
        prompt, output = self.generation.prompt_tokens, len(self._text) * len(self._choices)
        return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}

    def _end(self) -> None:
        if self._body.stream:
            options = self._body.stream_options
            if options is not None and options.include_usage:
                self._event(self._base | {"choices": [], "usage": self._usage})
            self._sender.write(b"data: [DONE]\n\n")
        else:
            text, message = "".join(self._text), {"role": "assistant", "content": "".join(self._text)}
            form = {"message": message} if self._is_chat else {"text": text}
            logprobs = self._logprobs(self._text, 0)
            choices = [form | {"index": i, "logprobs": logprobs, "finish_reason": self._finish} for i in self._choices]
            data = msgspec.json.encode(self._base | {"choices": choices, "usage": self._usage})
            self._sender.head(200, JSON, len(data))
            self._sender.write(data)
        self._sender.end()

    def _choice(
        self, index: int, delta: dict[str, str], words: list[str] | None, place: int = 0, finish: str | None = None
    ) -> dict[str, Any]:
        form: dict[str, Any] = {"delta": delta} if self._is_chat else {"text": delta.get("content", "")}
        logprobs = None if words is None else self._logprobs(words, place)
        return {"index": index, **form, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs(self, words: list[str], place: int) -> dict[str, Any] | None:
        if not self._body.wants_logprobs:
            return None
        pairs = [self._pairs[min(place + i, len(self._pairs) - 1)] for i in range(len(words))]
        top = self._body.top_logprobs if self._is_chat else int(self._body.logprobs or 0)
        others = [
            [(word, first), ("?", second)][: top or 0] for word, (first, second) in zip(words, pairs, strict=True)
        ]
        if self._is_chat:
            return {
                "content": [
                    {
                        "token": word,
                        "logprob": pair[0],
                        "bytes": list(word.encode()),
                        "top_logprobs": [{"token": token, "logprob": value, "bytes": None} for token, value in other],
                    }
                    for word, pair, other in zip(words, pairs, others, strict=True)
                ]
            }
        return {
            "tokens": words,
            "token_logprobs": [first for first, _ in pairs],
            "top_logprobs": [dict(other) for other in others],
        }

    def _send(self, choices: list[dict[str, Any]]) -> None:
        self._event(self._base | {"choices": choices})

    def _event(self, content: dict[str, Any]) -> None:
        self._sender.write(b"data: %b\n\n" % msgspec.json.encode(content))
