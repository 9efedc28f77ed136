"""A whole answer, put together from the chunks of a stream."""

from collections.abc import Mapping
from typing import Any

import msgspec

LARGEST_BYTES = 64 << 20
"""Bound on the memory of one answer."""
LOGPROBS_BYTES = 6
"""Memory of log-probabilities for each byte of their JSON; 5 were measured."""
GROWING = frozenset({"content", "text", "arguments", "refusal", "reasoning", "reasoning_content", "thinking"})
"""Texts that come in parts; of other fields the last value counts."""
Fields = dict[str, Any]


class _Parts(list[str]):
    """A text that is joined once, as it would else be copied with each part."""


class Assembly:
    """`add` takes the chunks, already cleaned; `is_full` tells that they were too many."""

    def __init__(self, *, is_chat: bool) -> None:
        self._is_chat, self.size_bytes = is_chat, 0
        self._base: Fields = {}
        self._choices: dict[int, Fields] = {}

    @property
    def is_full(self) -> bool:
        return self.size_bytes > LARGEST_BYTES

    def add(self, chunk: Mapping[str, msgspec.Raw]) -> None:
        for name, value in chunk.items():
            if name not in ("choices", "usage"):
                self._base[name] = value
        factor = 1
        for part in msgspec.json.decode(chunk["choices"]):
            index = part.pop("index", 0)
            choice = self._choices.setdefault(index, {"index": index})
            delta = part.pop("delta", None)
            logprobs = part.pop("logprobs", None)
            if delta:
                _merge(choice.setdefault("message", {}), delta)
            if logprobs:
                factor = LOGPROBS_BYTES
                _extend(choice, logprobs)
            _merge(choice, {name: value for name, value in part.items() if value is not None or name not in choice})
        self.size_bytes += factor * len(chunk["choices"])

    def whole(self) -> Fields:
        """The answer, without usage."""
        choices = [_joined(self._choices[index]) for index in sorted(self._choices)]
        for choice in choices:
            choice.setdefault("logprobs", None)
            choice.setdefault("finish_reason", None)
            if self._is_chat:
                self._finish_message(choice.setdefault("message", {}))
            else:
                choice.setdefault("text", "")
        kind = "chat.completion" if self._is_chat else "text_completion"
        return self._base | {"object": kind, "choices": choices}

    @staticmethod
    def _finish_message(message: Fields) -> None:
        message.setdefault("role", "assistant")
        message.setdefault("content", None)
        if message.get("tool_calls"):
            calls = message["tool_calls"]
            message["tool_calls"] = [
                {name: value for name, value in call.items() if name != "index"} for call in calls.values()
            ]
            message["content"] = message["content"] or None


def _merge(into: Fields, part: Fields) -> None:
    for name, value in part.items():
        before = into.get(name)
        if name == "tool_calls" and isinstance(value, list):
            calls = into.setdefault(name, {})
            for place, call in enumerate(value):
                _merge(calls.setdefault(call.get("index", place), {}), call)
        elif isinstance(value, str) and name in GROWING:
            if isinstance(before, _Parts):
                before.append(value)
            else:
                into[name] = _Parts((value,))
        elif isinstance(value, dict):
            _merge(into.setdefault(name, {}) if isinstance(before, dict) else _new(into, name), value)
        elif value is not None or before is None:
            into[name] = value


def _joined(value: Any) -> Any:
    if isinstance(value, _Parts):
        return "".join(value)
    return {name: _joined(one) for name, one in value.items()} if isinstance(value, dict) else value


def _new(into: Fields, name: str) -> Fields:
    made: Fields = {}
    into[name] = made
    return made


def _extend(choice: Fields, logprobs: Fields) -> None:
    before = choice.get("logprobs")
    if before is None:
        choice["logprobs"] = logprobs
        return
    for name, value in logprobs.items():
        if isinstance(value, list) and isinstance(before.get(name), list):
            before[name].extend(value)
        elif value is not None:
            before[name] = value
