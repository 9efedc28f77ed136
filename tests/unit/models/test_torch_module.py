import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import gearshift
from gearshift.errors import InvalidInput, ModelFailed
from gearshift.models.certainty import highest_probability, softmax, top_two_difference
from gearshift.models.config import ModelSettings, OneOperator
from gearshift.models.loading import load_model
from gearshift.models.torch_module import TorchModule, arrays_of, cuda_bytes, device_name, load_weights, placed
from gearshift.models.user_model import UserModel

X = np.array([[3, 1], [0.5, 2]], dtype=np.float32)


class Answers(torch.nn.Module):
    """A module whose forward is a function."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, *args: Any, **inputs: Any) -> Any:
        return self.answer(*args, **inputs)


def runnable(module: torch.nn.Module, **options: Any) -> UserModel:
    return UserModel("m", placed("m", module, "cpu"), top_two_difference, **options)


def linear() -> torch.nn.Linear:
    module = torch.nn.Linear(2, 3, bias=False)
    module.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    return module


def test_a_loader_may_answer_a_module(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text("import torch\ndef load(): return torch.nn.Linear(2, 3)\n")
    models = {"m": ModelSettings(load="models.py:load", softmax=True)}
    project = OneOperator(operator="pets", samples="s.py:load", models=models).as_project()
    model = load_model(project, tmp_path, "m")
    assert isinstance(model.model, TorchModule)
    assert model.run({"x": X}).outputs["scores"].sum(axis=1) == pytest.approx([1, 1])


def test_scores_give_the_best_class_and_the_chosen_certainty() -> None:
    said = runnable(linear()).run({"x": X})
    assert said.outputs["label"].tolist() == [0, 1]
    assert said.outputs["scores"].tolist() == [[3, 1, 0], [0.5, 2, 0]]
    assert said.certainty.tolist() == [2, 1.5]


def test_softmax_makes_probabilities_of_scores() -> None:
    said = UserModel("m", placed("m", linear(), "cpu"), highest_probability, softmax=True).run({"x": X})
    assert said.certainty == pytest.approx(softmax(X @ linear().weight.detach().numpy().T).max(axis=1))


def test_a_module_is_evaluated_without_dropout_or_gradients() -> None:
    seen = []

    def answer(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch.is_inference_mode_enabled())
        return x

    said = runnable(torch.nn.Sequential(torch.nn.Dropout(0.9), Answers(answer))).run({"x": X})
    assert said.outputs["scores"].tolist() == X.tolist()
    assert seen == [True]


def test_arrays_that_are_read_only_run() -> None:
    read_only = np.frombuffer(X.tobytes(), dtype=np.float32).reshape(X.shape)
    assert runnable(linear()).run({"x": read_only}).outputs["label"].tolist() == [0, 1]


def test_several_inputs_are_given_by_name() -> None:
    said = runnable(Answers(lambda a, b: a - b)).run({"b": np.ones_like(X), "a": X})
    assert said.outputs["scores"].tolist() == (X - 1).tolist()


def test_named_outputs_with_scores_or_a_certainty_are_taken() -> None:
    said = runnable(Answers(lambda x: {"logits": x, "sum": x.sum(dim=1)})).run({"x": X})
    assert sorted(said.outputs) == ["label", "scores", "sum"]
    assert said.certainty.tolist() == [2, 1.5]
    said = runnable(Answers(lambda x: ({"sum": x.sum(dim=1)}, x[:, 0]))).run({"x": X})
    assert said.outputs["sum"].tolist() == [4, 2.5]
    assert said.certainty.tolist() == [3, 0.5]


def test_the_only_one_of_named_outputs_is_the_answer() -> None:
    assert runnable(Answers(lambda x: {"out": x})).run({"x": X}).outputs["label"].tolist() == [0, 1]


def test_classes_and_decode_of_a_module_keep_their_meaning() -> None:
    module = linear()
    module.classes_ = np.array(["a", "b", "c"])
    module.decode = lambda inputs: np.array([[len(text), 2] for text in inputs["text"]], dtype=np.float32)
    assert runnable(module).run({"text": np.array(["long", "x"])}).outputs["label"].tolist() == ["a", "b"]


def test_text_without_decode_says_what_is_missing() -> None:
    with pytest.raises(ModelFailed, match="model 'm' was given text, which no tensor holds; give the module a method"):
        runnable(linear()).run({"text": np.array(["a"])})


def test_what_a_module_raises_is_told() -> None:
    with pytest.raises(ModelFailed, match=r"model 'm' raised RuntimeError: .* in predict"):
        runnable(linear()).run({"x": X.astype(np.float64)})


def test_bfloat16_becomes_float32() -> None:
    assert arrays_of({"a": torch.ones(2, dtype=torch.bfloat16), "b": [1]})["a"].dtype == np.float32


def test_a_module_with_a_predict_of_its_own_is_left_as_it_is(tmp_path: Path) -> None:
    text = """
        import torch
        class Model(torch.nn.Module):
            def predict(self, batch): return batch
        load = Model
    """
    (tmp_path / "models.py").write_text("\n".join(line[8:] for line in text.splitlines()))
    models = {"m": ModelSettings(load="models.py:load")}
    project = OneOperator(operator="pets", samples="s.py:load", models=models).as_project()
    model = load_model(project, tmp_path, "m")
    assert model.run({"x": X}).outputs["scores"].tolist() == X.tolist()


def test_a_module_runs_on_as_many_threads_as_there_are_cores() -> None:
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    try:
        os.sched_setaffinity(0, {min(cores)})
        placed("m", linear(), "cpu")
        assert torch.get_num_threads() == 1
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)


# Devices


@pytest.mark.parametrize(
    ("kind", "name"), [("cpu", "cpu"), ("cpu-old", "cpu"), ("cuda", "cuda:0"), ("cuda-x", "cuda:0")]
)
def test_the_device_kind_says_where_a_module_goes(kind: str, name: str) -> None:
    assert device_name(kind, cuda_is_there=True) == name


def test_cuda_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match="device kind is 'cuda', but PyTorch sees no CUDA device; install"):
        device_name("cuda", cuda_is_there=False)


def test_no_memory_is_held_on_a_device_that_is_not_used() -> None:
    assert cuda_bytes() == cuda_bytes(peak=True) == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_module_answers_the_same_on_cuda_and_its_memory_is_seen() -> None:
    before = cuda_bytes()
    said = UserModel("m", placed("m", linear(), "cuda"), top_two_difference).run({"x": X})
    assert said.certainty.tolist() == [2, 1.5]
    assert cuda_bytes(peak=True) > before


# Weights


def test_weights_come_back_from_a_state_dictionary_and_from_safetensors(tmp_path: Path) -> None:
    state = linear().state_dict()
    torch.save(state, tmp_path / "w.pt")
    save_file(state, tmp_path / "w.safetensors")
    for name in ("w.pt", "w.safetensors"):
        module = gearshift.load_weights(torch.nn.Linear(2, 3, bias=False), tmp_path / name)
        assert torch.equal(module.weight, linear().weight)


def test_a_pickled_module_is_refused_and_its_code_is_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "trapped"),)

    torch.save({"weight": Trap()}, tmp_path / "w.pt")
    with pytest.raises(InvalidInput, match=r"w\.pt: holds no weights of Linear"):
        load_weights(linear(), tmp_path / "w.pt")
    assert not (tmp_path / "trapped").exists()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*TorchScript archive:UserWarning")
def test_an_archive_of_torchscript_is_no_state_dictionary_and_is_not_opened_as_one(tmp_path: Path) -> None:
    """CVE-2025-32434: PyTorch before 2.6 opened it in spite of `weights_only`."""
    torch.jit.save(torch.jit.trace(linear(), torch.ones(1, 2)), tmp_path / "w.pt")
    with pytest.raises(InvalidInput, match=r"w\.pt: holds no weights of Linear .*weights_only.*TorchScript"):
        load_weights(linear(), tmp_path / "w.pt")


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_weights_of_another_module_or_garbage_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"nothing of the kind")
    with pytest.raises(InvalidInput, match=f"{name}: holds no weights of Linear .*save the same module's state_dict"):
        load_weights(linear(), tmp_path / name)
    save_file({"other": torch.ones(1)}, tmp_path / name) if "safe" in name else torch.save({}, tmp_path / name)
    with pytest.raises(InvalidInput, match=r"holds no weights of Linear .*weight"):
        load_weights(linear(), tmp_path / name)


def test_missing_weights_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"w\.pt: no such file"):
        load_weights(linear(), tmp_path / "w.pt")


class Anywhere(torch.Tensor):
    """A tensor that is on every device."""

    def to(self, *device: Any, **options: Any) -> "Anywhere":
        return self


class Device:
    """A CUDA device of which the current stream alone may be waited for."""

    type = "cuda"

    def __init__(self) -> None:
        self.waited = 0

    def current_stream(self, device: object) -> "Device":
        assert device is self
        return self

    def synchronize(self, *device: object) -> None:
        assert not device, "all of the device was waited for"
        self.waited += 1


def test_on_cuda_the_stream_alone_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    monkeypatch.setattr(torch, "cuda", device)
    batch = torch.from_numpy(X).as_subclass(Anywhere)
    assert TorchModule("m", linear(), device).predict(batch).tolist() == [[3, 1, 0], [0.5, 2, 0]]
    assert device.waited == 1
