"""A whole answer, put together from the chunks of a stream, as its engine would have given it without one.

Engines differ in how they part an answer (`tests/unit/serving/openai/vendor_streams.py` has twelve of
them). Texts grow; lists grow by what follows, and an item goes on with the one before where it has
the same type and index; of other fields the latest value counts that is not blank.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from gearshift.runtime.engines.answers.tool_calls import Places, name_after

LARGEST_BYTES = 64 << 20
"""Bound on the memory of one answer."""
VALUE_BYTES, FIELD_BYTES = 200, 200
"""Memory of a value in a list of objects, and of a field of an answer, beside the bytes of their JSON."""
MOST_FIELDS, MOST_ITEMS = 1 << 10, 1 << 12
"""Fields of an object that are kept, and values of a list that is taken apart; longer lists are joined as they are."""
MOST_CALLS = 1 << 10
"""Calls of tools in one choice; an answer with more is full."""
DEEPEST = 8
"""Objects within objects that are put together; what is deeper is taken as it came last."""
TEXTS = frozenset({
    "arguments", "content", "input", "reasoning", "reasoning_content", "reasoning_text", "refusal", "summary", "text",
    "thinking", "thought", "transcript",
})  # fmt: skip
"""Texts that come in parts."""
BLANKS = frozenset((b"null", b'""', b"[]", b"{}"))
"""Values that never replace another."""
OF_CHUNKS = frozenset(("choices", "usage", "obfuscation"))
"""Fields of chunks that are no part of the answer, or come from elsewhere."""
NULL, NO_TEXT = msgspec.Raw(b"null"), msgspec.Raw(b'""')
Fields = dict[str, Any]
Encoded = dict[str, bytes]
"""Fields whose values are JSON."""
_decode = msgspec.json.decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.encode
_decode_text = msgspec.json.Decoder(str).decode


class Assembly:
    """`add` takes the chunks, already cleaned; `is_full` tells that they were too many."""

    def __init__(self, *, is_chat: bool) -> None:
        self._is_chat, self.size_bytes = is_chat, 0
        self._base: Encoded = {}
        self._choices: dict[int, _Choice] = {}

    @property
    def is_full(self) -> bool:
        return self.size_bytes > LARGEST_BYTES

    def add(self, chunk: Mapping[str, msgspec.Raw]) -> None:
        for name, value in islice(chunk.items(), MOST_FIELDS):
            if name not in OF_CHUNKS:
                self._add_field(name, bytes(value))
        choices = bytes(chunk["choices"])
        self.size_bytes += len(choices)
        for one in _decode_list(choices):
            part = _fields_of(bytes(one))
            index = _decode(part.pop("index", b"0")) or 0
            if index not in self._choices:
                self._choices[index] = _Choice()
            self.size_bytes += self._choices[index].add(part)

    def _add_field(self, name: str, value: bytes) -> None:
        """Azure's last chunks have a blank id and the time 0."""
        before = self._base.get(name)
        if before is not None and (value in BLANKS or value == b"0"):
            return
        if before is None and len(self._base) >= MOST_FIELDS:
            return
        self.size_bytes += len(value) - len(before) if before is not None else len(value) + FIELD_BYTES
        self._base[name] = value

    def whole(self) -> Fields:
        """The answer, without usage."""
        choices = [{"index": index, **self._choices[index].whole(self._is_chat)} for index in sorted(self._choices)]
        kind = "chat.completion" if self._is_chat else "text_completion"
        return {name: msgspec.Raw(value) for name, value in self._base.items()} | {"object": kind, "choices": choices}


class _Choice:
    __slots__ = ("_fields", "_logprobs", "_message")

    def __init__(self) -> None:
        self._fields, self._message = _Object(), _Object()
        self._logprobs: _Object | None = None

    def add(self, part: Encoded) -> int:
        """The memory that it takes beside the bytes of the part."""
        delta, message, logprobs = part.pop("delta", None), part.pop("message", None), part.pop("logprobs", None)
        if delta is None or delta == b"null":
            delta = message  # with both, as Perplexity has them, the message repeats all so far
        size_bytes = self._fields.add_all(part)
        if delta is not None and delta[:1] == b"{":
            size_bytes += self._message.add_all(_fields_of(delta))
        if logprobs is not None and logprobs[:1] == b"{":
            if self._logprobs is None:
                self._logprobs = _Object(keeps_lists_raw=True)
            size_bytes += self._logprobs.add_all(_fields_of(logprobs))
        return size_bytes

    def whole(self, is_chat: bool) -> Fields:
        fields = self._fields.whole()
        fields["logprobs"] = None if self._logprobs is None else self._logprobs.whole()
        fields.setdefault("finish_reason", None)
        if not is_chat:
            fields.setdefault("text", "")
            return fields
        message: Fields = {"role": "assistant", "content": None} | self._message.whole()
        calls = message.get("tool_calls")
        if calls is None or calls == NULL:
            message.pop("tool_calls", None)
        elif calls and message["content"] == NO_TEXT:
            message["content"] = None
        return fields | {"message": message}


class _Text(list[bytes]):
    """A text that is joined once, of parts as they stand in JSON between quotation marks."""

    def whole(self) -> msgspec.Raw:
        return msgspec.Raw(b'"%b"' % b"".join(self))


class _List(list[bytes]):
    """The inside of lists that follow on one another, never taken apart."""

    def whole(self) -> msgspec.Raw:
        return msgspec.Raw(b"[%b]" % b",".join(self))


class _Object:
    """An object whose fields come in parts."""

    __slots__ = ("_depth", "_fields", "_keeps_lists_raw", "_texts")

    def __init__(self, texts: frozenset[str] = TEXTS, *, depth: int = 0, keeps_lists_raw: bool = False) -> None:
        self._texts, self._depth, self._keeps_lists_raw = texts, depth, keeps_lists_raw
        self._fields: Fields = {}

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def get(self, name: str) -> Any:
        """A field that is not put together of parts."""
        return self._fields.get(name)

    def set(self, name: str, value: Any) -> None:
        self._fields[name] = value

    def add_all(self, part: Encoded) -> int:
        return sum([self.add(name, value) for name, value in islice(part.items(), MOST_FIELDS)])

    def add(self, name: str, value: bytes) -> int:
        """The memory that it takes beside the bytes of the value."""
        before = self._fields.get(name)
        if before is None and len(self._fields) >= MOST_FIELDS:
            return 0
        if isinstance(before, bytes) and before in BLANKS and value not in (b"null", before):
            before = None
        if value in BLANKS and name in self._fields and before is not None:
            return 0
        first = value[:1]
        if first == b'"' and name in self._texts:
            return self._add_text(name, before, value[1:-1])
        if first == b"[" and value not in BLANKS:
            return self._add_list(name, before, value)
        if first == b"{" and value not in BLANKS:
            return self._add_object(name, before, value)
        return self._replace(name, value)

    def whole(self) -> Fields:
        return {name: _whole(value) for name, value in self._fields.items()}

    def _replace(self, name: str, value: bytes) -> int:
        size_bytes = 0 if name in self._fields else FIELD_BYTES
        self._fields[name] = value
        return size_bytes

    def _add_text(self, name: str, before: Any, text: bytes) -> int:
        """`text` is JSON between quotation marks."""
        if isinstance(before, _Text):
            if text:
                before.append(text)
            return 0
        if isinstance(before, _Items):  # content that was a list of parts so far
            return before.add_text(text)
        self._fields[name] = _Text((text,) if text else ())
        return FIELD_BYTES

    def _add_list(self, name: str, before: Any, value: bytes) -> int:
        if name == "tool_calls":
            calls = before if isinstance(before, _Calls) else _Calls()
            self._fields[name] = calls
            return calls.add(value)
        inside = value[1:-1].strip()
        if not isinstance(before, _List) and value.count(b"{") > MOST_ITEMS:
            earlier = _encode(_whole(before))[1:-1] if isinstance(before, _Items) else b""
            before = self._fields[name] = _List((earlier,) if earlier else ())
        if self._keeps_lists_raw or inside[:1] != b"{" or isinstance(before, _List) or self._depth >= DEEPEST:
            if isinstance(before, _List):
                before.append(inside)
                return 0
            self._fields[name] = _List((inside,))
            return FIELD_BYTES
        items = before if isinstance(before, _Items) else _Items(self._texts, self._depth + 1)
        self._fields[name] = items
        if isinstance(before, _Text) and before:
            items.add_text(b"".join(before))
        return items.add(value)

    def _add_object(self, name: str, before: Any, value: bytes) -> int:
        if name == "tool_calls":  # one alone
            return self._add_list(name, before, b"[%b]" % value)
        if name == "arguments":  # whole, as an object
            return self._add_text(name, before, _encode(value.decode())[1:-1])
        if self._depth >= DEEPEST:
            return self._replace(name, value)
        texts = TEXTS | {"data"} if name == "audio" else TEXTS
        inner = before if isinstance(before, _Object) else _Object(texts, depth=self._depth + 1)
        self._fields[name] = inner
        part = _fields_of(value)
        if name == "function_call":
            _name_call(inner, part)
        return FIELD_BYTES + inner.add_all(part)


class _Items:
    """A list of objects: parts of content, of reasoning, sources."""

    __slots__ = ("_depth", "_items", "_texts")

    def __init__(self, texts: frozenset[str], depth: int) -> None:
        self._texts, self._depth = texts, depth
        self._items: list[_Object | bytes] = []

    def add(self, value: bytes) -> int:
        for order, one in enumerate(_decode_list(value)):
            part = bytes(one)
            if part[:1] == b"{":
                self._add(_fields_of(part), is_first=order == 0)
            else:
                self._items.append(part)
        return VALUE_BYTES * (value.count(b",") + value.count(b"{") + value.count(b"["))

    def add_text(self, text: bytes) -> int:
        return self.add(b'[{"type":"text","text":"%b"}]' % text)

    def whole(self) -> list[Any]:
        return [_whole(one) for one in self._items]

    def _add(self, part: Encoded, *, is_first: bool) -> None:
        last = self._items[-1] if self._items else None
        if isinstance(last, _Object) and self._goes_on(last, part, is_first=is_first):
            last.add_all(part)
            return
        item = _Object(self._texts, depth=self._depth)
        item.add_all(part)
        self._items.append(item)

    @staticmethod
    def _goes_on(last: _Object, part: Encoded, *, is_first: bool) -> bool:
        """Whether a part is more of the last item: of the same type, index and kind of text."""
        same = all(last.get(name) == part.get(name) for name in ("type", "index"))
        return same and (is_first or "index" in part) and any(name in last for name in part if name in TEXTS)


class _Calls:
    """Calls of tools."""

    __slots__ = ("_calls", "_places")

    def __init__(self) -> None:
        self._places = Places()
        self._calls: list[_Object] = []

    def add(self, value: bytes) -> int:
        parts, size_bytes = [bytes(one) for one in _decode_list(value)], 0
        for order, one in enumerate(parts):
            part = _fields_of(one)
            called = "custom" if "custom" in part else "function"
            given = part.pop(called, None)
            fields = _fields_of(given) if given is not None and given[:1] == b"{" else {}
            name, arguments = (
                _text(fields.get(key)) for key in ("name", "input" if called == "custom" else "arguments")
            )
            id, index = (_decode(part.get(key, b"null")) for key in ("id", "index"))
            part.pop("index", None)
            place = self._places.of(id, index, name, arguments, order=order, among=len(parts))
            if place >= MOST_CALLS:
                return LARGEST_BYTES + 1
            if place == len(self._calls):
                self._calls.append(_Object(depth=1))
                size_bytes += 2 * FIELD_BYTES
            call = self._calls[place]
            if call.get("id") not in (None, *BLANKS):
                part.pop("id", None)
            size_bytes += call.add_all(part)
            if fields:
                size_bytes += self._add_fields(call, called, fields)
        return size_bytes

    @staticmethod
    def _add_fields(call: _Object, called: str, fields: Encoded) -> int:
        function = call.get(called)
        if not isinstance(function, _Object):
            function = _Object(depth=2)
            call.set(called, function)
        _name_call(function, fields)
        return function.add_all(fields)

    def whole(self) -> list[Fields]:
        for one in self._calls:
            function = one.get("function")
            if isinstance(function, _Object) and function.get("arguments") in (None, b"null"):
                function.set("arguments", b'""')
        return [one.whole() for one in self._calls]


def _name_call(function: _Object, part: Encoded) -> None:
    """Join the name of a part of a call with the one before."""
    name, before = _text(part.pop("name", None)), function.get("name")
    if name or before is None:
        has_arguments = any(bool(function.get(one)) for one in ("arguments", "input"))
        named = name_after("" if before is None else before, name, has_arguments=has_arguments)
        function.set("name", named)


def _fields_of(value: bytes) -> Encoded:
    return {name: bytes(one) for name, one in _decode_raw(value).items()}


def _text(value: bytes | None) -> str:
    """A text, or the JSON of an object."""
    if value is None or value[:1] not in (b'"', b"{"):
        return ""
    return _decode_text(value) if value[:1] == b'"' else value.decode()


def _whole(value: Any) -> Any:
    if isinstance(value, bytes):
        return msgspec.Raw(value)
    return value if isinstance(value, str) else value.whole()
