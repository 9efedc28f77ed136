"""A table of values that are one class; the same holds in whatever form a value comes."""

import csv
import io
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.model import datatype_of
from gearshift.models.classes import class_name, class_names, same_class
from gearshift.profiles.table import read_parquet_table
from gearshift.request import Answer
from gearshift.runtime.wire.transport import pack_tensors, unpack_tensors
from gearshift.v2 import grpc_tensors
from gearshift.v2 import json as v2_json
from gearshift.v2.binary import read_tensor
from gearshift.v2.bodies import InferRequest
from gearshift.v2.grpc_messages_pb2 import ModelInferResponse
from tests.often import often


@pytest.mark.parametrize(
    "values",
    [
        (1, 1.0, True, "1", "1.0", "1.", b"1", b"1.0", " 1 ", "True", "true", "TRUE", np.float16(1), np.uint8(1)),
        (0, -0.0, False, "0", "-0", "0.000", "false", b"False"),
        (0.1, np.float32(0.1), "0.1", ".1", "0.10", b"0.1", float(np.float32(0.1)), "0.10000000149011612"),
        (1 / 3, np.float32(1 / 3), "0.3333333333333333"),
        (10**16, 1e16, "1e+16", "10000000000000000", "10000000000000000.0"),
        (-7, "-7", "-7.0", np.int8(-7)),
        (2**63 + 1, np.uint64(2**63 + 1), "9223372036854775809"),
        ("cat", b"cat", " cat", "cat\r\n", np.str_("cat"), np.bytes_(b"cat")),
        ("é", "é".encode()),
        ("", b"", "  "),
    ],
)
def test_these_are_one_class(values: tuple[object, ...]) -> None:
    assert len({class_name(value) for value in values}) == 1
    assert all(same_class(a, b) for a in values for b in values)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("cat", "Cat"), ("cat", "cats"), (1, 2), ("1", "01"), ("7", "007"), ("1e5", 100000), ("1_0", 10), ("٣", 3),
        (b"\xff", b"\xfe"), (b"\xff", "\ufffd"), (0.1, 0.2), (2**53, 2**53 + 1), (True, False), ("", 0),
        ("9223372036854775809", "9223372036854775808"), ("-", "0"), (".", "0"),
    ],
)  # fmt: skip
def test_these_are_two_classes(a: object, b: object) -> None:
    assert not same_class(a, b)


def test_an_array_has_the_names_of_its_elements_and_its_shape() -> None:
    mixed = np.array([["a", b"a"], [1.0, True]], dtype=object)
    assert class_names(mixed).tolist() == [["a", "a"], ["1", "1"]]
    assert class_names(np.array([], dtype=np.int64)).shape == (0,)
    assert class_names(np.array([np.nan, np.nan, np.inf])).tolist() == ["nan", "nan", "inf"]


# Roads


def by_json(array: Any) -> list[Any]:
    body, _ = v2_json.encode_answer("op", ASKED, answered(array))
    data: list[Any] = msgspec.json.decode(body)["outputs"][0]["data"]
    return data


def by_grpc(array: Any) -> list[Any]:
    answer = ModelInferResponse.FromString(grpc_tensors.encode_answer("op", ASKED, answered(array)))
    (tensor,) = answer.outputs
    return listed(read_tensor(memoryview(answer.raw_output_contents[0]), list(tensor.shape), tensor.datatype, ""))


def by_binary(array: Any) -> list[Any]:
    asked = msgspec.structs.replace(ASKED, binary_output=True)
    body, head_bytes = v2_json.encode_answer("op", asked, answered(array))
    data = memoryview(body)[head_bytes:]
    return listed(read_tensor(data, array.shape, datatype_of(array), ""))


def by_worker(array: Any) -> list[Any]:
    headers, buffers = pack_tensors({"label": array})
    return listed(unpack_tensors(headers, memoryview(b"".join(map(bytes, buffers))))["label"])


def by_csv(array: Any) -> list[Any]:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([value] for value in as_text(array).tolist())
    file.seek(0)
    return [row[0] for row in csv.reader(file)]


def by_npz(array: Any) -> list[Any]:
    file = io.BytesIO()
    np.savez(file, labels=np.array(array.tolist()) if array.dtype == object else array)
    file.seek(0)
    with np.load(file) as arrays:
        return listed(arrays["labels"])


def by_parquet(array: Any) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"label": as_text(array)}), path)
        return read_parquet_table(path, required=("label",), optional=()).columns["label"]


def as_text(array: Any) -> Any:
    """Decode bytes, as a program that writes a table does."""
    decoded = [value.decode() if isinstance(value, bytes) else value for value in array.tolist()]
    return np.array(decoded) if array.dtype.kind in "OSU" else array


def listed(array: Any) -> list[Any]:
    values: list[Any] = array.tolist()
    return values


def answered(array: Any) -> Answer:
    return Answer(outcome="answered", outputs={"label": array})


ASKED = InferRequest(id="", inputs={}, rows=1, priority=0, timeout_us=0, outputs=None)
names = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=6),
    st.sampled_from(["1", "1.0", "true", "False", " x", "007", "1e5", "0.10"]),
).filter(lambda name: name.strip() == name or name == " x")
numbers = st.one_of(st.integers(-1000, 1000), st.integers(-100, 100).map(lambda n: n / 10))
labels = st.one_of(
    st.lists(names, min_size=1, max_size=4).map(np.array),
    st.lists(names, min_size=1, max_size=4).map(lambda values: np.array([v.encode() for v in values], dtype=object)),
    st.lists(names, min_size=1, max_size=4).map(lambda values: np.array([v.encode() for v in values])),
    *(
        st.lists(numbers, min_size=1, max_size=4).map(lambda values, dtype=dtype: np.array(values).astype(dtype))
        for dtype in ("int8", "int32", "int64", "float16", "float32", "float64", "bool")
    ),
)


@settings(max_examples=often(60), deadline=None)
@given(labels)
def test_no_road_changes_the_class(array: Any) -> None:
    expected = class_names(array).tolist()
    for road in (by_json, by_binary, by_grpc, by_worker, by_csv, by_npz, by_parquet):
        assert [class_name(value) for value in road(array)] == expected, road.__name__
