import json
from typing import Any

import pytest

from gearshift.serving.openai import inline_data
from gearshift.serving.openai.inline_data import Inline

DATA = "iVBOR" * 1000
TEXT = {"type": "text", "text": "what is this?"}
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
LINKED = {"type": "image_url", "image_url": {"detail": "low", "url": "https://example.org/cat.png"}}
SHORT = {"type": "image_url", "image_url": f"data:image/png;base64,{DATA}"}
SOUND = {"type": "input_audio", "input_audio": {"format": "wav", "data": DATA}}
FILE = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{DATA}"}}
STORED = {"type": "file", "file": {"file_id": "file-1"}}


def read(text: bytes) -> Inline:
    steps = inline_data.inline_data(memoryview(text))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Inline = end.value
            return found


def found(content: Any, indent: int | None = None) -> tuple[Inline, int]:
    """What is inline, and the size of all."""
    text = json.dumps([{"role": "user", "content": content}], indent=indent).encode()
    return read(text), len(text)


@pytest.mark.parametrize("step_bytes", [16, 1 << 17])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("part", [PICTURE, LINKED, SHORT, SOUND, FILE, STORED])
def test_data_and_addresses_are_no_text(
    part: dict[str, Any], indent: int | None, step_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline_data, "STEP_BYTES", step_bytes)
    one, size_bytes = found([TEXT, part], indent)
    assert one.media == 1
    assert size_bytes - one.size_bytes < 300
    several, size_bytes = found([part, TEXT, part, part], indent)
    assert several.media == 3
    assert size_bytes - several.size_bytes < 800


@pytest.mark.parametrize(
    "content",
    [
        "data:" + DATA,
        [TEXT, {"type": "text", "text": f'{{"url": "data:{DATA}"}}'}],
        [{"type": "custom", "custom": {"data": DATA}}],
        [{"type": "custom", "custom": {"url": DATA}}],
        'image_url": {"url": ' + DATA,
    ],
)
def test_text_that_looks_like_data_is_text(content: Any) -> None:
    assert found(content)[0] == Inline(0, 0)


def test_data_without_an_end_ends_with_the_messages() -> None:
    assert read(b'[{"url":"data:' + b"a" * 1000) == Inline(1000, 0)
