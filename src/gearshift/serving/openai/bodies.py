"""The bodies of OpenAI's completions, as far as Gearshift reads them; unknown fields go to the engines.

A small body is parsed at once. A large one, and a list of prompts, are checked in steps, and bounded
while they are read (`v2/large_values`): no object is made but for the fields that are read here.
"""

import re
from collections.abc import Generator
from types import coroutine
from typing import Annotated, TypeVar

import msgspec

from gearshift.errors import InvalidInput
from gearshift.runtime.engines.requests.asked import CHAT, Asked, held_bytes_of
from gearshift.runtime.engines.requests.engine_request import NO_MOST_TOKENS
from gearshift.serving.openai.inline_data import Inline, inline_data
from gearshift.v2.large_values import TooMany, elements
from gearshift.v2.pieces import STEP_BYTES

MOST_CHOICES, MOST_TOP_LOGPROBS = 128, 20
MOST_TOKENS = 1 << 24
"""Bound on one answer; no model has so much context."""
LARGE_BYTES = 64 << 10
"""Larger bodies are read in steps; one of this size takes some milliseconds."""
MOST_FIELDS = 1 << 10
MOST_VALUES = 1 << 20
"""Bound on a body, with all that is in its lists and objects; a prompt may have so many tokens."""
LONGEST_NAME_BYTES, LONGEST_READ_BYTES = 1 << 10, 64 << 10
"""Bounds on the name of a field, and on a field that is read here."""
BEGIN_BYTES = 1 << 10
"""In which a list shows whether it is empty, and of what it is."""
_VIEWED_BYTES = 4 << 10
"""Larger fields are views of the body."""
_NAME = re.compile(rb'\s*("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)
_OF_NUMBERS = b"-0123456789, \t\r\n"
_Result = TypeVar("_Result")
_Steps = Generator[None, None, _Result]

_Messages = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "array", "minItems": 1})]
_Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_CHOICES)] | None
_Tokens = Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)] | None
_Top = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOP_LOGPROBS)]


class BadBody(InvalidInput):
    """`param` names the field that is wrong, `code` why, in OpenAI's words; both may be empty."""

    def __init__(self, what: str, *, param: str = "", code: str = "", remedy: str = "") -> None:
        super().__init__(what, where=param, remedy=remedy)
        self.param, self.code = param or None, code or None


class UnknownModel(BadBody):
    """There is no model of this name."""

    http_status = 404


class StreamOptions(msgspec.Struct):
    """`include_usage`: end the stream with a chunk that has the usage and no choices."""

    include_usage: bool | None = None


class CompletionBody(msgspec.Struct):
    """A request for completions; fields beside these go to the model as they are."""

    model: str
    messages: _Messages | msgspec.UnsetType = msgspec.UNSET
    prompt: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: _Tokens = None
    max_completion_tokens: _Tokens = None
    n: _Count = None
    logprobs: bool | _Top | None = None
    top_logprobs: _Top | None = None
    best_of: int | None = None
    tools: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def read_body(path: str, body: bytes, served: str) -> Asked:
    """Raises `BadBody` for a body that does not fit, `UnknownModel` for a model other than `served`."""
    reading = read_large_body(path, body, served)
    try:
        while True:
            reading.send(None)
    except StopIteration as end:
        asked: Asked = end.value
        return asked


async def read_large_body(path: str, body: bytes, served: str) -> Asked:
    """As `read_body`, and lets others go on between its steps."""
    return await reading_of(path, body, served)


@coroutine  # each bare yield is then what `asyncio.sleep(0)` does
def reading_of(path: str, body: bytes, served: str) -> _Steps[Asked]:
    """The steps of `read_body`: nothing of the body is kept where one of them raises."""
    if len(body) > LARGE_BYTES:
        fields = yield from _fields_in_steps(body)
    else:
        fields = _fields(body)
    if len(fields) > MOST_FIELDS:
        raise BadBody(f"the body has {len(fields)} fields, at most {MOST_FIELDS} are taken")
    known = _known(fields)
    if known.model != served:
        raise UnknownModel(
            f"there is no model {known.model[:200]!r}, this server has {served!r}",
            param="model",
            code="model_not_found",
        )
    if path == CHAT:
        prompt_bytes, prompts, media = yield from _messages(known)
    else:
        prompt_bytes, prompts = yield from _prompts(known)
        media = 0
    choices = (known.n or 1) * prompts
    if choices > MOST_CHOICES:
        raise BadBody(f"asks for {choices} answers, at most {MOST_CHOICES} are given to one request", param="n")
    if known.best_of is not None and known.best_of > (known.n or 1):
        raise BadBody(
            "is more than n, and engines are asked for streams, which have no best",
            param="best_of",
            remedy="leave it out, or ask for n answers and choose",
        )
    wanted, top = _logprobs(known, is_chat=path == CHAT)
    if known.stream_options is not None and not known.stream:
        raise BadBody("is for streams alone", param="stream_options", remedy="set stream to true, or leave it out")
    most = [one for one in (known.max_tokens, known.max_completion_tokens) if one is not None]
    options = known.stream_options
    return Asked(
        path=path,
        fields=fields,
        prompt_bytes=prompt_bytes + (0 if known.tools is msgspec.UNSET else len(known.tools)),
        media=media,
        held_bytes=held_bytes_of(len(body), len(fields)),
        most_tokens=min(*most, NO_MOST_TOKENS) if most else NO_MOST_TOKENS,
        choices=choices,
        streamed=bool(known.stream),
        include_usage=options is not None and bool(options.include_usage),
        top_logprobs=(top or 0) if wanted else None,
    )


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        if not body.isascii():
            body.decode()  # fields that are not read here go to engines as they came
        return msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(error) from None


def _fields_in_steps(body: bytes) -> _Steps[dict[str, msgspec.Raw]]:
    text, fields = memoryview(body), dict[str, msgspec.Raw]()
    if body[:LONGEST_NAME_BYTES].lstrip()[:1] != b"{":
        raise BadBody("the body does not fit: it is no object")
    try:
        members = yield from elements(text, most=MOST_FIELDS, most_values=MOST_VALUES, called="fields")
    except TooMany as error:
        raise BadBody(f"the body {error}") from None
    except InvalidInput as error:
        raise BadBody(str(error)) from None
    for begin, end in members:
        name = _NAME.match(text, begin, min(end, begin + 2 * LONGEST_NAME_BYTES))
        if name is None or len(name[1]) > LONGEST_NAME_BYTES:
            raise BadBody(f"a field's name and the blanks around it have more than {LONGEST_NAME_BYTES} bytes")
        begin = name.end()
        value = text[begin:end] if end - begin > _VIEWED_BYTES else body[begin:end].rstrip()
        fields[_decoded_name(bytes(name[1]))] = msgspec.Raw(value)
    return fields


def _decoded_name(name: bytes) -> str:
    try:
        return msgspec.json.decode(name, type=str)
    except msgspec.MsgspecError as error:
        raise _bad(error) from None


def _known(fields: dict[str, msgspec.Raw]) -> CompletionBody:
    """The fields that are read here, of which only prompts and tools may be large."""
    given = {name: fields[name] for name in CompletionBody.__struct_fields__ if name in fields}
    whole = {name: given.pop(name) for name in ("messages", "prompt", "tools") if name in given}
    for name, value in given.items():
        if len(memoryview(value)) > LONGEST_READ_BYTES:
            raise BadBody(f"has more than {LONGEST_READ_BYTES} bytes", param=name)
    try:
        known = msgspec.json.decode(msgspec.json.encode(given), type=CompletionBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(error) from None
    for name, value in whole.items():
        setattr(known, name, value)
    return known


def _messages(known: CompletionBody) -> _Steps[tuple[int, int, int]]:
    """The size of the messages without inline data, one as they are one prompt, and the pictures and such in them."""
    begin = b"" if known.messages is msgspec.UNSET else bytes(memoryview(known.messages)[:BEGIN_BYTES])
    if known.messages is msgspec.UNSET or begin[:1] != b"[" or begin[1:].lstrip()[:1] == b"]":
        raise BadBody("is no list, empty or missing", param="messages", remedy="give a list of at least one message")
    text = memoryview(known.messages)
    inline: Inline = yield from inline_data(text)
    return len(text) - inline.size_bytes, 1, inline.media


def _prompts(known: CompletionBody) -> _Steps[tuple[int, int]]:
    """The size of the prompt, and how many there are: a list of texts, or of lists of tokens, has several."""
    given = memoryview(b"null" if known.prompt is msgspec.UNSET else known.prompt)
    begin = bytes(given[:BEGIN_BYTES])
    first = begin[1:].lstrip()[:1]
    if begin[:1] == b'"':
        return len(given), 1
    if begin[:1] == b"[" and first in (b'"', b"["):
        try:
            parts = yield from elements(given, most=MOST_CHOICES, most_values=MOST_VALUES, called="texts")
        except TooMany as error:
            raise BadBody(str(error), param="prompt") from None
        if all(bytes(given[begin:end][:BEGIN_BYTES]).lstrip()[:1] in (b'"', b"[") for begin, end in parts):
            return len(given), len(parts)
    elif begin[:1] == b"[" and first.isdigit() and (yield from _are_numbers(given[1:-1])):
        return len(given), 1
    raise BadBody("is no text", param="prompt", remedy="give a text, or a list of texts or of tokens")


def _are_numbers(tokens: memoryview) -> _Steps[bool]:
    """Whether a list, of which it is known that it is JSON, has whole numbers alone."""
    values = 0
    for begin in range(0, len(tokens), STEP_BYTES):
        step = bytes(tokens[begin : begin + STEP_BYTES])
        if step.translate(None, _OF_NUMBERS):
            return False
        values += step.count(b",")
        if values >= MOST_VALUES:
            raise BadBody(f"has more than {MOST_VALUES} tokens", param="prompt")
        yield
    return True


def _logprobs(known: CompletionBody, *, is_chat: bool) -> tuple[bool, int | None]:
    """Whether log-probabilities are wanted, and of how many of the likeliest tokens."""
    value, top = known.logprobs, known.top_logprobs
    if not is_chat:
        if value is not None and not isinstance(value, bool):
            return True, value
        return bool(value), None
    if value is not None and not isinstance(value, bool):
        raise BadBody("is a number", param="logprobs", remedy="set it to true or false")
    if top is not None and not value:
        raise BadBody("needs logprobs", param="top_logprobs", remedy="set logprobs to true")
    return bool(value), top


def _bad(error: Exception) -> BadBody:
    """From an error such as "Expected `int`, got `str` - at `$.n`"."""
    text, _, place = str(error).partition(" - at `$")
    param = place.strip("`.").partition(".")[0].partition("[")[0]
    return BadBody(f"the body does not fit: {text}", param=param)
