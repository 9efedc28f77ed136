"""A head that was parsed once, and a body with other data, are read as they would be read as a whole, or not at all."""

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.model import TensorSpec
from gearshift.serving.http.http_exchange import HttpExchange
from gearshift.serving.http.known_request import LARGEST_BODY_BYTES, LARGEST_HEAD_BYTES, KnownBody, KnownHead
from gearshift.v2.bodies import InferRequest
from gearshift.v2.json import parse_request
from gearshift.v2.tensors import Limits
from tests.unit.serving.http.test_connection import Telling, connect, hear, run, statuses

HEAD = b"POST /a HTTP/1.1\r\nhost: x\r\nContent-Length: 3\r\nx-slo-ms: 50\r\n\r\n"
HEADERS = {b"host": b"x", b"content-length": b"3", b"x-slo-ms": b"50"}


def known_head() -> KnownHead:
    head = KnownHead.of(HEAD + b"abc", "/a", HEADERS)
    assert head is not None
    return head


def test_the_same_head_gives_the_same_headers_and_another_body():
    assert known_head().read(HEAD + b"def") == (HEADERS, b"def")


def test_the_length_may_differ():
    data = HEAD.replace(b": 3", b": 12") + b"twelve bytes"
    assert known_head().read(data) == (HEADERS | {b"content-length": b"12"}, b"twelve bytes")


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
    assert known_head().read(data) is None


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        (b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n", {b"host": b"x"}),
        (HEAD + b"abc" + HEAD + b"abc", HEADERS),
        (HEAD + b"ab", HEADERS),
        (HEAD + b"abc", HEADERS | {b"expect": b"100-continue"}),
        (HEAD.replace(b"x-slo-ms: 50", b"x: " + b"y" * LARGEST_HEAD_BYTES) + b"abc", HEADERS),
        (b"\r\n" + HEAD + b"abc", HEADERS),
    ],
)
def test_only_the_head_of_one_plain_request_is_kept(data, headers):
    assert KnownHead.of(data, "/a", headers) is None


PLAIN = HEAD + b"abc"
GET = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("before", "known_again"),
    [
        ([PLAIN], True),
        ([GET, PLAIN], True),
        ([HEAD, b"abc", PLAIN], True),
        ([HEAD, b"a", b"bc", PLAIN], True),
        ([PLAIN, HEAD, b"abc"], True),
        ([PLAIN + GET], False),
        ([HEAD[:20], HEAD[20:] + b"abc", PLAIN], False),
    ],
)
def test_a_head_is_known_after_a_whole_request_with_it_wherever_requests_could_be_counted(before, known_again):
    async def use() -> bool:
        handler = Telling(patient=True)
        connection, _ = connect(handler)
        for part in (*before, PLAIN):
            connection.data_received(part)
            for exchange in handler.exchanges:
                if not exchange.answered:
                    handler.tell(exchange)
        connection.connection_lost(None)
        return handler.exchanges[-1].known_head is not None

    assert run(use) is known_again


class Remembering(Telling):
    """Keeps the requests that are refused at their head."""

    def begun(self, exchange: HttpExchange) -> None:
        self.exchanges.append(exchange)
        super().begun(exchange)


def test_the_head_of_a_request_that_is_refused_is_not_kept():
    async def use() -> list[object]:
        handler = Remembering()
        connection, _ = connect(handler)
        refused = PLAIN.replace(b"/a", b"/refused")
        connection.data_received(refused)
        connection.data_received(refused)
        connection.connection_lost(None)
        return [exchange.known_head for exchange in handler.exchanges]

    assert run(use) == [None, None]


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


@given(several=st.lists(requests(), min_size=2, max_size=5), again=st.integers(1, 3), split=st.integers(0, 5))
def test_requests_in_one_piece_each_are_those_that_the_parser_reads_byte_by_byte(several, again, split):
    stream = [request for request in several for _ in range(again)]
    stream[split : split + 1] = re.split(rb"(?<=\r\n\r\n)", b"".join(stream[split : split + 1]), maxsplit=1)

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


# Bodies ---------------------------------------------------------------------------------------------------------


X = TensorSpec(name="x", datatype="FP32", shape=(-1, 2))
SPECS = {"x": X}
LIMITS = Limits(most_rows=8)
BODY = b'{"id": "one", "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0.5, 0.25]}]}'


def read(body: bytes, specs: dict[str, TensorSpec] = SPECS, limits: Limits = LIMITS) -> InferRequest:
    return parse_request(body, specs, (), None, limits)


def known_body(body: bytes = BODY) -> KnownBody:
    found = KnownBody.of(body, read(body), SPECS, LIMITS)
    assert found is not None
    return found


def facts(request: InferRequest) -> dict[str, Any]:
    arrays = {name: (array.dtype, array.shape, array.tolist()) for name, array in request.inputs.items()}
    return {name: getattr(request, name) for name in request.__struct_fields__} | {"inputs": arrays}


@pytest.mark.parametrize("data", [b"[1, 2]", b"[ 1e3,-0.5 ]", b"[[1, 2]]", b" [1, 2] "])
def test_other_data_is_read_alone(data):
    body = BODY.replace(b"[0.5, 0.25]", data)
    request = known_body().read(body, LIMITS)
    assert request is not None
    assert facts(request) == facts(read(body))
    assert request.id == "one"


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace(b"one", b"two"),
        BODY.replace(b"[1, 2]", b"[2, 2]"),
        BODY.replace(b"0.25]", b"0.25, 1]"),
        BODY.replace(b"0.25]", b"0.25"),
        BODY.replace(b"0.25]", b"1e999]"),
        BODY.replace(b"0.25]", b'0.25], "data": [1, 2]'),
        BODY.replace(b"[0.5, 0.25]", b'"a"'),
        BODY.replace(b"[0.5, 0.25]", b""),
        BODY + b" ",
        BODY[:-40],
        b"",
    ],
)
def test_whatever_else_differs_is_left_to_those_who_read_all(body):
    assert known_body().read(body, LIMITS) is None


def test_other_limits_are_looked_at_anew():
    assert known_body().read(BODY, Limits(most_rows=8)) is None


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace(b"[0.5, 0.25]", b"[1, 2]"),  # as the shape is written too
        BODY.replace(b"one", b"x" * LARGEST_BODY_BYTES),
    ],
)
def test_what_is_not_to_be_told_apart_or_is_long_is_not_kept(body):
    assert KnownBody.of(body, read(body), SPECS, LIMITS) is None


def test_a_request_of_several_tensors_is_not_kept():
    specs = SPECS | {"y": TensorSpec(name="y", datatype="INT32", shape=(-1,))}
    body = BODY.replace(b"}]}", b'}, {"name": "y", "shape": [1], "datatype": "INT32", "data": [7]}]}')
    assert KnownBody.of(body, read(body, specs), specs, LIMITS) is None


VALUES = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=6)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    rows = draw(st.integers(1, 3))
    data: Any = draw(VALUES) if draw(st.booleans()) else np.arange(2 * rows).reshape(rows, 2).tolist()
    tensor = {"name": "x", "shape": [rows, 2], "datatype": "FP32", "data": data}
    extra = draw(st.sampled_from([{}, {"id": "[1, 2]"}, {"parameters": {"priority": 3}}, {"outputs": [{"name": "y"}]}]))
    body = json.dumps({"inputs": [tensor]} | extra, indent=draw(st.sampled_from([None, 1])))
    for old, new in draw(
        st.lists(st.tuples(st.sampled_from('[],"0}'), st.sampled_from(["", "]", "[", " ", ",", "1"])), max_size=1)
    ):
        body = body.replace(old, new, 1)
    return body.encode()


@given(first=bodies(), second=bodies())
def test_what_is_read_is_what_is_read_of_the_whole(first, second):
    try:
        kept = KnownBody.of(first, read(first), SPECS, LIMITS)
    except InvalidInput:
        return
    for body in (first, second):
        request = None if kept is None else kept.read(body, LIMITS)
        if request is not None:
            assert facts(request) == facts(read(body))


def test_a_column_of_one_value_per_row_is_read_as_of_the_whole():
    specs = {"x": TensorSpec(name="x", datatype="FP64", shape=(-1,))}
    first, second = (
        json.dumps({"inputs": [{"name": "x", "shape": [2, 1], "datatype": "FP64", "data": data}]}).encode()
        for data in ([1.5, 2.5], [[3.5], [4.5]])
    )
    limits = Limits()
    known = KnownBody.of(first, parse_request(first, specs, (), limits=limits), specs, limits)
    assert known is not None
    for body in (first, second):
        found, whole = known.read(body, limits), parse_request(body, specs, (), limits=limits)
        assert found is not None
        assert found.inputs["x"].tolist() == whole.inputs["x"].tolist()
        assert found.inputs["x"].shape == (2,)
        assert found.columns
