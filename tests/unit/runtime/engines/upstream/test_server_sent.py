import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.runtime.engines.upstream.server_sent import LARGEST_EVENT_BYTES, EventTooLarge, ServerSentEvents


def events_of(*parts: bytes) -> list[bytes]:
    events = ServerSentEvents()
    return [data for part in parts for data in events.feed(part)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_in_each_of_the_three_ways(end: bytes) -> None:
    text = end.join([b"data: a", b"", b": a comment", b"event: x", b"data:b", b"data: c", b"", b"data: not ended", b""])
    assert events_of(text) == [b"a", b"b\nc"]


def test_an_event_without_data_is_none() -> None:
    assert events_of(b"\n\nid: 7\n\n") == []


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1)), st.data())
def test_however_the_bytes_are_split_the_events_are_the_same(texts: list[str], data: st.DataObject) -> None:
    lines = [text.lstrip(" ").encode() or b"x" for text in texts]
    end = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    whole = b"".join(b"data: " + line + end + end for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert events_of(*parts) == lines


def test_an_event_has_a_bound() -> None:
    events = ServerSentEvents()
    events.feed(b"data: " + b"x" * (LARGEST_EVENT_BYTES - 100))
    with pytest.raises(EventTooLarge):
        events.feed(b"x" * 200)
