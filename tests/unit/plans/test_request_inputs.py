import pytest

from gearshift.errors import InvalidInput
from gearshift.model import TensorSpec
from gearshift.pipeline import FanOut, Node
from gearshift.plans.request_inputs import request_inputs

IMAGE = TensorSpec(name="image", datatype="FP32", shape=(-1, 64))
STRIP = TensorSpec(name="strip", datatype="FP32", shape=(-1, 8, 40))
INPUTS = {"split": (STRIP,), "read": (IMAGE,)}


def shapes(nodes: dict[str, Node]) -> dict[str, tuple[int, ...]]:
    return {spec.name: tuple(spec.shape) for spec in request_inputs(nodes, INPUTS, where="here")}


def test_a_request_has_the_tensors_that_no_node_answers() -> None:
    read = Node(operator="read", inputs={"image": "split.parts"}, fan_out=FanOut(per_row="split.parts", most=8))
    assert shapes({"split": Node(operator="split"), "read": read}) == {"strip": (-1, 8, 40)}


def test_a_tensor_that_is_fanned_out_over_has_rows_in_each_request_row() -> None:
    read = Node(operator="read", inputs={"image": "faces"}, fan_out=FanOut(per_row="faces", most=3))
    assert shapes({"read": read}) == {"faces": (-1, -1, 64)}


def test_two_nodes_that_take_a_tensor_as_different_types_are_refused() -> None:
    nodes = {"split": Node(operator="split"), "read": Node(operator="read", inputs={"image": "strip"})}
    with pytest.raises(InvalidInput, match="nodes 'split' and 'read' take 'strip' as "):
        request_inputs(nodes, INPUTS, where="here")
