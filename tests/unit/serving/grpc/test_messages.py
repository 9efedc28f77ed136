import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.serving.grpc.messages import MOST_NUMBERS, MOST_TEXT_BYTES, Split
from gearshift.v2 import grpc_messages_pb2 as pb
from gearshift.v2.grpc_tensors import varint

MANY = 1 << 20


def field(number: int, contents: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(contents)) + contents


def an_input(*fields: bytes) -> bytes:
    return field(5, field(1, b"x") + b"".join(fields))


def contents(*fields: bytes) -> bytes:
    return an_input(field(5, b"".join(fields)))


@pytest.mark.parametrize(
    "message",
    [
        b"\x32\x00" * MANY,
        b"\x2a\x00" * MANY,
        b"\x22\x00" * MANY,
        b"\x3a\x00" * MANY,
        b"\x48\x01" * MANY,
        field(6, b"\x12\x00" * MANY),
        an_input(b"\x22\x00" * MANY),
        an_input(b"\x2a\x00" * MANY),
        an_input(b"\x18\x01" * MANY),
        an_input(field(4, b"\x12\x00" * MANY)),
        an_input(field(4, field(2, b"\x08\x01" * MANY))),
        contents(b"\x42\x00" * MANY),
        contents(b"\x08\x01" * MANY),
        contents(b"\x35\0\0\0\0" * MANY),
        contents(b"\x39" + b"\0" * 8) + b"\x49" + b"\0" * 8 + an_input(b"\x32\x00" * MANY),
    ],
)
def test_a_message_with_too_many_fields_is_refused_wherever_they_are(message):
    assert pb.ModelInferRequest.FromString(message)
    with pytest.raises(InvalidInput, match="the message has more than 1000 fields; send fewer"):
        Split(message, 1000)


@pytest.mark.parametrize(
    ("message", "most"),
    [
        (an_input(field(3, b"\1" * (MOST_NUMBERS + 1))), MOST_NUMBERS),
        (contents(field(1, b"\1" * (MOST_NUMBERS + 1))), MOST_NUMBERS),
        (contents(field(5, b"\1" * (MOST_NUMBERS + 1))), MOST_NUMBERS),
        (contents(field(6, b"\0" * 4 * (MOST_NUMBERS + 1))), MOST_NUMBERS),
        (contents(field(7, b"\0" * 8 * MOST_NUMBERS)) + an_input(field(3, b"\1")), MOST_NUMBERS),
        (field(1, b"a" * (MOST_TEXT_BYTES + 1)), MOST_TEXT_BYTES),
        (field(3, b"a" * (MOST_TEXT_BYTES + 1)), MOST_TEXT_BYTES),
        (field(99, b"a" * (MOST_TEXT_BYTES + 1)), MOST_TEXT_BYTES),
        (an_input(field(4, field(1, b"a" * MOST_TEXT_BYTES))), MOST_TEXT_BYTES),
        (field(4, field(2, field(3, b"a" * (MOST_TEXT_BYTES + 1)))), MOST_TEXT_BYTES),
    ],
)
def test_too_many_numbers_and_too_much_text_are_refused_with_the_way_out(message, most):
    with pytest.raises(InvalidInput, match=f"more than {most} .*raw_input_contents"):
        Split(message, 1000)


def test_raw_contents_stay_where_they_are_and_the_rest_is_parsed():
    sent = pb.ModelInferRequest(model_name="sums", raw_input_contents=[b"a" * 9, b"", b"b" * 300])
    sent.inputs.add(name="x", datatype="FP32", shape=[1, 2]).contents.fp32_contents.extend([1, 2])
    data = sent.SerializeToString() + field(7, b"c") + field(3, b"id")
    split = Split(data, 1000)
    assert [bytes(raw) for raw in split.raw] == [b"a" * 9, b"", b"b" * 300, b"c"]
    assert all(raw.obj is data for raw in split.raw)
    sent.id = "id"
    del sent.raw_input_contents[:]
    assert pb.ModelInferRequest.FromString(split.rest) == sent


@pytest.mark.parametrize(
    "data",
    [b"\xff" * 40, b"\x2a", b"\x2a\xff", b"\x2f\x2a\x00", b"\x2a\xff\xff\xff\xff\x7fab", b"\x2a\2\x0a\5", b"\2\0"],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(InvalidInput, match="the message is no ModelInferRequest"):
        Split(data, 1000)


@settings(deadline=None, derandomize=True)
@given(st.binary(max_size=60))
def test_whatever_comes_is_split_or_refused_and_what_is_split_is_as_it_was(data):
    try:
        split = Split(data, 1000)
    except InvalidInput:
        return
    try:
        whole = pb.ModelInferRequest.FromString(data)
    except ValueError:
        return
    rest = pb.ModelInferRequest.FromString(split.rest)
    rest.raw_input_contents.extend(bytes(raw) for raw in split.raw)
    assert rest == whole
