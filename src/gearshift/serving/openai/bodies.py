"""The bodies of OpenAI's completions, as far as Gearshift reads them; unknown fields go to the engines."""

from typing import Annotated

import msgspec

from gearshift.errors import InvalidInput
from gearshift.runtime.engines.requests.asked import CHAT, Asked, held_bytes_of
from gearshift.runtime.engines.requests.engine_request import NO_MOST_TOKENS

MOST_CHOICES, MOST_TOP_LOGPROBS = 128, 20
MOST_TOKENS = 1 << 24
"""Bound on one answer; no model has so much context."""
MOST_FIELDS = 1 << 10
MOST_COLONS, MOST_COMMAS = 1 << 20, 1 << 20
"""Bounds on a body, and on a prompt that is a list: parsed, each may take some 200 bytes for a moment."""

BEGIN_BYTES = 1 << 10
"""In which a list shows whether it is empty."""

_Messages = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "array", "minItems": 1})]
_Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_CHOICES)] | None
_Tokens = Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)] | None
_Top = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOP_LOGPROBS)]


class BadBody(InvalidInput):
    """`param` names the field that is wrong, `code` why, in OpenAI's words; both may be empty."""

    def __init__(self, what: str, *, param: str = "", code: str = "", remedy: str = "") -> None:
        super().__init__(what, where=param, remedy=remedy)
        self.param, self.code = param, code


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


class Wanted(msgspec.Struct):
    """The request to the engines, and the form in which the client wants the answer."""

    asked: Asked
    stream: bool
    include_usage: bool
    logprobs: bool
    top_logprobs: bool
    """Whether the likeliest other tokens are wanted."""


def read_body(path: str, body: bytes, served: str) -> Wanted:
    """Raises `BadBody` for a body that does not fit, `UnknownModel` for a model other than `served`."""
    if body.count(b":") > MOST_COLONS:
        raise BadBody(f"the body has more than {MOST_COLONS} fields")
    try:
        if not body.isascii():
            body.decode()  # fields that are not read here go to engines as they came
        known = msgspec.json.decode(body, type=CompletionBody)
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(error) from None
    if known.model != served:
        raise UnknownModel(
            f"there is no model {known.model[:200]!r}, this server has {served!r}",
            param="model",
            code="model_not_found",
        )
    if len(fields) > MOST_FIELDS:
        raise BadBody(f"the body has {len(fields)} fields, at most {MOST_FIELDS} are taken")
    prompt_bytes, prompts = _messages(known) if path == CHAT else _prompts(known)
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
    asked = Asked(
        path=path,
        fields=fields,
        prompt_bytes=prompt_bytes + (0 if known.tools is msgspec.UNSET else len(known.tools)),
        held_bytes=held_bytes_of(len(body), len(fields)),
        most_tokens=min(*most, NO_MOST_TOKENS) if most else NO_MOST_TOKENS,
        choices=choices,
        streamed=bool(known.stream),
        top_logprobs=(top or 0) if wanted else None,
    )
    options = known.stream_options
    return Wanted(
        asked=asked,
        stream=bool(known.stream),
        include_usage=options is not None and bool(options.include_usage),
        logprobs=wanted,
        top_logprobs=bool(top),
    )


def _messages(known: CompletionBody) -> tuple[int, int]:
    """The size of the messages, which are not taken apart: they are one prompt."""
    begin = b"" if known.messages is msgspec.UNSET else bytes(memoryview(known.messages)[:BEGIN_BYTES])
    if known.messages is msgspec.UNSET or begin[:1] != b"[" or begin[1:].lstrip()[:1] == b"]":
        raise BadBody("is no list, empty or missing", param="messages", remedy="give a list of at least one message")
    return len(known.messages), 1


def _prompts(known: CompletionBody) -> tuple[int, int]:
    """The size of the prompt, and how many there are: a list of texts, or of lists of tokens, has several."""
    given = b"null" if known.prompt is msgspec.UNSET else bytes(known.prompt)
    if given.lstrip()[:1] == b"[" and given.count(b",") > MOST_COMMAS:
        raise BadBody(f"has more than {MOST_COMMAS} parts", param="prompt")
    try:
        prompt = msgspec.json.decode(given)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(error) from None
    several = isinstance(prompt, list) and len(prompt) > 0 and all(isinstance(one, (str, list)) for one in prompt)
    tokens = isinstance(prompt, list) and len(prompt) > 0 and all(isinstance(one, int) for one in prompt)
    if not (several or tokens or isinstance(prompt, str)):
        raise BadBody("is no text", param="prompt", remedy="give a text, or a list of texts or of tokens")
    if several and len(prompt) > MOST_CHOICES:
        raise BadBody(f"has {len(prompt)} texts, at most {MOST_CHOICES} are taken", param="prompt")
    return len(given), len(prompt) if several else 1


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
