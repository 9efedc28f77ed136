import itertools
import os
from types import SimpleNamespace

import numpy as np
import pytest

from gearshift.errors import GearshiftError, InvalidInput
from gearshift.measuring import bench
from gearshift.measuring.profile_project import profile_project
from gearshift.model import TensorSpec
from gearshift.models.loaded_from import changes
from gearshift.profiles.store import read_profile, write_profile

PROJECT = """
operator = "signs"
samples = "task.py:samples"
[models.small]
load = "task.py:small"
[models.large]
load = "task.py:large"
memory_mib = 7
[profile]
batch_sizes = [1, 4]
repeats = 3
"""
TASK = """
import os, time
import numpy as np
from gearshift.models.samples import Samples

def samples():
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    words = np.array([f"word {i}" for i in range(50)])
    return Samples({"x": x, "words": words}, np.where(x.sum(axis=1) > 0, "up", "down"))

class Clock:
    now = 0.0

def time_passes_as_models_say():
    time.perf_counter = lambda: Clock.now  # of the worker, which alone loads models

def model(columns, seconds):
    time_passes_as_models_say()
    def run(inputs):
        Clock.now += seconds
        assert inputs["words"][0].startswith("word ")
        total = inputs["x"][:, :columns].sum(axis=1)
        return {"label": np.where(total > 0, "up", "down")}, np.abs(total)
    return run

def small():
    return model(2, 0.001)

def large():
    return model(3, 0.002)
"""


@pytest.fixture
def ten_ms_a_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the router's clock has it."""
    ticks = itertools.count()
    monkeypatch.setattr(bench, "time", SimpleNamespace(perf_counter=lambda: 0.01 * next(ticks)))


def project(folder, task: str = TASK):
    (folder / "gearshift.toml").write_text(PROJECT)
    (folder / "task.py").write_text(task)
    return folder / "gearshift.toml"


@pytest.mark.usefixtures("ten_ms_a_trip")
def test_models_are_measured_and_their_answers_recorded(tmp_path):
    told: list[tuple[str, float]] = []
    cores = os.sched_getaffinity(0)
    path = project(tmp_path)
    profile = profile_project(path, progress=lambda what, share: told.append((what, share)), folder=tmp_path / "p")
    assert os.sched_getaffinity(0) == cores
    assert profile.operator == "signs"
    assert profile.project == "../gearshift.toml"
    assert profile.models == ("small", "large")
    small, large = profile.curves
    assert small.batch_sizes == (1, 4)
    assert small.median_s == pytest.approx((0.001, 0.001))
    assert large.median_s == pytest.approx((0.002, 0.002))
    assert large.memory_bytes == 7 << 20
    assert small.memory_bytes > 0
    assert small.overhead_per_batch_s == pytest.approx(0.009)
    assert large.overhead_per_batch_s == pytest.approx(0.008)
    assert small.overhead_per_request_s == pytest.approx(0)
    assert profile.inputs == (
        TensorSpec(name="x", datatype="FP32", shape=(-1, 3)),
        TensorSpec(name="words", datatype="BYTES", shape=(-1,)),
    )
    assert profile.outputs == (TensorSpec(name="label", datatype="BYTES", shape=(-1,)),)
    assert profile.predictions.quality[1].tolist() == [1.0] * 50
    assert 0.5 < profile.predictions.quality[0].mean() < 1
    assert np.isfinite(profile.predictions.certainty).all()
    assert [(one.model, list(one.files)) for one in profile.loaded_from] == [(m, ["task.py"]) for m in profile.models]
    assert changes(profile.loaded_from, path) == []
    assert told[0] == ("loading models", 0.0)
    assert told[-1] == ("predicting with large", 1.0)


def test_a_model_that_stops_early_is_measured_by_segment_and_the_exit_of_each_sample_is_recorded(tmp_path):
    stopping = """
class Stopping:
    segments = 2

    def decode(self, inputs):
        return inputs["x"].sum(axis=1)

    def answer(self, total, exit):
        label = np.where(total > 0, "up", "down")
        return {"label": label, "certainty": np.abs(total), "exit_segment": np.full(len(total), exit)}

    def exits(self, total):
        early = np.abs(total) > 1
        for exit, rows in enumerate((np.flatnonzero(early), np.flatnonzero(~early))):
            if len(rows):
                yield rows, self.answer(total[rows], exit)

    def predict(self, total):
        raise AssertionError

    def through(self, total):
        return self.answer(total, 1), [0.001, 0.002]

def small():
    return Stopping()
"""
    profile = profile_project(project(tmp_path, TASK + stopping), progress=lambda what, share: None)
    first, second, _ = profile.curves
    assert [(c.model, c.segment) for c in profile.curves] == [("small", 0), ("small", 1), ("large", 0)]
    assert (first.median_s, second.median_s) == ((0.001, 0.001), (0.002, 0.002))
    assert first.memory_bytes > 0
    assert (second.memory_bytes, second.overhead_per_batch_s, second.overhead_per_request_s) == (0, 0.0, 0.0)
    assert profile.predictions.exit_segment is not None
    total = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32).sum(axis=1)
    assert profile.predictions.exit_segment.tolist() == [(np.abs(total) <= 1).astype(int).tolist(), [0] * 50]


def test_a_model_whose_answers_depend_on_their_batch_is_said_in_the_profile(tmp_path):
    normalising = """
def small():
    def run(inputs):
        total = (inputs["x"] - inputs["x"].mean(axis=0)).sum(axis=1)
        return {"label": np.where(total > 0, "up", "down")}, np.abs(total)
    return run
"""
    profile = profile_project(project(tmp_path, TASK + normalising), progress=lambda what, share: None)
    (told,) = profile.warnings
    assert told.startswith("model 'small' answers")
    assert "of 50 rows otherwise when they run alone or in other batches" in told
    write_profile(profile, tmp_path / "profile")
    assert read_profile(tmp_path / "profile").warnings == profile.warnings


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("def small():\n    raise ValueError('no weights')", "'small' cannot be loaded.*no weights"),
        ("def small():\n    return lambda inputs: 1 / 0", "'small' failed on .* sample [0-9]+.*ZeroDivisionError"),
        (
            "def small():\n    return lambda inputs: ({'label': np.array(['up'])}, np.ones(1))",
            "'small' failed on a batch of 4 samples: .*1 rows",
        ),
        (
            "def small():\n    return lambda inputs: ({'label': inputs['words']}, np.full(len(inputs['x']), np.nan))",
            "'small' failed.*the certainty is not a number",
        ),
        ("def small():\n    return lambda inputs: os._exit(1)", "'small' ended its worker"),
    ],
)
def test_a_model_that_cannot_be_measured_is_named_with_the_reason(tmp_path, broken, reason):
    with pytest.raises(GearshiftError, match=reason):
        profile_project(project(tmp_path, TASK + "\n" + broken + "\n"), progress=lambda model, share: None)


ESTIMATORS = (
    TASK
    + """
class Estimator:
    def __init__(self, classes):
        self.classes_ = np.array(classes)
    def predict_proba(self, inputs):
        up = 1 / (1 + np.exp(-inputs["x"].sum(axis=1)))
        return np.stack([up if name == "up" else 1 - up for name in self.classes_], axis=1)

def small():
    time_passes_as_models_say()
    return Estimator(SMALL)

def large():
    return Estimator(["down", "up"])
"""
)


def test_scores_are_published_with_their_classes_in_one_order(tmp_path):
    path = project(tmp_path, ESTIMATORS.replace("SMALL", '["up", "down"]'))
    outputs = {spec.name: spec for spec in profile_project(path, progress=lambda what, share: None).outputs}
    assert outputs["scores"].classes == ("up", "down")


def test_classes_that_are_none_of_the_labels_are_refused_before_anything_is_timed(tmp_path):
    told = []
    path = project(tmp_path, ESTIMATORS.replace("SMALL", "[0, 1]"))
    with pytest.raises(InvalidInput, match="no output of model 'small' is ever a value that the labels have"):
        profile_project(path, progress=lambda what, share: told.append(what))
    assert told == ["loading models"]


def test_samples_that_cannot_be_split_are_refused_before_anything_is_loaded(tmp_path):
    task = TASK.replace('"up", "down"))', '"up", "down"), groups=np.zeros(50))')
    with pytest.raises(InvalidInput, match="a group cannot be split into two parts"):
        profile_project(project(tmp_path, task), progress=lambda what, share: pytest.fail("nothing may be measured"))


def test_several_core_counts_give_a_curve_each_and_a_model_over_all(tmp_path):
    there = sorted(os.sched_getaffinity(0))[:2]
    if len(there) < 2:
        pytest.skip("this process may use one core")
    task = (
        TASK
        + """
def by_cores():
    time_passes_as_models_say()
    def run(inputs):
        Clock.now += 0.004 * len(inputs["x"]) / len(os.sched_getaffinity(0))
        return {"label": np.where(inputs["x"].sum(axis=1) > 0, "up", "down")}, np.abs(inputs["x"].sum(axis=1))
    return run
"""
    )
    path = project(tmp_path, task)
    path.write_text(
        PROJECT.replace("[1, 4]", "[1, 2, 8]")
        .replace("task.py:small", "task.py:by_cores")
        .partition("[models.large]")[0]
        + "[profile]\nbatch_sizes = [1, 2, 8]\nrepeats = 3\n"
    )
    profile = profile_project(path, progress=lambda what, share: None, cores=(2, 1))
    assert [(curve.model, curve.cores) for curve in profile.curves] == [("small", 1), ("small", 2)]
    assert profile.curves[0].median_s == pytest.approx((0.004, 0.008, 0.032))
    assert profile.curves[1].median_s == pytest.approx((0.002, 0.004, 0.016))
    assert [model.statistic for model in profile.performance] == ["median", "p95"]
    assert profile.performance_model("small", device_kind="cpu").cores == (1, 2)
    assert profile.predictions.quality.shape == (1, 50)


@pytest.mark.parametrize(("cores", "says"), [((0,), "numbers from 1 to"), ((1, 4096), "may use"), ((), "may use")])
def test_core_counts_that_are_not_there_are_refused_before_anything_is_measured(tmp_path, cores, says):
    with pytest.raises(InvalidInput, match=says):
        profile_project(project(tmp_path), progress=lambda what, share: None, cores=cores)


def test_too_few_batch_sizes_for_a_performance_model_are_refused_before_anything_is_measured(tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this process may use one core")
    with pytest.raises(InvalidInput, match=r"2 batch sizes on 2 core counts are too few.*at least 3"):
        profile_project(project(tmp_path), progress=lambda what, share: None, cores=(1, 2))
