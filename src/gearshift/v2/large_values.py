"""Check a large JSON value, and find its outermost elements, in steps between which the event loop runs.

    {"model": "chat", "messages": [{"role": "user", "content": "Hel|lo"}]|, "user": "me"}    cut (`pieces`)
    {"model": "chat", "messages": [{"role": "user", "content": "Hel"}]}                      each piece is made JSON
                                                 {"": [{"": "lo"}], "": 0}                   by what is open
                                                                  {"": 0, "user": "me"}      before and after it

So a parser in C checks all of it, and no object is made of it.
"""

from collections.abc import Generator
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput
from gearshift.v2.pieces import STEP_BYTES, pieces, without_escapes

Steps = Generator[None, None, list[tuple[int, int]]]
"""It yields where others may go on, and returns where elements begin and end."""

MOST_BLANK_STEPS = 8
"""Bound on steps in a row without a comma outside of strings, as in blanks, a number, or a name."""

_QUOTE, _COMMA, _LIST, _OBJECT, _END = 1, 2, 3, 4, 5
_KINDS = np.zeros(256, np.uint8)
for _kind, _characters in ((_QUOTE, b'"'), (_COMMA, b","), (_LIST, b"["), (_OBJECT, b"{"), (_END, b"]}")):
    _KINDS[list(_characters)] = _kind
_NOWHERE, _NO_KINDS = np.empty(0, np.int64), np.empty(0, np.uint8)
_DEEPER = np.array([0, 0, 0, 1, 1, -1], np.int64)
_OPEN = {_LIST: b"[", _OBJECT: b'{"":'}
_CLOSE = {_LIST: b"]", _OBJECT: b"}"}
_BEFORE_COMMA = {_LIST: b"[0,", _OBJECT: b'{"":0,'}
_AFTER_COMMA = {_LIST: b",0]", _OBJECT: b',"":0}'}


class TooMany(InvalidInput):
    """More elements, or more values, than are taken."""


def elements(text: memoryview, *, most: int, most_values: int, called: str = "parts") -> Steps:
    """Find the elements of a list, or the members of an object, with the blanks around them.

    Raises `TooMany` as soon as there are more than `most`, or `most_values` with all inside them, and
    `InvalidInput` for what is no JSON.
    """
    walk = _Walk(most, most_values, called)
    blank_steps = begin = 0
    for piece in pieces(text, STEP_BYTES, in_strings=True):
        yield
        if piece is None:
            blank_steps += 1
            if blank_steps > MOST_BLANK_STEPS:
                size = MOST_BLANK_STEPS * STEP_BYTES
                raise InvalidInput(f"{size} bytes outside of strings have no comma", remedy="send fewer blanks")
            continue
        blank_steps = 0
        begin = walk.take(piece, begin, last=begin + len(piece) == len(text))
    found = walk.borders
    if len(found) == 2 and not bytes(text[found[0] + 1 : found[1]]).strip():
        return []
    return [(before + 1, after) for before, after in pairwise(found)]


class _Walk:
    """`borders` are the outermost bracket, the commas in it, and its end; `_open` has the kinds of all open ones."""

    def __init__(self, most: int, most_values: int, called: str) -> None:
        self.borders: list[int] = []
        self._most, self._called, self._most_values, self._values = most, called, most_values, 1
        self._open: list[int] = []
        self._in_string = self._in_name = self._follows_colon = self._after_comma = False

    def take(self, piece: bytes, begin: int, *, last: bool) -> int:
        """Check the piece that begins there; returns where the next does."""
        if not piece.isascii():
            _decode(piece)
        before = self._before()
        at, kinds = self._structure(piece)
        self._after_comma = not (self._in_string or last)
        self._values += int(np.count_nonzero(kinds == _COMMA)) + self._after_comma
        if self._values > self._most_values:
            raise TooMany(f"has more than {self._most_values} values")
        depth = len(self._open) + np.cumsum(_DEEPER[kinds])
        borders = at[((kinds == _COMMA) & (depth == 1)) | ((kinds == _END) & (depth == 0))]
        if not self.borders and len(kinds):
            borders = np.concatenate([at[:1], borders])
        self._open_after(kinds, depth)
        self._in_name = not self._follows_colon and self._open[-1:] == [_OBJECT]
        _check(b"".join((before, piece, b"" if last else self._after())))
        end = begin + len(piece)
        self.borders += (borders + begin).tolist()
        if self._after_comma and len(self._open) == 1:
            self.borders.append(end)
        if len(self.borders) > self._most + 1:
            raise TooMany(f"has more than {self._most} {self._called}")
        return end + self._after_comma

    def _structure(self, piece: bytes) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """The places and kinds of brackets and commas outside strings."""
        if self._in_string and b'"' not in piece:
            return _NOWHERE, _NO_KINDS
        plain = without_escapes(piece)
        kinds = _KINDS[np.frombuffer(plain, np.uint8)]
        at = np.flatnonzero(kinds)
        kinds = kinds[at]
        is_quote = kinds == _QUOTE
        in_string = (np.cumsum(is_quote) + self._in_string) % 2 == 1
        if len(kinds):
            self._in_string = bool(in_string[-1])
        if self._in_string and is_quote.any():  # else it began in an earlier piece
            self._follows_colon = plain[: plain.rfind(b'"')].rstrip()[-1:] == b":"
        outside = ~(is_quote | in_string)
        return at[outside], kinds[outside]

    def _open_after(self, kinds: NDArray[np.uint8], depth: NDArray[np.int64]) -> None:
        if not len(kinds):
            return
        lowest = int(depth.min())
        if lowest < 0:
            raise InvalidInput("the body is no JSON: a bracket ends nothing")
        least_from = np.minimum.accumulate(depth[::-1])[::-1]
        stay = ((kinds == _LIST) | (kinds == _OBJECT)) & (depth == least_from)
        self._open[lowest:] = kinds[stay].tolist()

    def _before(self) -> bytes:
        """The text that makes what is open, up to the next piece."""
        outer, inner = self._open[:-1], self._open[-1:]
        parts = [_OPEN[kind] for kind in outer]
        if self._in_string and self._in_name:
            return b"".join(parts) + b'{"'
        parts += [(_BEFORE_COMMA if self._after_comma else _OPEN)[kind] for kind in inner]
        return b"".join(parts) + (b'"' if self._in_string else b"")

    def _after(self) -> bytes:
        """The text that closes what is open, after the last piece."""
        parts = [_CLOSE[kind] for kind in reversed(self._open)]
        if self._in_string:
            return (b'":0' if self._in_name else b'"') + b"".join(parts)
        if not parts:
            return b",0"  # a comma after the whole value
        return b"".join([_AFTER_COMMA[self._open[-1]], *parts[1:]])


def _check(text: bytes) -> None:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        said = str(error).partition(" (byte")[0]
        raise InvalidInput(f"the body is no JSON: {said}") from None


def _decode(piece: bytes) -> None:
    try:
        piece.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is no utf-8: {error.reason}") from None
