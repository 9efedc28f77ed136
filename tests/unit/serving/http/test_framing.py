"""Framings that two servers may read in two ways: refused, or read in one way only.

`make test-lowest` runs these on the lowest version of the parser that `pyproject.toml` admits.
"""

import pytest

from tests.unit.serving.http.test_connection import Telling, say, statuses, told
from tests.unit.serving.wire import Wire

GET = b"GET /first HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /first HTTP/1.1\r\nHost: x\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"
LENGTH = b"Content-Length: 3\r\n"
UPGRADE = b"Connection: upgrade\r\nUpgrade: h2c\r\n"


def length(value: bytes) -> bytes:
    return POST + b"Content-Length:" + value + b"\r\n\r\n" + HIDDEN


def coding(value: bytes) -> bytes:
    return POST + b"Transfer-Encoding:" + value + b"\r\n\r\n" + CHUNKS + HIDDEN


def chunks(body: bytes) -> bytes:
    return POST + CHUNKED + b"\r\n" + body + HIDDEN


def header(line: bytes) -> bytes:
    return GET + line + b"\r\n\r\n" + HIDDEN


REFUSED = {
    # Two lengths
    "length and chunks": POST + LENGTH + CHUNKED + b"\r\n" + CHUNKS + HIDDEN,
    "chunks and length": POST + CHUNKED + LENGTH + b"\r\n" + CHUNKS + HIDDEN,
    "an empty coding and a length": POST + b"Transfer-Encoding:\r\nContent-Length: 0\r\n\r\n" + HIDDEN,
    "the same length twice": POST + LENGTH + LENGTH + b"\r\nabc" + HIDDEN,
    "two lengths": POST + b"Content-Length: 0\r\n" + LENGTH + b"\r\nabc" + HIDDEN,
    "two lengths in two cases": POST + b"content-length: 0\r\nCONTENT-LENGTH: 3\r\n\r\nabc" + HIDDEN,
    "two lengths before another protocol": POST + UPGRADE + b"Content-Length: 0\r\n" + LENGTH + b"\r\n" + HIDDEN,
    "length and chunks before another protocol": POST + UPGRADE + LENGTH + CHUNKED + b"\r\n" + CHUNKS + HIDDEN,
    # Lengths
    "a list of lengths": length(b" 0, 0"),
    "a length with a plus": length(b" +0"),
    "a length with a minus": length(b" -1"),
    "a hexadecimal length": length(b" 0x0"),
    "no length": length(b""),
    "a length of blanks": length(b"  "),
    "a length beyond 64 bits": length(b" 18446744073709551616"),
    "a length with a blank inside": length(b" 1 0"),
    "a length with an underscore": length(b" 1_0"),
    "a length with a fraction": length(b" 0.0"),
    "a length with an exponent": length(b" 0e0"),
    "a length after a vertical tab": length(b" \x0b0"),
    "a length before a form feed": length(b" 0\x0c"),
    "a length before NUL": length(b" 0\0"),
    "a length in other digits": length(" \uff10".encode()),
    "a length that is folded": length(b"\r\n 0"),
    "a length folded once more": length(b" 1\r\n 0"),
    "a blank before the colon of a length": POST + b"Content-Length : 3\r\n\r\nabc" + HIDDEN,
    # Codings
    "a blank before the colon of a coding": POST + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS + HIDDEN,
    "a tab before the colon of a coding": POST + b"Transfer-Encoding\t: chunked\r\n\r\n" + CHUNKS + HIDDEN,
    "NUL before a coding": POST + b"\0Transfer-Encoding: chunked\r\n\r\n" + CHUNKS + HIDDEN,
    "a coding that is folded": coding(b"\r\n chunked"),
    "a coding after a vertical tab": coding(b" \x0bchunked"),
    "a coding before NUL": coding(b" chunked\0"),
    "a coding of another name": coding(b" xchunked"),
    "a coding that is longer": coding(b" chunkedx"),
    "chunked twice": coding(b" chunked, chunked"),
    "chunked in two headers": POST + CHUNKED + CHUNKED + b"\r\n" + CHUNKS + HIDDEN,
    "chunked before identity": coding(b" chunked, identity"),
    "identity": coding(b" identity"),
    "gzip before chunked": coding(b" gzip, chunked"),
    "chunked before gzip": coding(b" chunked, gzip"),
    "chunked with a parameter": coding(b" chunked;q=1"),
    "chunked in quotes": coding(b' "chunked"'),
    "an empty coding before chunked": coding(b" , chunked"),
    "an empty coding": coding(b""),
    "gzip before chunked before another protocol": POST
    + UPGRADE
    + b"Transfer-Encoding: gzip, chunked\r\n\r\n"
    + CHUNKS,
    "chunked before gzip before another protocol": POST
    + UPGRADE
    + b"Transfer-Encoding: chunked, gzip\r\n\r\n"
    + CHUNKS,
    # Chunks
    "a chunk's size with a prefix": chunks(b"0x3\r\nabc\r\n0\r\n\r\n"),
    "a chunk's size with a plus": chunks(b"+3\r\nabc\r\n0\r\n\r\n"),
    "a chunk's size with a minus": chunks(b"-3\r\nabc\r\n0\r\n\r\n"),
    "a chunk's size before a blank": chunks(b"3 \r\nabc\r\n0\r\n\r\n"),
    "a chunk's size before a tab": chunks(b"3\t\r\nabc\r\n0\r\n\r\n"),
    "a chunk's size after a blank": chunks(b" 3\r\nabc\r\n0\r\n\r\n"),
    "a chunk's size before NUL": chunks(b"3\0\r\nabc\r\n0\r\n\r\n"),
    "a chunk's size with an underscore": chunks(b"0_3\r\nabc\r\n0\r\n\r\n"),
    "a chunk's size of letters": chunks(b"g\r\nabc\r\n0\r\n\r\n"),
    "a chunk without a size": chunks(b"\r\nabc\r\n0\r\n\r\n"),
    "a chunk's size beyond 64 bits": chunks(b"10000000000000003\r\nabc\r\n0\r\n\r\n"),
    "LF after a chunk's size": chunks(b"3\nabc\r\n0\r\n\r\n"),
    "CR after a chunk's size": chunks(b"3\rabc\r\n0\r\n\r\n"),
    "two CR after a chunk's size": chunks(b"3\r\r\nabc\r\n0\r\n\r\n"),
    "an extension that ends in LF": chunks(b"3;\nabc\r\n0\r\n\r\n"),
    "an extension's value that ends in LF": chunks(b"3;a=b\nabc\r\n0\r\n\r\n"),
    "an extension with CR": chunks(b"3;a\rb\r\nabc\r\n0\r\n\r\n"),
    "an extension with CRLF in quotes": chunks(b'3;a="\r\nx"\r\nabc\r\n0\r\n\r\n'),
    "an extension with LF in quotes": chunks(b'3;a="\nx"\r\nabc\r\n0\r\n\r\n'),
    "an extension with NUL": chunks(b"3;a=\0\r\nabc\r\n0\r\n\r\n"),
    "an extension of the last chunk that ends in LF": chunks(b"3\r\nabc\r\n0;a\n\r\n"),
    "a chunk without its end": chunks(b"3\r\nabcXX0\r\n\r\n"),
    "a chunk that ends in LF": chunks(b"3\r\nabc\n0\r\n\r\n"),
    "a chunk that ends in CR": chunks(b"3\r\nabc\r0\r\n\r\n"),
    "a chunk longer than its size": chunks(b"3\r\nabc  \r\n0\r\n\r\n"),
    "a last chunk that ends in LF": chunks(b"3\r\nabc\r\n0\n\r\n"),
    "a last chunk without an empty line": chunks(b"3\r\nabc\r\n0\r\n"),
    "an empty line of LF behind chunks": chunks(b"3\r\nabc\r\n0\r\n\n"),
    "a trailer that ends in LF": chunks(b"3\r\nabc\r\n0\r\nA: b\n\r\n"),
    "a length among trailers": chunks(b"3\r\nabc\r\n0\r\nContent-Length: 9\r\n\r\n"),
    "a coding among trailers": chunks(b"3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "a blank before a trailer's colon": chunks(b"3\r\nabc\r\n0\r\nA : b\r\n\r\n"),
    "a trailer that is folded": chunks(b"3\r\nabc\r\n0\r\nA: b\r\n c\r\n\r\n"),
    # Ends of lines
    "a head of LF": b"GET /first HTTP/1.1\nHost: x\n\n" + HIDDEN,
    "a header that ends in LF": b"GET /first HTTP/1.1\r\nHost: x\nX: y\r\n\r\n" + HIDDEN,
    "a request line that ends in LF": b"GET /first HTTP/1.1\nHost: x\r\n\r\n" + HIDDEN,
    "a request line that ends in CR": b"GET /first HTTP/1.1\rHost: x\r\n\r\n" + HIDDEN,
    "a header that ends in CR": b"GET /first HTTP/1.1\r\nHost: x\rX: y\r\n\r\n" + HIDDEN,
    "a length behind CR": POST + b"X: y\rContent-Length: 3\r\n\r\nabc" + HIDDEN,
    "a header that ends in two CR": b"GET /first HTTP/1.1\r\nHost: x\r\r\n\r\n" + HIDDEN,
    "a head that ends in LF": b"GET /first HTTP/1.1\r\nHost: x\r\n\n" + HIDDEN,
    "a head that ends in CR": GET + b"\r" + HIDDEN,
    "a folded header": header(b"A: b\r\n c"),
    "a header folded by a tab": header(b"A: b\r\n\tc"),
    "a line of a blank": header(b"A: b\r\n "),
    "a blank before the first header": b"GET /first HTTP/1.1\r\n Host: x\r\n\r\n" + HIDDEN,
    # Names and values
    "NUL in a value": header(b"A: b\0c"),
    "NUL in a name": header(b"A\0B: c"),
    "no colon": header(b"A b"),
    "no name": header(b": a"),
    "a blank in a name": header(b"A B: c"),
    "a tab in a name": header(b"A\tB: c"),
    "a line break of another alphabet in a name": header(b"A\x85B: c"),
    "a name in brackets": header(b"[A]: b"),
    # Request lines
    "HTTP/1.2": b"GET /first HTTP/1.2\r\nHost: x\r\n\r\n" + HIDDEN,
    "HTTP/2.0": b"GET /first HTTP/2.0\r\nHost: x\r\n\r\n" + HIDDEN,
    "HTTP/1.10": b"GET /first HTTP/1.10\r\nHost: x\r\n\r\n" + HIDDEN,
    "HTTP/01.1": b"GET /first HTTP/01.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "HTTP/11": b"GET /first HTTP/11\r\nHost: x\r\n\r\n" + HIDDEN,
    "no version": b"GET /first\r\n" + HIDDEN,
    "a version in lower case": b"GET /first http/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "the beginning of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    "tabs in a request line": b"GET\t/first\tHTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "a blank behind the version": b"GET /first HTTP/1.1 \r\nHost: x\r\n\r\n" + HIDDEN,
    "a blank in the target": b"GET /first /other HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "NUL in the target": b"GET /first\0 HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "a high byte in the target": b"GET /first\xff HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "a backslash for a target": b"GET \\first HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "no target": b"GET  HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "a method in lower case": b"get /first HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "a method of a proxy": b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
}

ONE = {
    "a length covers what looks like a request": (GET + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN, HIDDEN),
    "chunks cover what looks like a request": (
        GET + CHUNKED + b"\r\n%x\r\n" % len(HIDDEN) + HIDDEN + b"\r\n0\r\n\r\n",
        HIDDEN,
    ),
    "chunks in HTTP/1.0": (POST.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n" + CHUNKS + HIDDEN, b"abc"),
    "chunks in HTTP/1.0 that is to be kept": (
        POST.replace(b"1.1", b"1.0") + b"Connection: keep-alive\r\n" + CHUNKED + b"\r\n" + CHUNKS + HIDDEN,
        b"abc",
    ),
    "another protocol in HTTP/1.0": (POST.replace(b"1.1", b"1.0") + UPGRADE + LENGTH + b"\r\nabc" + HIDDEN, b"abc"),
    "the last of its connection": (GET + b"Connection: close\r\n\r\n" + HIDDEN, b""),
}
"""A request, its body, and nothing behind it that is answered."""

TWO = {
    "a plain length": (POST + LENGTH + b"\r\nabc", b"abc"),
    "a length with zeros before it": (POST + b"Content-Length: 003\r\n\r\nabc", b"abc"),
    "blanks around a length": (POST + b"Content-Length:  3  \r\n\r\nabc", b"abc"),
    "plain chunks": (POST + CHUNKED + b"\r\n" + CHUNKS, b"abc"),
    "chunked in another case": (POST + b"Transfer-Encoding: ChuNkEd\r\n\r\n" + CHUNKS, b"abc"),
    "chunked after a tab": (POST + b"Transfer-Encoding:\tchunked\r\n\r\n" + CHUNKS, b"abc"),
    "a chunk's extension": (POST + CHUNKED + b'\r\n3;a=b;c="d;e"\r\nabc\r\n0;f\r\n\r\n', b"abc"),
    "zeros before a chunk's size": (POST + CHUNKED + b"\r\n00000000000000003\r\nabc\r\n000\r\n\r\n", b"abc"),
    "trailers": (POST + CHUNKED + b"\r\n3\r\nabc\r\n0\r\nX-Api-Key: k\r\n\r\n", b"abc"),
    "names like those of a length": (GET + b"Content_Length: 3\r\nContent-Length-: 3\r\n\r\n", b""),
    "a connection that names its length": (POST + b"Connection: content-length\r\n" + LENGTH + b"\r\nabc", b"abc"),
    "another protocol and a length": (POST + UPGRADE + LENGTH + b"\r\nabc", b"abc"),
    "another protocol and chunks": (POST + UPGRADE + CHUNKED + b"\r\n" + CHUNKS, b"abc"),
    "empty lines before a request": (b"\r\n\r\n" + GET + b"\r\n", b""),
    "two blanks before the target": (b"GET  /first HTTP/1.1\r\nHost: x\r\n\r\n", b""),
    "no body": (GET + b"\r\n", b""),
}
"""A request and its body; what is behind it is a request of its own."""

PIECES = pytest.mark.parametrize("piece_bytes", [1, 1 << 20], ids=["byte by byte", "whole"])


def heard(data: bytes, piece_bytes: int) -> tuple[Telling, Wire]:
    """A connection's handler and wire after `data` came in pieces of `piece_bytes`."""
    handler = Telling()
    pieces = [data[begin : begin + piece_bytes] for begin in range(0, len(data), piece_bytes)]
    return handler, say(*pieces, handler=handler)


@PIECES
@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_what_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_heard(data, piece_bytes):
    handler, wire = heard(data, piece_bytes)
    assert statuses(wire) == [400]
    assert wire.ended
    assert handler.exchanges == []
    assert "/hidden" not in handler.begun_paths


@PIECES
@pytest.mark.parametrize(("data", "body"), ONE.values(), ids=ONE.keys())
def test_what_belongs_to_a_request_or_to_nobody_is_no_second_request(data, body, piece_bytes):
    handler, wire = heard(data, piece_bytes)
    assert [(said["path"], said["body"].encode()) for said in told(wire)] == [("/first", body)]
    assert handler.begun_paths == ["/first"]


@PIECES
@pytest.mark.parametrize(("data", "body"), TWO.values(), ids=TWO.keys())
def test_what_is_plain_is_read_whole_and_the_next_request_begins_behind_it(data, body, piece_bytes):
    _, wire = heard(data + HIDDEN, piece_bytes)
    assert [(said["path"], said["body"].encode()) for said in told(wire)] == [("/first", body), ("/hidden", b"")]
    assert not wire.closed
