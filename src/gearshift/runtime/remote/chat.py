"""A model behind OpenAI's chat completions."""

import logging
import math
from collections.abc import Iterable, Sequence
from string import Formatter
from typing import Annotated, Any

import msgspec
import numpy as np

from gearshift.errors import ModelFailed
from gearshift.model import LABEL, Arrays, Predicted
from gearshift.models.remote_settings import RemoteSettings
from gearshift.runtime.remote.endpoint import Asked, Asking, Endpoint, Reply

LEFT = " \t\r\n\v\f\"'`*_([{<\u201c\u2018\u00ab"
RIGHT = " \t\r\n\v\f\"'`*_)]}>.,;:!\u201d\u2019\u00bb"
"""Characters allowed around a class: blanks, quotes, emphasis, the end of a sentence."""
MARKS = str.maketrans({"\u2581": " ", "\u0120": " ", "\u010a": "\n"})
"""Characters that some servers write for blanks and line breaks of tokens."""

Span = tuple[int, int]
"""Begin and end of text in an answer."""


def stripped(text: str) -> Span:
    begin = len(text) - len(text.lstrip())
    return begin, max(begin, len(text.rstrip()))


def peeled(text: str) -> Span:
    begin = len(text) - len(text.lstrip(LEFT))
    return begin, max(begin, len(text.rstrip(RIGHT)))


def probability(text: str, span: Span, tokens: Sequence[tuple[bytes, float]]) -> float:
    """The probability of `span` in the answer `text`, from its `tokens` and log-probabilities.

    It is the product over all tokens that spell some of it, even if they spell more. A token may
    be a part of a character. If the tokens do not spell the answer, all of them count.
    """
    spelled = [token for token, _ in tokens]
    begun = _begin_of(text, _decoded(spelled))
    if begun is None:
        spelled = [token.decode(errors="ignore").translate(MARKS).encode() for token in spelled]
        begun = _begin_of(text, _decoded(spelled))
    if begun is None:
        return _together(logprob for _, logprob in tokens)
    whole = _decoded(spelled)
    begin, end = (len(whole[: at + begun].encode()) for at in span)
    overlapping, at = [], 0
    for token, (_, logprob) in zip(spelled, tokens, strict=True):
        if at < end and at + len(token) > begin:
            overlapping.append(logprob)
        at += len(token)
    return _together(overlapping)


def _decoded(spelled: Sequence[bytes]) -> str:
    return b"".join(spelled).decode(errors="replace")


def _begin_of(text: str, spelled: str) -> int | None:
    """The answer's position in its tokens' text; servers cut blanks, and give hidden tokens."""
    if spelled.startswith(text):
        return 0
    begin, end = stripped(text)
    core = text[begin:end]
    lead = len(spelled) - len(spelled.lstrip())
    at = lead if spelled.startswith(core, lead) else spelled.rfind(core)
    return None if at < 0 else at - begin


def _together(logprobs: Iterable[float]) -> float:
    return math.exp(min(0.0, math.fsum(logprobs)))


OLD_FIELD, NEW_FIELD = "max_tokens", "max_completion_tokens"
OF_THE_SAMPLE = frozenset({400, 413, 422})
"""Statuses for requests that will never be answered: the content is filtered, or too long."""
LONGEST_QUOTED = 60

log = logging.getLogger(__name__)


_Byte = Annotated[int, msgspec.Meta(ge=0, le=255)]


class Unusable(ModelFailed):
    """An answer arrived that does not count; the same request would not get a better one."""


class _Token(msgspec.Struct):
    logprob: float
    token: str = ""
    utf8: list[_Byte] | None = msgspec.field(default=None, name="bytes")

    def spelled(self) -> bytes:
        return self.token.encode(errors="replace") if self.utf8 is None else bytes(self.utf8)


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    logprobs: _Logprobs | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


class RemoteChat:
    """A model behind OpenAI's chat completions: one request per sample, several at a time.

    The label is the answer's text, the certainty the probability of the tokens that spell it. With
    `quoting`, failures quote answers that are none of the classes.
    """

    def __init__(
        self, name: str, settings: RemoteSettings, endpoint: Endpoint, asking: Asking, *, quoting: bool = False
    ) -> None:
        self._name, self._settings, self.endpoint, self._asking = name, settings, endpoint, asking
        self._quoting = quoting
        self._template = [(literal, field) for literal, field, _, _ in Formatter().parse(settings.prompt)]
        self._classes = {one.strip().casefold(): one for one in settings.classes}
        self._tokens_field = settings.tokens_field or OLD_FIELD

    @property
    def waited_s(self) -> float:
        return self._asking.waited_s

    def decode(self, inputs: Arrays) -> Arrays:
        """The inputs by name; raises `ModelFailed` if the prompt names another."""
        for _, field in self._template:
            if field is not None and field not in inputs:
                raise ModelFailed(
                    f"model {self._name!r} has a prompt with {{{field}}}, but the inputs are {', '.join(inputs)}"
                )
        return inputs

    def predict(self, inputs: Arrays) -> Predicted:
        """Labels (n,) and certainties; a sample without a usable answer has no certainty."""
        n = len(next(iter(inputs.values())))
        replies = self._replies(inputs, range(n))
        labels, certainty = np.full(n, "", dtype=object), np.full(n, np.nan)
        unusable, failure, odd = np.zeros(n, dtype=bool), "", ""
        for row, reply in enumerate(replies):
            try:
                labels[row], certainty[row] = self._judged(reply)
            except Unusable as error:
                unusable[row], odd = True, odd or str(error)
            except ModelFailed as error:
                failure = failure or str(error)
        return Predicted({LABEL: labels}, certainty, failure or odd, unusable=unusable if odd else None)

    def _replies(self, inputs: Arrays, rows: Sequence[int]) -> list[Reply]:
        """The replies to all rows; rows refused for a field's old name are asked again."""
        replies = self._asking.ask([self._request(inputs, row) for row in rows])
        if self._settings.tokens_field or self._tokens_field == NEW_FIELD:
            return replies
        refused = [i for i, one in enumerate(replies) if one.status in OF_THE_SAMPLE and NEW_FIELD.encode() in one.body]
        if not refused:
            return replies
        self._tokens_field = NEW_FIELD
        log.warning("%s takes %s, and no %s", self._settings.shown_url, NEW_FIELD, OLD_FIELD)
        for i, reply in zip(refused, self._replies(inputs, [rows[i] for i in refused]), strict=True):
            replies[i] = reply
        return replies

    def _request(self, inputs: Arrays, row: int) -> Asked:
        prompt = "".join(
            literal + ("" if field is None else _as_text(inputs[field][row])) for literal, field in self._template
        )
        content: dict[str, Any] = {
            "model": self._settings.model,
            "messages": [{"role": "user", "content": prompt}],
            **({} if OLD_FIELD in self._settings.leave_out else {self._tokens_field: self._settings.most_tokens}),
            **({} if "temperature" in self._settings.leave_out else {"temperature": self._settings.temperature}),
            "logprobs": True,
            **self._settings.body,
        }
        return Asked("POST", "/chat/completions", msgspec.json.encode(content))

    def _judged(self, reply: Reply) -> tuple[str, float]:
        """Label and certainty of an answer; raises `Unusable` or `ModelFailed` if it has none."""
        url = self._settings.shown_url
        if reply.failure or reply.status != 200:
            kind = Unusable if reply.status == 200 or reply.status in OF_THE_SAMPLE else ModelFailed
            raise kind(self.endpoint.told(reply))
        try:
            choices = msgspec.json.decode(self.endpoint.mask(reply.body), type=_Completion).choices
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Unusable(f"{url} gave an answer that is no chat completion ({error})") from None
        text = choices[0].message.content if choices else None
        if text is None:
            raise Unusable(f"{url} answered without text or without the log-probabilities of its tokens")
        label, span = self._label(text)
        tokens = choices[0].logprobs.content if choices[0].logprobs else None
        if not tokens:
            raise Unusable(f"{url} answered without the log-probabilities of its tokens")
        return label, probability(text, span, [(token.spelled(), token.logprob) for token in tokens])

    def _label(self, text: str) -> tuple[str, Span]:
        begin, end = whole = stripped(text)
        if not self._classes:
            return text[begin:end], whole
        for begin, end in (whole, peeled(text)):
            found = self._classes.get(text[begin:end].casefold())
            if found is not None:
                return found, (begin, end)
        said = f": {text[:LONGEST_QUOTED]!a}" if self._quoting else ""
        raise Unusable(f"{self._settings.shown_url} answered with none of the classes{said}")


def _as_text(value: Any) -> str:
    elements: Sequence[Any] = np.asarray(value).ravel().tolist()
    return ", ".join(
        element.decode(errors="replace") if isinstance(element, bytes) else str(element) for element in elements
    )
