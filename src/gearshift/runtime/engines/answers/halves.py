"""Chunks that are no JSON as it should be: characters split over chunks, and numbers that are none.

Characters are split into halves of surrogate pairs, or into parts of UTF-8. Python writes NaN and Infinity.
"""

import json
import re
from typing import Any

from gearshift.runtime.engines.upstream.chunk import has_too_many_values

TEXTS = "content", "reasoning_content", "reasoning", "reasoning_text", "thinking", "refusal"
"""Fields of a delta whose parts follow one another, as does the text of a text completion."""
OPEN_END = re.compile(
    "(?:[\ud800-\udbff]|[\udcf0-\udcf4][\udc80-\udcbf]{0,2}|[\udce0-\udcef][\udc80-\udcbf]?|[\udcc2-\udcdf])$"
)
LARGEST_SPLIT_BYTES = 256 << 10
"""Characters that are whole need no mending; to mend these bytes takes up to 0.1 s where none is."""
MOST_HELD = 512
"""Texts of one answer that are amid a character."""
Place = tuple[Any, str]


class Halves:
    """Makes a stream's chunks valid: what can go on in the next chunk is held until then, the rest is replaced.

    Only chunks with escaped surrogates, with bytes that are no UTF-8 or with `NaN` and `Infinity` are
    taken apart, and those that follow on one that ended amid a character.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[Place, str] = {}

    def mend(self, data: bytes) -> bytes:
        """The chunk in valid UTF-8 and JSON; as it came where it is neither split nor JSON."""
        is_split = may_be_split(data)
        if not self._held and not is_split and not has_no_number(data):
            return data
        if has_too_many_values(data) or (is_split and len(data) > LARGEST_SPLIT_BYTES):
            return data
        try:
            chunk = json.loads(data.decode("utf-8", "surrogateescape"), parse_constant=_null)
            self._join_texts(chunk)
            return json.dumps(_whole(chunk), ensure_ascii=False, separators=(",", ":")).encode()
        except (ValueError, RecursionError):
            return data

    def _join_texts(self, chunk: Any) -> None:
        for choice in _dicts(chunk.get("choices") if isinstance(chunk, dict) else None):
            ends = bool(choice.get("finish_reason"))
            fields: dict[str, Any] = choice
            names: tuple[str, ...] = ("text",)
            if isinstance(choice.get("delta"), dict):
                fields, names = choice["delta"], TEXTS
            for name in names:
                place = repr(choice.get("index", 0)), name
                text = fields.get(name)
                if (isinstance(text, str) and text) or (ends and place in self._held):
                    fields[name] = self._joined(place, text or "", ends=ends)

    def _joined(self, place: Place, text: str, *, ends: bool) -> str:
        text = _paired(self._held.pop(place, "") + text)
        found = None if ends or len(self._held) >= MOST_HELD else OPEN_END.search(text)
        if found is None:
            return text
        self._held[place] = found[0]
        return text[: found.start()]


def may_be_split(data: bytes) -> bool:
    """Whether a chunk has escaped surrogates, or is no UTF-8."""
    if b"\\ud" in data or b"\\uD" in data:
        return True
    if data.isascii():
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return False


def has_no_number(data: bytes) -> bool:
    """Whether a chunk may have `NaN` or `Infinity`."""
    return b"NaN" in data or b"Infinity" in data


def _null(constant: str) -> None:
    return None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _paired(text: str) -> str:
    """With the halves of each pair put together, and single bytes that make a character."""
    if text.isascii():
        return text
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    try:
        return paired.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # other halves
        return paired


def _whole(value: Any) -> Any:
    """With characters that lack a half replaced, in all texts."""
    if isinstance(value, str):
        return _replaced(value)
    if isinstance(value, list):
        return [_whole(one) for one in value]
    if isinstance(value, dict):
        return {_replaced(name): _whole(one) for name, one in value.items()}
    return value


def _replaced(text: str) -> str:
    if text.isascii():
        return text
    return _SINGLE.sub("\ufffd", text)


_SINGLE = re.compile("[\ud800-\udbff]|[\udc80-\udcff]+|[\udc00-\udfff]")
