import json

import msgspec
import numpy as np
import pytest

from gearshift.errors import InvalidInput, NotAcceptable
from gearshift.model import DATATYPES, TensorSpec
from gearshift.request import Answer, BulkWork, CutRows, ItemFacts, MissingNode, RowFacts
from gearshift.v2.binary import read_tensor
from gearshift.v2.bodies import (
    AskedOutput,
    AskedParameters,
    IndexBody,
    InferBody,
    InferParameters,
    InputParameters,
    InputTensor,
)
from gearshift.v2.json import DEFAULT_LIMITS, encode_answer, encode_error, parse_request
from gearshift.v2.packing import datatype_named
from gearshift.v2.tensors import Limits

SPECS = {
    "x": TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),
    "n": TensorSpec(name="n", datatype="INT8", shape=(-1,)),
}
GOOD_X = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4.5]}
GOOD_N = {"name": "n", "shape": [2], "datatype": "INT8", "data": [1, -128]}


def parse(body: object, specs=SPECS, outputs=("label",), limits=DEFAULT_LIMITS):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_request(data, specs, outputs, limits=limits)


def test_flat_and_nested_data_are_the_same():
    flat = parse({"inputs": [GOOD_N, GOOD_X]})
    nested = parse({"inputs": [GOOD_X | {"data": [[1, 2], [3, 4.5]]}, GOOD_N]})
    for name in SPECS:
        np.testing.assert_array_equal(flat.inputs[name], nested.inputs[name])
        assert flat.inputs[name].dtype == DATATYPES[SPECS[name].datatype]
    assert flat.inputs["x"].tolist() == [[1, 2], [3, 4.5]]
    assert list(flat.inputs) == list(SPECS)
    assert flat.rows == 2


def test_what_the_protocol_allows_beside_is_taken():
    request = parse(
        {
            "id": "a",
            "inputs": [GOOD_X, GOOD_N | {"parameters": {"anything": 1}}],
            "outputs": [{"name": "label", "parameters": {}}, {"name": "gearshift_stage"}],
            "parameters": {"priority": 3, "timeout": 5000, "other": "text"},
            "unknown": {"field": []},
        }
    )
    assert (request.id, request.priority, request.timeout_us) == ("a", 3, 5000)
    assert request.outputs == ("label", "gearshift_stage")


@pytest.mark.parametrize(
    ("parameters", "bulk"),
    [
        ({"bulk": True}, BulkWork()),
        ({"bulk": True, "gear": 2}, BulkWork(gear=2)),
        ({"bulk": True, "accuracy": 0.9}, BulkWork(accuracy=0.9)),
        ({"bulk": False}, None),
        ({"bulk": None, "gear": None}, None),
    ],
)
def test_bulk_work_names_a_gear_or_an_accuracy(parameters, bulk):
    assert parse({"inputs": [GOOD_X, GOOD_N], "parameters": parameters}).bulk == bulk


NO_PARAMETERS = {"priority": None, "timeout": None, "binary_data_output": None}
NOTHING_OF_AN_INPUT = {"binary_data_size": None, "shared_memory_region": None}
NOTHING_OF_AN_OUTPUT = {"binary_data": None, "classification": None, "shared_memory_region": None}


@pytest.mark.parametrize(
    ("input_members", "output_members", "members"),
    [
        ({}, {}, {"id": None, "parameters": None}),
        ({}, {}, {"parameters": NO_PARAMETERS}),
        ({"parameters": None}, {"parameters": None}, {}),
        ({"parameters": NOTHING_OF_AN_INPUT}, {"parameters": NOTHING_OF_AN_OUTPUT}, {}),
    ],
)
def test_a_member_that_may_be_left_out_may_be_null(input_members, output_members, members):
    plain = {"inputs": [GOOD_X, GOOD_N], "outputs": [{"name": "label"}]}
    nulls = {"inputs": [GOOD_X | input_members, GOOD_N], "outputs": [{"name": "label"} | output_members], **members}
    assert decoded(nulls) == decoded(plain)


def decoded(body):
    request = msgspec.to_builtins(parse(body), builtin_types=(np.ndarray,))
    return request | {"inputs": {name: array.tolist() for name, array in request["inputs"].items()}}


@pytest.mark.parametrize(
    "body",
    [InferBody, InputTensor, InputParameters, AskedOutput, AskedParameters, InferParameters, IndexBody],
)
def test_every_member_of_a_body_that_may_be_left_out_takes_null(body):
    for member in msgspec.structs.fields(body):
        if not member.required and member.name != "data":
            msgspec.convert(None, member.type)


def test_data_that_is_null_is_none():
    with pytest.raises(InvalidInput, match="input 'x': data does not fit FP32"):
        parse({"inputs": [GOOD_X | {"data": None}, GOOD_N]})
    head = {"inputs": [GOOD_X | {"data": None, "parameters": {"binary_data_size": 16}}, GOOD_N]}
    body = json.dumps(head).encode()
    request = parse_request(body + np.arange(4, dtype="<f4").tobytes(), SPECS, ("label",), len(body))
    assert request.inputs["x"].tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize("outputs", [None, []])
def test_without_outputs_all_are_answered(outputs):
    request = parse({"inputs": [GOOD_X, GOOD_N], "outputs": outputs})
    assert request.outputs is None
    assert len(json.loads(encode_answer("op", request, ANSWER)[0])["outputs"]) == len(ANSWER.outputs)


@pytest.mark.parametrize("datatype", sorted(DATATYPES))
def test_each_datatype_is_taken(datatype):
    value = {"BYTES": "text", "BOOL": True}.get(datatype, 1)
    tensor = {"name": "x", "shape": [1], "datatype": datatype, "data": [value]}
    request = parse({"inputs": [tensor]}, {"x": TensorSpec(name="x", datatype=datatype, shape=(-1,))})
    assert request.inputs["x"].tolist() == [value]


def one(datatype: str, data: str) -> tuple[bytes, dict[str, TensorSpec]]:
    body = b'{"inputs":[{"name":"x","shape":[1],"datatype":"%s","data":%s}]}' % (datatype.encode(), data.encode())
    return body, {"x": TensorSpec(name="x", datatype=datatype, shape=(-1,))}


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("INT8", "[128]"),
        ("UINT8", "[-1]"),
        ("INT64", "[9223372036854775808]"),
        ("UINT64", "[18446744073709551616]"),
        ("INT64", "[123456789012345678901234567890]"),
        ("INT32", "[1.5]"),
        ("INT32", "[true]"),
        ("INT32", '["1"]'),
        ("FP16", "[70000]"),
        ("FP32", "[1e39]"),
        ("FP64", "[1e999]"),
        ("FP64", "[NaN]"),
        ("FP64", "[Infinity]"),
        ("FP64", "[null]"),
        ("FP64", "[true]"),
        ("FP64", '["1"]'),
        ("BOOL", "[1]"),
        ("BYTES", "[1]"),
        ("BYTES", '["\xff"]'),
        ("FP64", "1"),
        ("FP64", "[]"),
        ("FP64", "[1,2]"),
        ("FP64", "[[1]]"),
        ("FP64", "{}"),
        ("FP64", "[" * 100_000),
    ],
)
def test_data_that_does_not_fit_is_refused_by_name(datatype, data):
    body, specs = one(datatype, "")
    body = body.replace(b'"data":', b'"data":' + data.encode("latin-1"))
    with pytest.raises(InvalidInput, match=r"input 'x'|the body is no inference request"):
        parse(body, specs)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "no inference request"),
        (b"{", "no inference request"),
        (b"[]", "no inference request"),
        (b"\xff\xfe", "no inference request"),
        (b"[" * 100_000, "no inference request"),
        ({}, "inputs"),
        ({"inputs": []}, "missing"),
        ({"inputs": "x"}, r"\$\.inputs"),
        ({"inputs": [GOOD_X]}, r"\['n'\] are missing"),
        ({"inputs": [GOOD_X, GOOD_X, GOOD_N]}, "'x': is given twice"),
        ({"inputs": [GOOD_X, GOOD_N, GOOD_X | {"name": "z"}]}, "input 'z': there is no such input"),
        ({"inputs": [GOOD_X | {"datatype": "FP64"}, GOOD_N]}, "datatype is 'FP64', needs 'FP32'"),
        ({"inputs": [GOOD_X | {"shape": [4]}, GOOD_N]}, "shape is"),
        ({"inputs": [GOOD_X | {"shape": [2, 3]}, GOOD_N]}, "shape is"),
        ({"inputs": [GOOD_X | {"shape": [0, 2], "data": []}, GOOD_N]}, "shape is"),
        ({"inputs": [GOOD_X | {"shape": [-1, 2]}, GOOD_N]}, "shape is"),
        ({"inputs": [GOOD_X | {"shape": [1 << 62, 2]}, GOOD_N]}, "elements"),
        ({"inputs": [GOOD_X | {"data": [1, 2, 3]}, GOOD_N]}, "3 elements, shape says 4"),
        ({"inputs": [GOOD_X | {"data": [[1, 2], [3]]}, GOOD_N]}, "nested unevenly"),
        ({"inputs": [GOOD_X | {"data": [[1, 2, 3, 4]]}, GOOD_N]}, "data has shape"),
        ({"inputs": [GOOD_X | {"shape": [1, 2], "data": [1, 2]}, GOOD_N]}, "rows"),
        ({"inputs": [GOOD_X, GOOD_N], "parameters": {"priority": -1}}, "priority is -1"),
        ({"inputs": [GOOD_X, GOOD_N], "parameters": {"priority": 1001}}, "priority is 1001"),
        ({"inputs": [GOOD_X, GOOD_N], "parameters": {"priority": "high"}}, "priority"),
        ({"inputs": [GOOD_X, GOOD_N], "parameters": {"gear": 1}}, "gear is given, and the request is no bulk work"),
        ({"inputs": [GOOD_X, GOOD_N], "parameters": {"bulk": True, "gear": -1}}, "gear is -1"),
        ({"inputs": [GOOD_X, GOOD_N], "parameters": {"bulk": True, "accuracy": 1.5}}, "accuracy is 1.5"),
        (
            {"inputs": [GOOD_X, GOOD_N], "parameters": {"bulk": True, "accuracy": 0.5, "gear": 1}},
            "gear 1 and accuracy 0.5 are both given",
        ),
        ({"inputs": [GOOD_X, GOOD_N], "parameters": {"timeout": -1}}, "timeout"),
        ({"inputs": [GOOD_X, GOOD_N], "outputs": [{"name": "nothing"}]}, "output 'nothing': there is no such output"),
    ],
)
def test_a_request_that_does_not_fit_is_refused_with_the_reason(body, reason):
    with pytest.raises(InvalidInput, match=reason):
        parse(body)


ANSWER = Answer(
    outcome="answered",
    rows=(RowFacts(model="small", stage=0, certainty=0.9), RowFacts(model="large", stage=1, certainty=0.5)),
    outputs={"label": np.array(["a", b"b"], dtype=object), "scores": np.array([[1, 2], [3, 4]], dtype=np.float32)},
    gear=3,
    queue_s=0.25,
    run_s=0.5,
)


@pytest.mark.parametrize("data", [[None, 1.5], [[None], [1.5]]])
@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_null_is_a_missing_value_where_the_input_may_have_some(datatype, data):
    body = {"inputs": [{"name": "x", "shape": [2, 1], "datatype": datatype, "data": data}]}
    spec = TensorSpec(name="x", datatype=datatype, shape=(-1, 1))
    array = parse(body, {"x": msgspec.structs.replace(spec, missing=True)}).inputs["x"]
    assert (array.dtype, array.shape) == (np.dtype(DATATYPES[datatype]), (2, 1))
    np.testing.assert_array_equal(array, [[np.nan], [1.5]])
    with pytest.raises(InvalidInput):
        parse(body, {"x": spec})


@pytest.mark.parametrize("data", ["[1e999]", "[NaN]", '["1"]'])
def test_what_is_neither_a_number_nor_missing_is_refused(data):
    body, specs = one("FP64", data)
    with pytest.raises(InvalidInput):
        parse(body, {"x": msgspec.structs.replace(specs["x"], missing=True)})


def test_an_answer_says_how_it_was_made():
    request = parse({"id": "q", "inputs": [GOOD_X, GOOD_N]})
    answer = json.loads(encode_answer("op", request, ANSWER)[0])
    assert answer == {
        "model_name": "op",
        "model_version": "1",
        "id": "q",
        "parameters": {"gear": 3, "queue_s": 0.25, "run_s": 0.5, "outcome": "answered"},
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]},
            {"name": "scores", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]},
        ],
    }


def test_a_degraded_answer_says_why():
    degraded = msgspec.structs.replace(ANSWER, outcome="degraded", reason="no worker of model 'large' is running")
    parameters = json.loads(encode_answer("op", parse({"inputs": [GOOD_X, GOOD_N]}), degraded)[0])["parameters"]
    assert (parameters["outcome"], parameters["reason"]) == ("degraded", "no worker of model 'large' is running")


def test_row_facts_are_outputs_on_request():
    names = ["gearshift_model", "gearshift_stage", "gearshift_certainty", "gearshift_exit_segment", "scores"]
    request = parse({"inputs": [GOOD_X, GOOD_N], "outputs": [{"name": name} for name in names]}, outputs=())
    outputs = json.loads(encode_answer("op", request, ANSWER)[0])["outputs"]
    assert [output["name"] for output in outputs] == names
    assert [output["data"] for output in outputs[:4]] == [["small", "large"], [0, 1], [0.9, 0.5], [0, 0]]


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.array([1, np.inf]), "NaN or infinity"),
        (np.array([-np.inf], np.float32), "NaN or infinity"),
        (np.array([np.nan, 1], np.float16), "NaN or infinity"),
        (np.full(1000, np.inf), "NaN or infinity"),
        (np.array([b"\xff\x00ok", b"a"], dtype=object), "bytes that are no UTF-8"),
        (np.array(["a\udc80b"], dtype=object), "text with a lone surrogate"),
    ],
)
def test_what_json_cannot_carry_is_refused_with_the_way_out_and_goes_in_binary(array: np.ndarray, what: str):
    request = parse({"inputs": [GOOD_X, GOOD_N]})
    answer = msgspec.structs.replace(ANSWER, outputs={"fine": np.ones(2), "odd": array})
    with pytest.raises(NotAcceptable, match=rf"^output 'odd': holds {what}, which JSON cannot carry; .*binary_data"):
        encode_answer("op", request, answer)
    body, head_bytes = encode_answer("op", msgspec.structs.replace(request, binary_outputs={"odd": True}), answer)
    sent = read_tensor(memoryview(body)[head_bytes:], array.shape, datatype_named(array.dtype), "")
    expected = [b"a\x80b"] if what.endswith("surrogate") else array.tolist()
    np.testing.assert_array_equal(sent.tolist(), expected)


def test_finite_numbers_whose_sum_is_not_are_answered():
    largest = np.full(3, np.finfo(np.float64).max)
    answer = msgspec.structs.replace(ANSWER, outputs={"large": largest})
    body, _ = encode_answer("op", parse({"inputs": [GOOD_X, GOOD_N]}), answer)
    assert json.loads(body)["outputs"][0]["data"] == largest.tolist()


def test_a_certainty_that_is_infinite_is_refused_where_it_is_asked_for():
    facts = (RowFacts(model="small", stage=0, certainty=float("-inf")),)
    answer = msgspec.structs.replace(ANSWER, rows=facts)
    request = parse({"inputs": [GOOD_X, GOOD_N], "outputs": [{"name": "gearshift_certainty"}]})
    with pytest.raises(NotAcceptable, match="output 'gearshift_certainty'"):
        encode_answer("op", request, answer)


def test_an_error_that_is_no_unicode_is_escaped():
    assert json.loads(encode_error("no \udcff here")) == {"error": "no \\udcff here"}


def test_a_shape_of_numbers_too_long_to_write_is_refused_with_a_sentence():
    cube = {"x": TensorSpec(name="x", datatype="FP32", shape=(-1, -1, -1))}
    with pytest.raises(InvalidInput, match="has over 9223372036854775808 elements by its shape"):
        parse({"inputs": [GOOD_X | {"shape": [1, 10**4000, 10**4000]}]}, cube)


def test_of_a_shape_of_many_dimensions_only_their_number_is_told():
    with pytest.raises(InvalidInput, match=r"shape is of 5000 dimensions, needs \[-1, 2\]"):
        parse({"inputs": [GOOD_X | {"shape": [1] * 5000}, GOOD_N]})


LIMITS = Limits(most_rows=4, most_tensors=2, most_elements=6)


def within_limits(body: object) -> None:
    parse_request(json.dumps(body).encode(), SPECS, ("label", "scores"), limits=LIMITS)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"inputs": [GOOD_X | {"shape": [5, 2]}, GOOD_N]}, "input 'x': shape has 5 rows, at most 4 are taken"),
        ({"inputs": [GOOD_X, GOOD_N, GOOD_N]}, "there are 3 inputs, at most 2"),
        ({"inputs": [GOOD_X, GOOD_N], "outputs": [{"name": "label"}] * 3}, "there are 3 outputs, at most 2"),
        ({"inputs": [GOOD_X | {"shape": [4, 2]}, GOOD_N]}, "input 'x': has 8 elements by its shape, at most 6"),
    ],
)
def test_tensors_and_elements_are_bounded(body, reason):
    within_limits({"inputs": [GOOD_X, GOOD_N], "outputs": [{"name": "label"}, {"name": "scores"}]})
    with pytest.raises(InvalidInput, match=reason):
        within_limits(body)


@pytest.mark.parametrize("nested", [True, False])
def test_as_many_numbers_as_the_shape_says_are_read_however_many(nested):
    rows = [[number, 0.5] for number in range(50_000)]
    data = rows if nested else [value for row in rows for value in row]
    tensor = {"name": "x", "shape": [50_000, 2], "datatype": "FP32", "data": data}
    read = parse({"inputs": [tensor]}, {"x": SPECS["x"]}, limits=Limits(most_rows=50_000))
    assert read.inputs["x"].tolist() == rows


OF_A_GRAPH = Answer(
    outcome="answered",
    rows=(RowFacts(model="join", stage=0, certainty=1.0), RowFacts(model="join", stage=0, certainty=1.0)),
    outputs={"label": np.array(["a", "b"], dtype=object)},
    items=(ItemFacts(node="join", row=0, model="join"), ItemFacts(node="check", row=1, error="it failed")),
    missing=(MissingNode(node="check", row=1, reason="it failed"),),
    cut=(CutRows(node="read", row=0, rows=9),),
)


def test_what_nodes_of_a_graph_did_is_told_when_asked_and_what_is_missing_always():
    asked = [{"name": name} for name in ("label", "gearshift_items", "gearshift_missing", "gearshift_cut")]
    request = parse({"inputs": [GOOD_X, GOOD_N], "outputs": asked})
    answer = json.loads(encode_answer("op", request, OF_A_GRAPH)[0])
    items, missing, cut = ([json.loads(row) for row in one["data"]] for one in answer["outputs"][1:])
    assert [[item["node"] for item in row] for row in items] == [["join"], ["check"]]
    assert missing == [[], [{"node": "check", "row": 1, "reason": "it failed"}]]
    assert cut == [[{"node": "read", "row": 0, "rows": 9}], []]
    plain = json.loads(encode_answer("op", parse({"inputs": [GOOD_X, GOOD_N]}), OF_A_GRAPH)[0])
    assert [one["name"] for one in plain["outputs"]] == ["label"]
    assert json.loads(plain["parameters"]["gearshift_missing"]) == missing[1]
    assert json.loads(plain["parameters"]["gearshift_cut"]) == cut[0]


def test_an_answer_that_lacks_nothing_has_no_parameters_of_nodes():
    parameters = json.loads(encode_answer("op", parse({"inputs": [GOOD_X, GOOD_N]}), ANSWER)[0])["parameters"]
    assert not {name for name in parameters if name.startswith("gearshift_")}


def test_an_input_whose_values_may_be_missing_may_be_left_out() -> None:
    specs = {
        spec.name: spec
        for spec in (
            TensorSpec(name="age", datatype="FP64", shape=(-1,)),
            TensorSpec(name="income", datatype="FP32", shape=(-1,), missing=True),
            TensorSpec(name="town", datatype="BYTES", shape=(-1,), missing=True),
            TensorSpec(name="image", datatype="FP32", shape=(-1, 2), missing=True),
        )
    }
    age = {"name": "age", "datatype": "FP64", "shape": [2], "data": [60, 20]}
    image = {"name": "image", "datatype": "FP32", "shape": [2, 2], "data": [0, 1, 2, 3]}
    request = parse({"inputs": [age, image]}, specs)
    assert (list(request.inputs), request.rows) == (list(specs), 2)
    assert request.inputs["income"].dtype == np.float32
    assert np.isnan(request.inputs["income"]).all()
    assert request.inputs["town"].tolist() == [None, None]
    for inputs, needed in (
        ([age], "\\['image'\\]"),
        ([image], "\\['age'\\]"),
        ([], "'age', 'image', 'income', 'town'"),
    ):
        with pytest.raises(InvalidInput, match=f"{needed}.* are missing"):
            parse({"inputs": inputs}, specs)


@pytest.mark.parametrize("nested", [False, True])
def test_a_column_of_one_value_per_row_is_taken_as_mlserver_writes_it_and_answered_so(nested: bool) -> None:
    """Its PandasCodec and StringCodec encode and decode (n, 1)."""
    specs = {
        "town": TensorSpec(name="town", datatype="BYTES", shape=(-1,)),
        "age": TensorSpec(name="age", datatype="FP64", shape=(-1,)),
        "point": TensorSpec(name="point", datatype="FP32", shape=(-1, 1)),
    }
    towns, ages = (["Bonn", "Ulm"], [60.0, 20.0]) if not nested else ([["Bonn"], ["Ulm"]], [[60.0], [20.0]])
    inputs = [
        {"name": "town", "datatype": "BYTES", "shape": [2, 1], "data": towns, "parameters": {"content_type": "str"}},
        {"name": "age", "datatype": "FP64", "shape": [2, 1], "data": ages},
        {"name": "point", "datatype": "FP32", "shape": [2, 1], "data": [1, 2]},
    ]
    request = parse({"inputs": inputs, "parameters": {"content_type": "pd"}}, specs)
    assert (request.columns, request.rows) == (True, 2)
    assert {name: array.tolist() for name, array in request.inputs.items()} == {
        "town": ["Bonn", "Ulm"],
        "age": [60.0, 20.0],
        "point": [[1.0], [2.0]],
    }
    outputs = {"label": np.array(["old", "young"], object), "scores": np.eye(2)}
    answer = Answer(outcome="answered", outputs=outputs)
    told = json.loads(encode_answer("task", request.without_inputs(), answer)[0])["outputs"]
    assert [(one["shape"], one["data"]) for one in told] == [([2, 1], ["old", "young"]), ([2, 2], [1, 0, 0, 1])]


@pytest.mark.parametrize("shape", [[4], [2, 2], [1, 4], [4, 1, 1], [0, 1], [2, 1]])
def test_no_other_shape_is_one_value_per_row(shape: list[int]) -> None:
    specs = {"age": TensorSpec(name="age", datatype="FP64", shape=(-1,))}
    body = {"inputs": [{"name": "age", "datatype": "FP64", "shape": shape, "data": [1, 2, 3, 4]}]}
    if shape == [4]:
        assert not parse(body, specs).columns
        return
    with pytest.raises(InvalidInput, match=r"shape is|4 elements, shape says 2"):
        parse(body, specs)
