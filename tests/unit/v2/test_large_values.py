"""Large values are checked as a parser checks them, whatever is cut where."""

import json
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from gearshift.errors import InvalidInput
from gearshift.v2 import large_values
from gearshift.v2.large_values import TooMany, elements
from gearshift.v2.pieces import pieces

STEP_BYTES = 64
TEXT = st.text(max_size=40) | st.sampled_from(['","' * 30, "\\" * 99, "é€😀" * 30, '\\"]}' * 20, "a" * 200])
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**6) | TEXT,
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_values, "STEP_BYTES", STEP_BYTES)


def found(text: bytes, most: int = 1 << 10, most_values: int = 1 << 20) -> list[bytes]:
    steps: Generator[None, None, list[tuple[int, int]]] = elements(memoryview(text), most=most, most_values=most_values)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return [text[begin:end] for begin, end in end.value]


@given(st.lists(VALUE, max_size=12), st.booleans(), st.sampled_from([None, 1]))
def test_the_elements_of_a_list_are_those_that_a_parser_finds(
    values: list[Any], ascii: bool, indent: int | None
) -> None:
    text = json.dumps(values, ensure_ascii=ascii, indent=indent).encode()
    assert [json.loads(one) for one in found(text)] == values


@given(st.dictionaries(TEXT, VALUE, max_size=8), st.booleans())
def test_the_members_of_an_object_are_those_that_a_parser_finds(values: dict[str, Any], ascii: bool) -> None:
    members = found(json.dumps(values, ensure_ascii=ascii).encode())
    assert [json.loads(b"{%b}" % one) for one in members] == [{name: value} for name, value in values.items()]


@given(st.lists(VALUE, min_size=1, max_size=8), st.booleans(), st.data())
def test_what_is_no_json_is_refused_wherever_it_is_cut(values: list[Any], ascii: bool, data: st.DataObject) -> None:
    text = bytearray(json.dumps(values, ensure_ascii=ascii).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    wrong = data.draw(st.sampled_from([b"", b",", b"]", b"[", b"}", b"{", b'"', b":", b"\\", b"\xff", b"\x01", b"0 0"]))
    text[at : at + 1] = wrong
    text[:0] = b"["
    text.append(ord("]"))
    given = bytes(text)
    try:
        given.decode()
        msgspec.json.decode(given, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        with pytest.raises(InvalidInput):
            found(given)
        return
    assert [json.loads(one) for one in found(given)] == json.loads(given)


@pytest.mark.parametrize(
    "text",
    [
        b"[1," + b" " * STEP_BYTES * 12 + b"2]",
        b"[" + b"9" * STEP_BYTES * 12 + b"]",
        b"[" * STEP_BYTES * 12 + b"]" * STEP_BYTES * 12,
        b'["' + b'"," ' * 1000 + b"]",
        b"[0," * 2000 + b"0" + b"]" * 2000,
    ],
    ids=["blanks", "number", "nested", "quotes", "deep"],
)
def test_what_has_no_end_is_refused_before_its_end(text: bytes) -> None:
    with pytest.raises(InvalidInput):
        found(text)


@pytest.mark.parametrize(("most", "most_values"), [(100, 1 << 20), (1 << 20, 300)])
def test_counts_are_bounded_while_they_are_read(most: int, most_values: int) -> None:
    text = memoryview(b"[" + b"[0,0]," * 10_000 + b"0]")
    steps, taken = elements(text, most=most, most_values=most_values), 0
    with suppress(TooMany):
        while True:
            next(steps)
            taken += 1
    assert taken * STEP_BYTES < 1000


def test_as_many_as_are_allowed_are_taken() -> None:
    assert len(found(b"[1,2,3]", most=3, most_values=3)) == 3
    assert len(found(b"[" + b"0," * 200 + b"0]", most=201, most_values=201)) == 201
    assert found(b" [ ] ") == found(b"{}") == []


@pytest.mark.parametrize(
    "inner", [b"a", b'\\"', b"\\\\", b"\\u00e9", b"\\ud83d\\ude00", "é".encode(), "😀".encode(), b",\\n"]
)
def test_each_step_looks_at_no_more_than_twice_its_bytes(inner: bytes) -> None:
    text = b'["' + inner * 2000 + b'",1,"' + inner * 100 + b'"]'
    sizes = [len(piece or b"") for piece in pieces(memoryview(text), STEP_BYTES, in_strings=True)]
    assert max(sizes) <= 2 * STEP_BYTES
    assert len(sizes) < 2 * len(text) / (STEP_BYTES - 12)
    assert len(found(text)) == 3
