"""Little ONNX files, made node by node."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 10
OPSET = 17
ML_OPSET = 3

Values = dict[str, tuple[int, list[Any]]] | list[onnx.ValueInfoProto]


def write_onnx(
    path: Path, nodes: Sequence[onnx.NodeProto], inputs: Values, outputs: Values, **weights: NDArray[Any]
) -> Path:
    """A file of `nodes` between `inputs` and `outputs`, (element type, shape) by name or infos of other values."""
    graph = helper.make_graph(
        list(nodes),
        "little",
        values(inputs),
        values(outputs),
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    model = helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def values(given: Values) -> list[onnx.ValueInfoProto]:
    if isinstance(given, list):
        return given
    return [helper.make_tensor_value_info(name, *spec) for name, spec in given.items()]


def write_linear(path: Path, weights: NDArray[np.float32], *, rows: str | int = "rows", name: str = "x") -> Path:
    """Scores (rows, classes) of FP32 input `x`: its product with `weights` (features, classes)."""
    features, classes = weights.shape
    return write_onnx(
        path,
        [helper.make_node("MatMul", [name, "weights"], ["logits"])],
        {name: (TensorProto.FLOAT, [rows, features])},
        {"logits": (TensorProto.FLOAT, [rows, classes])},
        weights=weights,
    )


def write_labelled(
    path: Path, weights: NDArray[np.float32], *, label: str = "label", scores: str = "probabilities"
) -> Path:
    """As exporters of estimators do: outputs `label` and `scores` of FP32 input `x`."""
    features, classes = weights.shape
    return write_onnx(
        path,
        [
            helper.make_node("MatMul", ["x", "weights"], ["logits"]),
            helper.make_node("Softmax", ["logits"], [scores], axis=1),
            helper.make_node("ArgMax", ["logits"], ["best"], axis=1, keepdims=0),
            helper.make_node("Gather", ["names", "best"], [label]),
        ],
        {"x": (TensorProto.FLOAT, [None, features])},
        {label: (TensorProto.STRING, [None]), scores: (TensorProto.FLOAT, [None, classes])},
        weights=weights,
        names=np.array([f"class {i}" for i in range(classes)], dtype=object),
    )
