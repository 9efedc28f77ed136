"""A head that was parsed once is read as the parser would read it again, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.serving.known_head import LARGEST_BYTES, KnownHead
from tests.unit.serving.test_connection import Telling, hear, run, statuses

HEAD = b"POST /a HTTP/1.1\r\nhost: x\r\nContent-Length: 3\r\nx-slo-ms: 50\r\n\r\n"
HEADERS = {b"host": b"x", b"content-length": b"3", b"x-slo-ms": b"50"}


def known() -> KnownHead:
    head = KnownHead.of(HEAD + b"abc", "/a", HEADERS)
    assert head is not None
    return head


def test_the_same_head_gives_the_same_headers_and_another_body():
    assert known().read(HEAD + b"def") == (HEADERS, b"def")


def test_the_length_may_differ():
    data = HEAD.replace(b": 3", b": 12") + b"twelve bytes"
    assert known().read(data) == (HEADERS | {b"content-length": b"12"}, b"twelve bytes")


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"ab",
        HEAD + b"abcd",
        HEAD.replace(b": 3", b": 4") + b"abc",
        HEAD.replace(b": 3", b": +3") + b"abc",
        HEAD.replace(b": 3", b":  3") + b"abc",
        HEAD.replace(b": 3", b": 3 ") + b"abc",
        HEAD.replace(b": 3", b": ") + b"abc",
        HEAD.replace(b": 3", b": 00000003") + b"abc",
        HEAD.replace(b": 3", b": \xb2") + b"ab",
        HEAD.replace(b"50", b"60") + b"abc",
        HEAD.replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n") + b"abc",
        HEAD[:-2],
        b"",
    ],
)
def test_anything_else_is_left_to_the_parser(data):
    assert known().read(data) is None


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        (b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n", {b"host": b"x"}),
        (HEAD + b"abc" + HEAD + b"abc", HEADERS),
        (HEAD + b"ab", HEADERS),
        (HEAD + b"abc", HEADERS | {b"expect": b"100-continue"}),
        (HEAD.replace(b"x-slo-ms: 50", b"x: " + b"y" * LARGEST_BYTES) + b"abc", HEADERS),
        (b"\r\n" + HEAD + b"abc", HEADERS),
    ],
)
def test_only_the_head_of_one_plain_request_is_kept(data, headers):
    assert KnownHead.of(data, "/a", headers) is None


LINES = st.sampled_from(
    (
        b"x-slo-ms: 50", b"X-Slo-Ms:70", b"connection: close", b"upgrade: h2c", b"expect: 100-continue",
        b"content-length: 2", b"transfer-encoding: chunked", b"host: y", b" folded",
    )
)  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    body = draw(st.sampled_from([b"", b"a", b"ab", b"0\r\n\r\n", b"\r\n\r\n", b"x" * 12, b"POST /b HTTP/1.1\r\n"]))
    method = draw(st.sampled_from([b"POST"] * 8 + [b"GET", b"post", b"\r\nPOST"]))
    target = draw(st.sampled_from([b"/a"] * 8 + [b"/b?c", b"http://y/d", b"/refused"]))
    version = draw(st.sampled_from([b"1.1"] * 8 + [b"1.0"]))
    name = draw(st.sampled_from([b"content-length: ", b"Content-Length:", b"content-length:  "]))
    digits = draw(st.sampled_from([b"%d"] * 8 + [b"0%d", b"%d ", b"+%d", b"1%d"])) % len(body)
    lines = [b"host: x", name + digits, *draw(st.lists(LINES, max_size=1))]
    return b"%b %b HTTP/%b\r\n%b\r\n\r\n%b" % (method, target, version, b"\r\n".join(lines), body)


@given(several=st.lists(requests(), min_size=2, max_size=5), again=st.integers(1, 3))
def test_requests_in_one_piece_each_are_those_that_the_parser_reads_byte_by_byte(several, again):
    stream = [request for request in several for _ in range(again)]

    async def heard(parts: list[bytes]) -> tuple[list[object], list[int]]:
        handler = Telling()
        wire = hear(parts, handler)
        return [(e.method, e.path, e.headers, e.keep_alive) for e in handler.exchanges], [
            status
            for status in statuses(wire)
            if status != 100  # which is said where the body does not come at once
        ]

    whole = run(lambda: heard(stream))
    assert whole == run(lambda: heard([bytes([byte]) for part in stream for byte in part]))
