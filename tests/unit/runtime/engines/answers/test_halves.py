"""Characters that an engine splits over chunks."""

import json
from typing import Any

import pytest

from gearshift.runtime.engines.answers.halves import LARGEST_SPLIT_BYTES, MOST_HELD, Halves
from gearshift.runtime.engines.upstream.chunk import MOST_VALUES

FIRST, SECOND, WHOLE = "\ud83d", "\ude00", "\N{GRINNING FACE}"


def chunk(*texts: str | None, finish: str | None = None, first: int = 0) -> bytes:
    """Of a chat, with a choice for each text; halves are escaped."""
    choices = [
        {"index": first + place, "delta": {} if text is None else {"content": text}, "finish_reason": finish}
        for place, text in enumerate(texts)
    ]
    return json.dumps({"choices": choices}).encode()


def texts(data: bytes) -> list[Any]:
    return [one["delta"].get("content") for one in json.loads(data)["choices"]]


def test_each_choice_has_halves_of_its_own() -> None:
    halves = Halves()
    assert texts(halves.mend(chunk(f"a{FIRST}", f"b{FIRST}"))) == ["a", "b"]
    assert texts(halves.mend(chunk(SECOND, first=1))) == [WHOLE]
    assert texts(halves.mend(chunk(f"{SECOND}c"))) == [f"{WHOLE}c"]


def test_the_fields_of_one_choice_have_halves_of_their_own() -> None:
    halves = Halves()
    halves.mend(json.dumps({"choices": [{"delta": {"content": FIRST, "reasoning": f"r{FIRST}"}}]}).encode())
    mended = halves.mend(json.dumps({"choices": [{"delta": {"content": "a", "reasoning": SECOND}}]}).encode())
    assert json.loads(mended)["choices"][0]["delta"] == {"content": "\ufffda", "reasoning": WHOLE}


def test_a_half_that_is_left_is_replaced_where_its_choice_ends_alone() -> None:
    halves = Halves()
    halves.mend(chunk(f"a{FIRST}", f"b{FIRST}"))
    assert texts(halves.mend(chunk(None, finish="stop"))) == ["\ufffd"]
    assert texts(halves.mend(chunk(SECOND, first=1))) == [WHOLE]


def test_no_more_halves_are_held_than_bounded() -> None:
    halves = Halves()
    held = texts(halves.mend(chunk(*[FIRST] * (MOST_HELD + 1))))
    assert held == [""] * MOST_HELD + ["\ufffd"]
    second = texts(halves.mend(chunk(*[SECOND] * (MOST_HELD + 1))))
    assert second == [WHOLE] * MOST_HELD + ["\ufffd"]


@pytest.mark.parametrize(
    "data",
    [f'{{"choices": [{{"text": "{WHOLE}"}}]}}'.encode(), chunk("plain"), b"\xff no JSON", b"[" * 100_000 + b"\xff"],
    ids=["whole", "plain", "no JSON", "too deep"],
)
def test_what_is_whole_or_no_json_stays_as_it_came(data: bytes) -> None:
    assert Halves().mend(data) is data


def test_numbers_that_json_does_not_have_are_null() -> None:
    mended = Halves().mend(b'{"choices": [], "a": NaN, "b": -Infinity, "c": "NaN"}')
    assert json.loads(mended) == {"choices": [], "a": None, "b": None, "c": "NaN"}


@pytest.mark.parametrize(
    "data",
    [
        b'{"choices": [], "a": NaN, "b": [%b]}' % b",".join([b"{}"] * MOST_VALUES),
        b'{"choices": [], "a": "%b"}' % (b"\\ud83d" * (LARGEST_SPLIT_BYTES // 6)),
        b'{"choices": [], "a": "%b"}' % (b"\xf0\x9f" * (LARGEST_SPLIT_BYTES // 2)),
    ],
    ids=["values", "halves", "parts"],
)
def test_what_would_take_long_to_mend_stays_as_it_came(data: bytes) -> None:
    assert Halves().mend(data) is data


def test_a_large_chunk_with_whole_characters_in_escapes_is_as_it_came() -> None:
    data = b'{"choices": [{"delta": {"content": "%b"}}]}' % (b"\\ud83d\\ude00" * (LARGEST_SPLIT_BYTES // 12))
    assert Halves().mend(data) is data
    assert json.loads(data)["choices"][0]["delta"]["content"].startswith(WHOLE)
