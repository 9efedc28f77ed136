from collections.abc import Sequence

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.model import TensorSpec
from gearshift.pipeline import Edge, FanOut, Node, When
from gearshift.profiles.pipelines.fitting import require_fits
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve


def spec(name: str, *shape: int, datatype: str = "FP32") -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, shape=(-1, *shape))


def profile(
    operator: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], said: Sequence[str] = ("0", "1")
) -> Profile:
    n = len(said)
    records = PredictionRecords(
        models=(operator,),
        quality=np.ones((1, n)),
        certainty=np.ones((1, n)),
        part=np.arange(n, dtype=np.int8) % 2,
        prediction=np.array([said]),
    )
    curve = RunTimeCurve(model=operator, batch_sizes=(1,), median_s=(0.01,), p95_s=(0.01,))
    return Profile(
        operator=operator, curves=(curve,), predictions=records, inputs=tuple(inputs), outputs=tuple(outputs)
    )


LABEL = spec("label", datatype="INT64")
PROFILES = {
    "split": profile("split", [spec("strip", 8, 40)], [spec("parts", -1, 64)]),
    "read": profile("read", [spec("image", 64)], [LABEL, spec("scores", 10), spec("text", datatype="BYTES")]),
    "join": profile("join", [spec("labels", -1, datatype="INT64")], [LABEL]),
}
NODES = {
    "split": Node(operator="split", inputs={"strip": "strip"}),
    "read": Node(operator="read", inputs={"image": "split.parts"}, fan_out=FanOut(per_row="split.parts", most=8)),
    "join": Node(operator="join", inputs={"labels": "read.label"}, fan_in=True),
}
EDGES = [Edge(from_="split", to="read"), Edge(from_="read", to="join")]


def refusal(**changed: object) -> str:
    given = {"nodes": NODES, "edges": EDGES, "profiles": PROFILES} | changed
    with pytest.raises(InvalidInput) as caught:
        require_fits("digits", **given)
    return str(caught.value)


def with_node(name: str, **fields: object) -> dict[str, Node]:
    return NODES | {name: Node(**fields)}


def test_rows_are_passed_one_by_one_and_gathered_as_a_list() -> None:
    require_fits("digits", NODES, EDGES, PROFILES)


def test_an_unknown_tensor_is_named_with_those_that_there_are() -> None:
    fan_out = FanOut(per_row="split.part", most=8)
    nodes = with_node("read", operator="read", inputs={"image": "split.part"}, fan_out=fan_out)
    assert (
        refusal(nodes=nodes)
        == "pipeline 'digits', node 'read': it takes 'split.part', and node 'split' answers 'parts'; mend the node's "
        "inputs"
    )


def test_an_unknown_input_is_named_with_those_that_there_are() -> None:
    nodes = with_node("split", operator="split", inputs={"strips": "strip"})
    assert "it passes 'strips' to operator 'split', which takes 'strip'" in refusal(nodes=nodes)


def test_an_input_that_is_not_passed_is_named() -> None:
    more = profile("split", [spec("strip", 8, 40), spec("dark", datatype="BOOL")], PROFILES["split"].outputs)
    sentence = refusal(profiles=PROFILES | {"split": more})
    assert "operator 'split' takes 'dark', and the node does not pass it; add it to the node's inputs" in sentence


@pytest.mark.parametrize("image", [spec("image", 65), spec("image", 64, datatype="FP64"), spec("image", 8, 8)])
def test_types_that_do_not_fit_along_an_edge_are_refused(image: TensorSpec) -> None:
    sentence = refusal(profiles=PROFILES | {"read": profile("read", [image], PROFILES["read"].outputs)})
    told = f"is passed as 'image', which is {image.datatype} {list(image.shape)}; let both be the same, or put a"
    assert "pipeline 'digits', node 'read': tensor 'split.parts' is FP32 [-1, 64], and " + told in sentence


def test_a_tensor_of_single_values_has_no_rows_to_fan_out_over() -> None:
    fan_out = FanOut(per_row="split.count", most=8)
    nodes = with_node("read", operator="read", inputs={"image": "split.count"}, fan_out=fan_out)
    split = profile("split", PROFILES["split"].inputs, [spec("count")])
    assert "tensor 'split.count' has shape [-1], and so has no rows" in refusal(
        nodes=nodes, profiles=PROFILES | {"split": split}
    )


def test_two_nodes_need_one_type_of_a_requests_tensor() -> None:
    nodes = {
        "read": Node(operator="read", inputs={"image": "x"}),
        "split": Node(operator="split", inputs={"strip": "x"}),
    }
    sentence = refusal(nodes=nodes, edges=[Edge(from_="split", to="read")])
    assert (
        "node 'split' and 'read': tensor 'x' is FP32 [-1, 64], and is passed as 'x', which is FP32 [-1, 8, 40]"
        in sentence
    )


def on(**when: object) -> list[Edge]:
    return [EDGES[0], Edge(from_="read", to="join", when=When(**when))]


def test_a_label_that_no_model_answers_is_named() -> None:
    assert (
        refusal(edges=on(output="label", one_of=(1, "cat")))
        == "pipeline 'digits', edge from 'read' to 'join': its condition waits for the label 'cat', which no model of "
        "operator 'read' answers; use one of '0', '1'"
    )


def test_conditions_on_labels_and_numbers_that_there_are_pass() -> None:
    for when in ({"one_of": (0, "1.0")}, {"at_least": 1}):
        require_fits("digits", NODES, on(output="label", **when), PROFILES)
    require_fits("digits", NODES, on(output="certainty", at_least=0.5), PROFILES)


def test_a_condition_on_an_unknown_output_is_refused() -> None:
    sentence = refusal(edges=on(output="lable", one_of=(1,)))
    assert "its condition is on 'lable', and operator 'read' answers 'certainty', 'label', 'scores'" in sentence


def test_a_condition_that_compares_text_with_a_number_is_refused() -> None:
    assert "compares 'text', which is text, with a number; use one_of" in refusal(edges=on(output="text", at_least=1.0))
