"""The chunks of an answer as clients get them: under the pipeline's name, without what they have not asked for."""

import math
from typing import Any

import msgspec

from gearshift.runtime.engines.answers.answer_stream import AnswerStream
from gearshift.runtime.engines.requests.asked import Asked

NULL, FIRST, ASSISTANT = msgspec.Raw(b"null"), msgspec.Raw(b"0"), msgspec.Raw(b'"assistant"')
Fields = dict[str, Any]
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_choices = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_encode = msgspec.json.Encoder().encode


class Cleaner:
    """Makes of an engine's chunk the one that a client gets."""

    __slots__ = ("_adds_null_usage", "_drops_logprobs", "_is_chat", "_most_top", "_named", "_roles")

    def __init__(self, served: str, asked: Asked) -> None:
        self._named = msgspec.Raw(_encode(served))
        self._drops_logprobs, self._most_top = asked.top_logprobs is None, asked.top_logprobs or 0
        self._is_chat, self._adds_null_usage = asked.is_chat, asked.streamed and asked.include_usage
        self._roles: set[bytes] = set()
        """Choices, by index, whose role was told."""

    def clean(self, data: bytes) -> dict[str, msgspec.Raw]:
        fields = _decode(data)
        fields["model"] = self._named
        fields.pop("usage", None)
        if self._adds_null_usage:
            fields["usage"] = NULL
        choices = _decode_choices(fields["choices"])
        for choice in choices:
            logprobs = choice.get("logprobs", NULL)
            if logprobs != NULL and self._drops_logprobs:
                choice["logprobs"] = NULL
            elif logprobs != NULL:
                choice["logprobs"] = self._cut(logprobs)
            if choice.get("index", NULL) == NULL:
                choice["index"] = FIRST
            if self._is_chat:
                self._tell_role(choice)
        fields["choices"] = msgspec.Raw(_encode(choices))
        return fields

    def _cut(self, logprobs: msgspec.Raw) -> msgspec.Raw:
        """With as many of the likeliest tokens as were asked for; null where a number in it is none."""
        try:
            cut = _with_top(msgspec.json.decode(logprobs), self._most_top)
        except msgspec.MsgspecError:
            return NULL
        return logprobs if cut is None else msgspec.Raw(_encode(cut))

    def _tell_role(self, choice: dict[str, msgspec.Raw]) -> None:
        """The first part of each choice tells its role, even where the engine has not."""
        index = bytes(choice["index"])
        if index in self._roles:
            return
        self._roles.add(index)
        given = choice.get("delta", NULL)
        delta = {} if given == NULL else _decode(given)
        if delta.get("role", NULL) == NULL:
            choice["delta"] = msgspec.Raw(_encode({**delta, "role": ASSISTANT}))


def has_ended(fields: dict[str, msgspec.Raw]) -> bool:
    """Whether a choice of a chunk tells why it ended."""
    return any(choice.get("finish_reason", NULL) != NULL for choice in _decode_choices(fields["choices"]))


def _with_top(logprobs: Fields, most: int) -> Fields | None:
    """With at most so many of the likeliest tokens for each; None where there are no more.

    Of a text completion the token itself stays too, as in OpenAI's API.
    """
    cut = False
    for token in logprobs.get("content") or ():
        if len(top := token.get("top_logprobs") or ()) > most:
            token["top_logprobs"], cut = sorted(top, key=_likelihood, reverse=True)[:most], True
    tops = logprobs.get("top_logprobs") or []
    for place, (top, token) in enumerate(zip(tops, logprobs.get("tokens") or [None] * len(tops), strict=False)):
        if top and len(top) > most:
            likeliest = sorted(top, key=lambda name: _number(top[name]), reverse=True)[:most]
            tops[place] = {name: value for name, value in top.items() if name in likeliest or name == token}
            cut = cut or len(tops[place]) < len(top)
    return logprobs if cut else None


def _likelihood(one: Fields) -> float:
    return _number(one.get("logprob", 0.0))


def _number(logprob: float | None) -> float:
    return -math.inf if logprob is None else logprob


def usage_of(stream: AnswerStream) -> Fields | None:
    """As the engine that answered has counted, for several choices at least what came; None where it has not."""
    usage = stream.usage
    if usage is not None and stream.asked.choices > 1:
        usage = msgspec.structs.replace(usage, completion_tokens=stream.output_tokens)
    return None if usage is None else usage.counted()


def facts_of(stream: AnswerStream, model: str) -> Fields:
    """The way a request was answered: an extension of OpenAI's form."""
    request, usage = stream.request, stream.usage
    stages = [
        {"model": stage.model, "prompt_tokens": stage.prompt_tokens, "completion_tokens": stage.output_tokens}
        for stage in stream.stages
    ]
    prompt_tokens = 0 if usage is None else usage.prompt_tokens
    stages.append({"model": model, "prompt_tokens": prompt_tokens, "completion_tokens": stream.output_tokens})
    certainty = stream.answers_certainty
    return {
        "model": model,
        "stage": request.stage,
        "gear": request.gear,
        "certainty": certainty if math.isfinite(certainty) else None,
        "outcome": stream.outcome,
        "decided_at_token": request.decided_at,
        "ttft_s": (stream.answered_ns - stream.arrived_ns) / 1e9,
        "stages": stages,
    }


def headers_of(stream: AnswerStream, model: str) -> list[tuple[bytes, bytes]]:
    request = stream.request
    headers = [
        (b"x-gearshift-model", model.encode()),
        (b"x-gearshift-stage", b"%d" % request.stage),
        (b"x-gearshift-gear", b"%d" % request.gear),
    ]
    if math.isfinite(stream.answers_certainty):
        headers.append((b"x-gearshift-certainty", f"{stream.answers_certainty:.6g}".encode()))
    if stream.outcome != "answered":
        headers.append((b"x-gearshift-outcome", stream.outcome.encode()))
    return headers
