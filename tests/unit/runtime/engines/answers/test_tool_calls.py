"""Parts of calls of tools find their call, however an endpoint numbers them."""

import pytest

from gearshift.runtime.engines.answers.given_tokens import MOST_CALLS, GivenTokens
from gearshift.runtime.engines.answers.tool_calls import Places, name_after
from gearshift.runtime.engines.upstream.chunk import decode_chunk

Part = tuple[object, object, str, str]
"""Id, index, name, arguments."""


def places(*chunks: list[Part]) -> list[int]:
    found = Places()
    return [
        found.of(*part, order=order, among=len(parts)) for parts in chunks for order, part in enumerate(parts)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([("a", 0, "f", ""), ("", 0, "", "{"), ("b", 1, "g", ""), ("", 0, "", "}"), ("", 1, "", "")], [0, 0, 1, 0, 1]),
        ([("a", 0, "f", ""), ("", 0, "", "{"), ("b", 0, "g", ""), ("", 0, "", "{}")], [0, 0, 1, 1]),
        ([("a", 0, "f", "{}"), ("b", 0, "f", "{}")], [0, 1]),
        ([("a", 0, "f", ""), ("x", 0, "", "{"), ("y", 0, "", "}")], [0, 0, 0]),
        ([("a", 0, "f", ""), ("b", 0, "g", ""), ("a", 0, "", "{}"), ("b", 0, "", "{}")], [0, 1, 0, 1]),
        ([("", 0, "f", "{}"), ("", 0, "g", "{}")], [0, 1]),
        ([("", 0, "f", "{}"), ("", 0, "f", "{}")], [0, 1]),
        ([("", 0, "f", '{"a'), ("", 0, "f", '":1}'), ("", 0, "", " ")], [0, 0, 0]),
        ([(None, None, "f", "{}"), (None, None, "g", "{}")], [0, 1]),
        ([(None, None, "f", "{"), (None, None, "", "}")], [0, 0]),
        ([(7, "0", "f", "{"), (7, None, "", "}")], [0, 0]),
        ([(None, 5, "", "{"), ("late", 5, "f", "")], [0, 0]),
    ],
    ids=[
        *("by index", "one index", "whole, by id", "new ids", "by id", "whole, other names", "whole, one name"),
        *("name in each part", "no index", "goes on without index", "odd ids", "name comes late"),
    ],
)  # fmt: skip
def test_each_part_goes_to_its_call(parts: list[Part], expected: list[int]) -> None:
    assert places(*([part] for part in parts)) == expected


def test_without_index_the_order_within_a_chunk_tells() -> None:
    begun: list[Part] = [(None, None, "f", ""), (None, None, "g", "")]
    more: list[Part] = [(None, None, "", "{}"), (None, None, "", "{}")]
    others: list[Part] = [(None, None, "h", "{}"), (None, None, "i", "{}")]
    assert places(begun, more, others) == [0, 1, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("before", "part", "has_arguments", "name"),
    [
        ("", "f", False, "f"),
        ("f", "", False, "f"),
        ("f", "f", False, "f"),
        ("get_", "weather", False, "get_weather"),
        ("get_", "get_weather", False, "get_weather"),
        ("f", "g", True, "f"),
        ("", "f", True, "f"),
    ],
)
def test_a_name_stays_where_it_comes_again(before: str, part: str, has_arguments: bool, name: str) -> None:
    assert name_after(before, part, has_arguments=has_arguments) == name


def test_certainty_takes_the_tokens_of_the_arguments_of_each_call() -> None:
    """Also where all calls have one index: their arguments stand apart in the text."""
    given = GivenTokens(has_tools=True)
    for id, texts in (("a", ["f", "1", "2"]), ("b", ["g", "3"])):
        tokens = b",".join(b'{"token": "%b", "logprob": -1}' % text.encode() for text in texts)
        arguments = "".join(texts[1:]).encode()
        call = b'{"index": 0, "id": "%b", "function": {"name": "f", "arguments": "%b"}}' % (id.encode(), arguments)
        chunk = b'{"choices": [{"delta": {"tool_calls": [%b]}, "logprobs": {"content": [%b]}}]}' % (call, tokens)
        given.add(decode_chunk(chunk).choices[0])
    assert given.until(None).value("sum_logprob") == -3


def test_arguments_of_more_calls_than_bounded_are_not_looked_for() -> None:
    given = GivenTokens(has_tools=True)
    for number in range(MOST_CALLS + 5):
        call = b'{"index": %d, "id": "%d", "function": {"name": "f", "arguments": "{}"}}' % (number, number)
        given.add(decode_chunk(b'{"choices": [{"delta": {"tool_calls": [%b]}}]}' % call).choices[0])
    assert len(given._arguments) == MOST_CALLS
