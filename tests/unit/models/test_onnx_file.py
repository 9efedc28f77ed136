import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from gearshift.errors import InvalidInput, ModelFailed
from gearshift.models.certainty import softmax, top_two_difference
from gearshift.models.config import ModelSettings, OneOperator
from gearshift.models.loading import load_model
from gearshift.models.onnx_file import open_onnx_file
from gearshift.models.user_model import UserModel
from tests.onnx_files import write_labelled, write_linear, write_onnx

WEIGHTS = np.array([[1, 0, 0], [0, 1, 0]], dtype=np.float32)
X = np.array([[3, 1], [0.5, 2]], dtype=np.float32)
FIELD = "gearshift.toml, field models.m.load"


def loaded(file: Path, **settings: Any) -> UserModel:
    models = {"m": ModelSettings(load=file.name, **settings)}
    project = OneOperator(operator="pets", samples="samples.py:load", models=models).as_project()
    return load_model(project, file.parent, "m")


def refusal(file: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        loaded(file)
    assert caught.value.remedy
    return str(caught.value)


def test_the_only_output_is_scores_with_the_chosen_certainty(tmp_path: Path) -> None:
    said = loaded(write_linear(tmp_path / "m.onnx", WEIGHTS)).run({"x": X})
    assert said.outputs["label"].tolist() == [0, 1]
    assert said.outputs["scores"].tolist() == [[3, 1, 0], [0.5, 2, 0]]
    assert said.certainty.tolist() == [2, 1.5]


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_batches_of_any_size_run(tmp_path: Path, rows: int) -> None:
    said = loaded(write_linear(tmp_path / "m.onnx", WEIGHTS)).run({"x": np.repeat(X[:1], rows, axis=0)})
    assert said.outputs["label"].tolist() == [0] * rows


def test_softmax_makes_probabilities_of_scores(tmp_path: Path) -> None:
    said = loaded(write_linear(tmp_path / "m.onnx", WEIGHTS), softmax=True).run({"x": X})
    assert said.outputs["scores"].sum(axis=1) == pytest.approx([1, 1])
    assert said.certainty == pytest.approx(top_two_difference(softmax(X @ WEIGHTS)))


def test_the_only_input_may_have_any_name(tmp_path: Path) -> None:
    said = loaded(write_linear(tmp_path / "m.onnx", WEIGHTS, name="pixels")).run({"input": X})
    assert said.outputs["label"].tolist() == [0, 1]


def test_several_inputs_are_fed_by_name_and_others_left_out(tmp_path: Path) -> None:
    file = write_onnx(
        tmp_path / "m.onnx",
        [helper.make_node("Sub", ["a", "b"], ["y"])],
        {name: (TensorProto.FLOAT, ["rows", 2]) for name in ("a", "b")},
        {"y": (TensorProto.FLOAT, ["rows", 2])},
    )
    said = loaded(file).run({"unused": np.zeros(2), "b": np.ones_like(X), "a": X})
    assert said.outputs["scores"].tolist() == (X - 1).tolist()


def test_labels_and_probabilities_of_an_exported_estimator_are_kept(tmp_path: Path) -> None:
    said = loaded(write_labelled(tmp_path / "m.onnx", WEIGHTS)).run({"x": X})
    assert sorted(said.outputs) == ["label", "scores"]
    assert said.outputs["label"].tolist() == ["class 0", "class 1"]
    assert said.certainty == pytest.approx(top_two_difference(softmax(X @ WEIGHTS)))


def named(file: Path, outputs: dict[str, str]) -> UserModel:
    """A model of a label `said` and scores `p`, with a setting that says what each is."""
    return loaded(write_labelled(file, WEIGHTS, label="said", scores="p"), outputs=outputs)


def test_outputs_as_another_exporter_names_them_are_known(tmp_path: Path) -> None:
    file = write_labelled(tmp_path / "m.onnx", WEIGHTS, label="output_label", scores="output_probability")
    said = loaded(file).run({"x": X})
    assert sorted(said.outputs) == ["label", "scores"]
    assert said.outputs["label"].tolist() == ["class 0", "class 1"]


def test_a_setting_says_what_outputs_of_any_name_are(tmp_path: Path) -> None:
    said = named(tmp_path / "m.onnx", {"said": "label", "p": "scores"}).run({"x": X})
    assert sorted(said.outputs) == ["label", "scores"]
    assert said.certainty == pytest.approx(top_two_difference(softmax(X @ WEIGHTS)))
    assert sorted(named(tmp_path / "m.onnx", {"p": "scores"}).run({"x": X}).outputs) == ["label", "scores"]


def test_outputs_of_unknown_names_say_which_setting_names_them(tmp_path: Path) -> None:
    with pytest.raises(ModelFailed, match=r"or say what each is in \[models\.m\.outputs\]"):
        named(tmp_path / "m.onnx", {}).run({"x": X})
    with pytest.raises(ModelFailed, match="answered outputs 'said', 'p', and no 'q'"):
        named(tmp_path / "m.onnx", {"q": "scores"}).run({"x": X})


def test_an_output_named_certainty_is_the_certainty(tmp_path: Path) -> None:
    file = write_onnx(
        tmp_path / "m.onnx",
        [
            helper.make_node("ReduceMax", ["x"], ["certainty"], axes=[1], keepdims=0),
            helper.make_node("Neg", ["x"], ["negated"]),
        ],
        {"x": (TensorProto.FLOAT, ["rows", 2])},
        {"negated": (TensorProto.FLOAT, ["rows", 2]), "certainty": (TensorProto.FLOAT, ["rows"])},
    )
    said = loaded(file).run({"x": X})
    assert said.outputs["negated"].tolist() == (-X).tolist()
    assert said.certainty.tolist() == [3, 2]


def test_text_goes_in_as_text(tmp_path: Path) -> None:
    codes = {"keys_strings": ["a", "b"], "values_floats": [1.0, 2.0]}
    file = write_onnx(
        tmp_path / "m.onnx",
        [
            helper.make_node("LabelEncoder", ["word"], ["code"], domain="ai.onnx.ml", **codes),
            helper.make_node("Concat", ["code", "code"], ["scores"], axis=1),
        ],
        {"word": (TensorProto.STRING, ["rows", 1])},
        {"scores": (TensorProto.FLOAT, ["rows", 2])},
    )
    for words in (np.array([["a"], ["b"]]), np.array([["a"], ["b"]], dtype=object)):
        assert loaded(file).run({"word": words}).outputs["scores"].tolist() == [[1, 1], [2, 2]]


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"x": X.astype(np.float64)}, r"needs input 'x' as FP32 of shape \[-1, 2\], but was given FP64 of shape"),
        ({"x": np.zeros((2, 3), np.float32)}, r"as FP32 of shape \[-1, 2\], but was given FP32 of shape \[-1, 3\]"),
        ({"x": np.zeros(2, np.float32)}, r"but was given FP32 of shape \[-1\]; give it so in `samples`"),
        ({"x": np.array([["a", "b"]])}, r"but was given BYTES"),
        ({"y": X, "z": X}, "model 'm' needs input 'x', but there are y, z; name the samples' inputs as"),
    ],
)
def test_inputs_that_do_not_match_are_told(tmp_path: Path, inputs: dict[str, Any], told: str) -> None:
    with pytest.raises(ModelFailed, match=told):
        loaded(write_linear(tmp_path / "m.onnx", WEIGHTS)).run(inputs)


def test_a_broken_file_is_told(tmp_path: Path) -> None:
    file = write_linear(tmp_path / "m.onnx", WEIGHTS)
    file.write_bytes(file.read_bytes()[:-20])
    assert refusal(file).startswith(f"{file}: onnxruntime cannot load the file (")


def test_a_missing_file_names_the_field(tmp_path: Path) -> None:
    assert refusal(tmp_path / "m.onnx") == f"{FIELD}: there is no file {tmp_path / 'm.onnx'}; mend the path"


def test_a_fixed_batch_is_refused(tmp_path: Path) -> None:
    told = refusal(write_linear(tmp_path / "m.onnx", WEIGHTS, rows=1))
    assert "input 'x' has the fixed shape [1, 2], and batches differ in size; export it with a dynamic first" in told


def test_an_output_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 2])
    y = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    told = refusal(write_onnx(tmp_path / "m.onnx", [helper.make_node("SequenceConstruct", ["x"], ["y"])], [x], [y]))
    assert "output 'y' is a seq(tensor(float)); export it with tensors" in told


def test_a_missing_library_says_which_extra_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    told = refusal(write_linear(tmp_path / "m.onnx", WEIGHTS))
    assert told.startswith(f"{FIELD}: {tmp_path / 'm.onnx'}: needs onnxruntime, which cannot be imported")
    assert told.endswith("install it with `pip install 'gearshift[onnx]'`")


def test_a_session_runs_on_as_many_threads_as_there_are_cores(tmp_path: Path) -> None:
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        options = loaded(write_linear(tmp_path / "m.onnx", WEIGHTS)).model.session.get_session_options()
    finally:
        os.sched_setaffinity(0, cores)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)


def test_cuda_without_its_provider_is_refused(tmp_path: Path) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    file = write_linear(tmp_path / "m.onnx", WEIGHTS)
    with pytest.raises(InvalidInput, match=r"device kind 'cuda-x' needs CUDAExecutionProvider, which .* lacks"):
        open_onnx_file("m", file, device_kind="cuda-x", where=FIELD)
