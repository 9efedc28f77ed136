"""A PyTorch module and an ONNX file as one cascade: measured, planned and served in real workers."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
import uvloop

import gearshift
from gearshift.errors import GearshiftError
from gearshift.hardware import identical_devices
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import Profile
from gearshift.request import Request, Sample
from gearshift.runtime.backends.base import Batch
from gearshift.runtime.backends.local import LocalBackend
from gearshift.runtime.backends.workers_backend import OperatorSource
from gearshift.traces.generate import steady
from gearshift.verbs.planning.hardware import profiled_devices
from tests.conformance.test_backend_contract import Events
from tests.onnx_files import write_labelled, write_linear

PROJECT = """
operator = "sums"
samples = "task.py:samples"
[models.small]
load = "small.onnx"
softmax = true
[models.large]
load = "task.py:large"
softmax = true
[profile]
batch_sizes = [1, 8]
repeats = 3
"""
TASK = """
from pathlib import Path
import numpy as np
import torch
import gearshift

def samples():
    x = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    return gearshift.Samples({"x": x}, labels=(x.sum(axis=1) > 0).astype(int))

def large():
    module = torch.nn.Linear(4, 2, bias=False)
    return gearshift.load_weights(module, Path(__file__).parent / "large.safetensors")
"""
SMALL = np.array([[0, 3], [0, 3], [0, 0], [0, 0]], dtype=np.float32)
LARGE = np.full((4, 2), [0, 3], dtype=np.float32)


def write_project(folder: Path) -> Path:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    save_file({"weight": torch.tensor(LARGE.T.copy())}, folder / "large.safetensors")
    write_linear(folder / "small.onnx", SMALL)
    (folder / "task.py").write_text(TASK)
    (folder / "gearshift.toml").write_text(PROJECT)
    return folder / "gearshift.toml"


def measured(project: Path) -> Profile:
    return gearshift.profile(project, out=project.parent / "profile")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    measured(write_project(folder))
    return folder


@pytest.mark.long
def test_both_are_measured_through_the_worker(folder: Path) -> None:
    profile = gearshift.inspect(folder / "profile")
    assert isinstance(profile, Profile)
    assert [spec.name for spec in profile.outputs] == ["label", "scores"]
    assert [(curve.device_kind, curve.cores, curve.batch_sizes) for curve in profile.curves] == [("cpu", 1, (1, 8))] * 2
    assert all(curve.memory_bytes > 0 and 0 < curve.median_s[0] < 1 for curve in profile.curves)
    small, large = profile.predictions.quality.mean(axis=1)
    assert 0.6 < small < large == 1
    x = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    assert profile.predictions.certainty[1] == pytest.approx(np.abs(np.tanh(1.5 * x.sum(axis=1))), abs=1e-5)


@pytest.mark.long
def test_both_are_served_as_they_were_measured(folder: Path) -> None:
    profile = gearshift.inspect(folder / "profile")
    assert isinstance(profile, Profile)
    plan = gearshift.plan(profile, steady(50, duration_s=5), latency_s=0.5)
    tables = plan_tables(plan)
    backend = LocalBackend(
        tables, plan, operators=[OperatorSource(project=folder / "gearshift.toml", inputs=profile.inputs)]
    )
    x = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)[:3]

    async def main() -> dict[str, list[Sample]]:
        events, answers = Events(), {}
        await backend.start(events)
        for replica in range(len(tables.replica_ids)):
            request = Request(id=replica, operator="sums", arrived_ns=0, rows=3)
            samples = [Sample(request, row, row, {"x": x[row : row + 1]}) for row in range(3)]
            backend.run(Batch(replica, replica, samples))
            await events.until(lambda seen, replica=replica: ("batch", replica) in seen)
            answers[tables.models[tables.replica_model[replica]]] = samples
        await backend.stop()
        return answers

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answers = runner.run(main())
    assert answers
    for model, samples in answers.items():
        recorded = profile.predictions.certainty[profile.models.index(model)][:3]
        assert [sample.certainty for sample in samples] == pytest.approx(recorded, abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        (
            "task.py",
            ".astype(np.float32)",
            "",
            r"'small' failed on .* as FP32 of shape .*, but was given FP64|'large' failed on .* got: double != float",
        ),
        (
            "gearshift.toml",
            "small.onnx",
            "none.onnx",
            r"'small' cannot be loaded: .*models\.small\.load: there is no file",
        ),
        (
            "task.py",
            "Linear(4, 2",
            "Linear(4, 3",
            "'large' cannot be loaded: .*large.safetensors: holds no weights of L",
        ),
    ],
)
def test_what_does_not_fit_is_told_by_profile(tmp_path: Path, file: str, old: str, new: str, told: str) -> None:
    project = write_project(tmp_path)
    (tmp_path / file).write_text((tmp_path / file).read_text().replace(old, new))
    with pytest.raises(GearshiftError, match=told):
        measured(project)


def test_an_exported_estimator_of_named_classes_is_measured(tmp_path: Path) -> None:
    project = write_project(tmp_path)
    write_labelled(tmp_path / "small.onnx", SMALL)
    (tmp_path / "task.py").write_text(
        TASK.replace("(x.sum(axis=1) > 0).astype(int)", 'np.where(x.sum(axis=1) > 0, "class 1", "class 0")')
    )
    project.write_text(PROJECT.partition("[models.large]")[0] + "[profile]\nbatch_sizes = [1, 8]\nrepeats = 3\n")
    assert 0.6 < measured(project).predictions.quality.mean() < 1


@pytest.mark.parametrize("name", ["small", pytest.param("large", marks=pytest.mark.long)])
def test_a_device_kind_that_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    project = write_project(tmp_path)
    sections = PROJECT.split("[")
    kept = [sections[0], *(s for s in sections[1:] if s.startswith((f"models.{name}]", "profile]", "1, 8]")))]
    project.write_text("[".join(kept) + 'device_kind = "cuda-x"\n')
    with pytest.raises(GearshiftError, match=f"'{name}' cannot be loaded: .*'cuda-x'.* measure on device kind cpu"):
        measured(project)


@pytest.mark.long
def test_a_kind_of_processor_becomes_the_kind_of_the_planned_devices(tmp_path: Path) -> None:
    project = write_project(tmp_path)
    project.write_text(PROJECT + 'device_kind = "cpu-old"\n')
    profile = measured(project)
    assert {curve.device_kind for curve in profile.curves} == {"cpu-old"}
    assert profiled_devices(profile, 2) == identical_devices(2, kind="cpu-old", memory_bytes=1 << 30)
