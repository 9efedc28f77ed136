"""Pictures, sounds and files in the messages of a chat, whose data is no text that a model reads.

{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBOR..."}}
{"type": "input_audio", "input_audio": {"data": "UklGR...", "format": "wav"}}
{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBER..."}}
"""

import re
from collections.abc import Generator
from typing import NamedTuple

from gearshift.v2.pieces import STEP_BYTES

_PART = re.compile(
    rb'"(?:(?P<medium>image_url|video_url|audio_url|input_audio|file)|(?P<field>url|data|file_data))"'
    rb'\s{0,16}:\s{0,16}(?:(?P<text>")(?P<address>data:|https?:)?|\{)'
)
_LONGEST_PART = 64
_QUOTE = re.compile(rb'"')
_SOUND, _LOOK_BACK_BYTES = b'"input_audio"', 128


class Inline(NamedTuple):
    """`size_bytes` are those of data and addresses, `media` the things that these are."""

    size_bytes: int
    media: int


def inline_data(messages: memoryview) -> Generator[None, None, Inline]:
    """Find them in JSON text, in steps; it is no matter if one is missed, or what only looks like one is counted."""
    at = begin = size_bytes = media = 0
    while at < len(messages):
        stop = at + STEP_BYTES
        while at < stop:
            found = _PART.search(messages, at, stop + _LONGEST_PART)
            if found is None or found.start() >= stop:
                at = stop
                break
            at = begin = found.end()
            media += found["medium"] is not None
            if _is_data(messages, found):
                while (quote := _QUOTE.search(messages, at, at + STEP_BYTES)) is None and at < len(messages):
                    at += STEP_BYTES
                    yield
                at = len(messages) if quote is None else quote.start()
                size_bytes += at - begin
        yield
    return Inline(size_bytes, media)


def _is_data(messages: memoryview, found: re.Match[bytes]) -> bool:
    if found["text"] is None:
        return False
    if found["field"] == b"data":
        return _SOUND in bytes(messages[max(0, found.start() - _LOOK_BACK_BYTES) : found.start()])
    return found["address"] is not None or found["field"] == b"file_data"
