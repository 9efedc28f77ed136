"""Who may still answer a request that an endpoint has not: by status and code first, by words last.

Codes and words are those of OpenAI, Azure, Gemini, Anthropic, vLLM, SGLang, TGI, llama.cpp, Ollama,
LM Studio, DashScope, GLM, DeepSeek, Mistral, OpenRouter and Groq. A refusal that is taken for one of
the model costs a call to another model, which refuses it too. One that is taken for one of the
request loses an answer. So words are matched generously.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

import msgspec

from gearshift.runtime.engines.upstream.call import Fault


class Kind(Enum):
    """What a fault is about."""

    ENGINE = "engine"
    """The engine failed: another replica of its model may answer."""
    TOO_LONG = "too long"
    """The model has no room for the prompt or the answer: another model may."""
    CONTENT = "content"
    """The model does not take such content (images, tools): another model may."""
    REQUEST = "request"
    """Nobody would answer the request as it is."""

    @property
    def of_model(self) -> bool:
        """Whether all replicas of the model would refuse the request, and another model may take it."""
        return self in (Kind.TOO_LONG, Kind.CONTENT)


CLIENTS_FAULTS = frozenset({400, 413, 422})
"""Statuses of refusals that are about the request."""
SAID_IN = CLIENTS_FAULTS | {0, 404, 405, 415, 500, 501}
"""Statuses whose bodies may refuse what a model lacks: 0 is an error within a stream, 404 OpenRouter, 500 llama.cpp."""
TOO_MANY = 429
LARGEST_TEXT = 2000

TOO_LONG_CODES = frozenset({
    "context_length_exceeded", "context_window_exceeded", "model_context_window_exceeded",
    "exceed_context_size_error", "request_too_large", "prompt_too_long", "input_too_long", "input_too_large",
    "tokens_limit_reached", "model_max_prompt_tokens_exceeded", "max_tokens_limit_exceeded",
    "1261", "40303",  # GLM, FastChat
})  # fmt: skip
CONTENT_CODES = frozenset({
    "unsupported_content_type", "unsupported_media_type", "unsupported_modality", "modality_not_supported",
    "image_url_unsupported", "image_not_supported", "vision_not_supported", "tools_not_supported",
    "tool_use_not_supported",
})  # fmt: skip
REQUEST_CODES = frozenset({
    "content_filter", "content_policy_violation", "responsibleaipolicyviolation", "moderation_blocked",
    "data_inspection_failed", "datainspectionfailed", "1301",  # DashScope, GLM
})  # fmt: skip
"""Of filters, whose operators have decided: the request is not offered to others."""


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.DOTALL)


_TOO_LONG = _any_of(
    r"context[ _-]?(?:length|size|window)|maximum context",
    r"(?:prompt|inputs?|messages?|request|query)\b.{0,80}too (?:long|large)",
    r"too many (?:input |prompt |total )?tokens",
    r"max_(?:new_|completion_|output_)?tokens\W.{0,80}(?:too large|must be <=|at most)",
    r"token.{0,80}exceed|exceed.{0,80}token",
    r"(?:prompt|inputs?|messages?)\b.{0,60}exceed.{0,60}(?:length|limit|max)",
    r"max(?:imum)?(?: allowed)? (?:prompt|input|sequence) length|must have less than \d+ tokens",
    r"range of (?:input length|max_tokens) should be|reduce (?:the|your) (?:length|prompt|input)",
    r"number of tokens.{0,120}(?:greater|larger|more|longer) than|supports at most \d+",
    r"超长|超过.{0,30}(?:长度|上限|最大)",
)
_THING = (
    r"(?:images?|image_url|input_image|pictures?|vision|audios?|input_audio|videos?|video_url|files?|documents?"
    r"|pdfs?|media|multi-?modal\w*|tools?|tool[_ -](?:use|calls?|choice)|functions?(?: calling)?)"
)
_CONTENT = _any_of(
    r"not a (?:multi-?modal|vision)|text-only|only text\b|only (?:supports? |accepts? |takes? )text\b",
    r"(?:n't|not|cannot|no longer|unable to)\s(?:\w+\s){0,2}?"
    rf"(?:support|accept|process|handle|allow|have|see|read)\w*\W.{{0,40}}?\b{_THING}",
    rf"\b{_THING}\b.{{0,40}}(?:not|n't|un)\s?(?:be |currently |yet )?(?:support|enabl|allow|accept|available)",
    r"(?:un|not )supported (?:content|media|part|message|input|modal)\w*|invalid content type",
    rf"at most 0 {_THING}|at most \d+ (?:image|audio|video)|unknown variant\W+{_THING}\b",
    r"only supported by certain models|no endpoints found that support",
    r"content\S*type\b.{0,80}\btext\b|supported values are: 'text'",
    r"content\W.{0,40}(?:must be|should be|expected)(?: an?)?(?: valid)? (?:string|str)\b",
    r"missing data required for image|provide the mmproj|enable-auto-tool-choice",
    r"this model (?:does not|doesn't|cannot|can't)|not supported (?:by|with|for|in) this model",
)
_TOO_LARGE_AT_ONCE = re.compile(r"request too large")
"""OpenAI's 429 for a request with more tokens than a minute may have: it is never taken."""


def kind_of(fault: Fault) -> Kind:
    """What a fault is about, as far as its endpoint says."""
    if fault.for_clients or fault.unreachable:
        return Kind.ENGINE
    if fault.status == TOO_MANY:
        return Kind.TOO_LONG if _TOO_LARGE_AT_ONCE.search(_text(fault.body)) else Kind.ENGINE
    if fault.status not in SAID_IN:
        return Kind.ENGINE
    kind = _by_code(fault) or _by_words(fault)
    if kind is not None:
        return kind
    return Kind.REQUEST if fault.status in CLIENTS_FAULTS else Kind.ENGINE


def for_client(fault: Fault) -> Fault:
    """A refusal of the model as the client gets it where no other model takes the request either."""
    return fault if fault.status in (*CLIENTS_FAULTS, TOO_MANY) else replace(fault, status=400)


def _by_code(fault: Fault) -> Kind | None:
    codes = {str(one).lower() for one in _codes(_content(fault.body))}
    for known, kind in ((REQUEST_CODES, Kind.REQUEST), (TOO_LONG_CODES, Kind.TOO_LONG), (CONTENT_CODES, Kind.CONTENT)):
        if codes & known:
            return kind
    if fault.status == 413:
        return Kind.TOO_LONG
    return Kind.CONTENT if fault.status == 415 else None


def _by_words(fault: Fault) -> Kind | None:
    text = _text(fault.body)
    if _TOO_LONG.search(text):
        return Kind.TOO_LONG
    return Kind.CONTENT if _CONTENT.search(text) else None


def _content(body: bytes) -> Any:
    try:
        content = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return content[0] if isinstance(content, list) and content else content  # Gemini's is in a list


def _codes(content: Any, deep: int = 3) -> Iterator[Any]:
    """The names and numbers that stand for the kind of an error; Azure has one within the other."""
    if not isinstance(content, dict) or deep == 0:
        return
    for name in ("code", "type", "status", "error_type", "name"):
        if isinstance(content.get(name), (str, int)):
            yield content[name]
    for name in ("error", "innererror"):
        yield from _codes(content.get(name), deep - 1)


def _text(body: bytes) -> str:
    """What an error says, in lower case; that of an endpoint behind the endpoint too (OpenRouter's `metadata.raw`)."""
    content = _content(body)
    error = content.get("error") or content if isinstance(content, dict) else content
    if not isinstance(error, dict):
        return (error if isinstance(error, str) else body.decode(errors="replace"))[:LARGEST_TEXT].lower()
    metadata = error.get("metadata")
    behind = metadata.get("raw") if isinstance(metadata, dict) else None
    said = [error.get(name) for name in ("message", "detail", "msg", "param")] + [behind]
    texts = [one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in said if one]
    return " ".join(text[:LARGEST_TEXT] for text in texts).lower()
