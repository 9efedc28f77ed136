"""One streamed answer of an endpoint: the times of its tokens, their log-probabilities, its text."""

import time
from dataclasses import dataclass, field

import msgspec

from gearshift.profiles.engines.certainty import argument_tokens
from gearshift.runtime.engines.answers.halves import Halves
from gearshift.runtime.engines.answers.tool_calls import Places, name_after
from gearshift.runtime.engines.upstream.chunk import FIRST_CHOICE, NULL, BadAnswer, Choice, NamedChunk, Token

_decode = msgspec.json.Decoder(NamedChunk).decode


@dataclass(slots=True)
class Heard:
    """One answer; `came_ns` has the time of each of its tokens, `sent_ns` that of the request.

    Tokens that come in one chunk have one time. `wrong` says what is wrong with the stream.
    """

    sent_ns: int = 0
    came_ns: list[int] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    text: str = ""
    calls: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Name and arguments of each tool call."""
    model: str | None = None
    fingerprint: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    finish: str = ""
    wrong: str = ""
    _halves: Halves = field(default_factory=Halves)
    _places: Places = field(default_factory=Places)

    def event(self, data: bytes) -> None:
        if data in (b"[DONE]", NULL) or self.wrong:
            return
        try:
            chunk = _decode(self._halves.mend(data))
            usage = chunk.usage
        except BadAnswer as error:
            self.wrong = str(error)
            return
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self.wrong = f"sent a chunk that cannot be read ({error})"
            return
        if chunk.error is not None:
            self.wrong = f"ended its answer with an error ({str(chunk.error)[:300]})"
            return
        self.model = chunk.model or self.model
        if isinstance(chunk.system_fingerprint, str):
            self.fingerprint = chunk.system_fingerprint
        if usage is not None and usage.prompt_tokens:
            self.prompt_tokens, self.output_tokens = usage.prompt_tokens, usage.completion_tokens
        for choice in chunk.choices:
            if choice.index == FIRST_CHOICE:
                self._choice(choice)

    def _choice(self, choice: Choice) -> None:
        for order, call in enumerate(choice.tool_calls):
            name, text = ("", "") if call.function is None else (call.function.name, call.function.text)
            place = self._places.of(call.id, call.index, name, text, order=order, among=len(choice.tool_calls))
            named, arguments = self.calls.get(place, ("", ""))
            self.calls[place] = name_after(named, name, has_arguments=bool(arguments)), arguments + text
        self.text += choice.said
        self.tokens += choice.tokens
        self.finish = choice.finish_reason or self.finish
        self.came_ns += [time.perf_counter_ns()] * choice.token_count

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
