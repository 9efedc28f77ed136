from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.hardware import identical_devices
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import RunTimeCurve
from gearshift.verbs.quick.keeping import folder_of
from gearshift.verbs.quick.light import batch_size, plan_models, plan_of_one, rising_load
from gearshift.verbs.quick.sources import Found, models_at
from tests.little_task import little_profile

MODELS = """
import numpy as np

def load():
    return lambda x: np.stack([x[:, 0], 1 - x[:, 0]], axis=1)

def load_other():
    return load()
"""


def test_a_batch_is_as_large_as_pays_within_half_of_the_latency() -> None:
    seconds = (0.010, 0.011, 0.013, 0.026)
    measured = RunTimeCurve(model="a", batch_sizes=(1, 2, 4, 8), median_s=seconds, p95_s=seconds)
    assert batch_size(measured, None) == 4
    assert batch_size(measured, 0.024) == 2
    assert batch_size(measured, 0.001) == 1


def test_load_rises_to_the_highest() -> None:
    rates = [int(line.split(b",")[1]) for line in rising_load(120.0).splitlines()[1:]]
    assert rates == sorted(rates)
    assert rates[-1] == 120


def test_a_plan_of_one_model_has_it_on_every_device_and_predicts_nothing(tmp_path: Path) -> None:
    made = plan_of_one(little_profile(), "small", identical_devices(3), 0.1, tmp_path / "plan.json")
    assert plan_tables(made).replica_ids == ("small@cpu-0", "small@cpu-1", "small@cpu-2")
    assert [gear.predicted for gear in made.pipeline.gears] == [None]
    assert not made.predictions


def test_a_kept_folder_must_be_new(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="is there already"), folder_of(tmp_path):
        pass


@pytest.mark.parametrize("made_before", [True, False])
def test_a_kept_folder_that_got_no_plan_is_as_it_was(tmp_path: Path, made_before: bool) -> None:
    kept = tmp_path / "kept"
    if made_before:
        kept.mkdir()
    with suppress(KeyboardInterrupt), folder_of(kept) as folder:
        (folder / "gearshift.toml").touch()
        (folder / "profile").mkdir()
        (folder / "profile" / "profile.json").touch()
        raise KeyboardInterrupt
    assert list(tmp_path.rglob("*")) == ([kept] if made_before else [])


def test_a_kept_folder_with_a_plan_stays(tmp_path: Path) -> None:
    with suppress(InvalidInput), folder_of(tmp_path / "kept") as folder:
        (folder / "plan.json").touch()
        raise InvalidInput("the port is taken")
    assert (tmp_path / "kept" / "plan.json").exists()


def test_a_folder_that_is_not_kept_is_removed() -> None:
    with folder_of(None) as folder:
        assert folder.is_dir()
    assert not folder.exists()


def test_samples_and_an_example_are_not_taken_together(tmp_path: Path) -> None:
    found = Found(name="m", models={"m": "/m.py:load"})
    with pytest.raises(InvalidInput, match="--samples and --example are both given"):
        plan_models(found, tmp_path, samples="a.py:load", example="[1]")


@pytest.mark.long
def test_models_without_labels_have_the_slowest_served_alone_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    found, said = models_at(tmp_path / "models.py"), list[str]()
    assert found is not None
    (tmp_path / "out").mkdir()
    plan_models(found, tmp_path / "out", example="[0.5, 1.0]", notice=said.append)
    assert len(said) == 1
    assert "nothing says which model is right more often" in said[0]


@pytest.mark.long
def test_an_accuracy_is_refused_where_nothing_measures_it(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    found = models_at(f"{tmp_path}/models.py:load")
    assert found is not None
    (tmp_path / "out").mkdir()
    with pytest.raises(InvalidInput, match="no labelled samples to measure it on"):
        plan_models(found, tmp_path / "out", example="[0.5, 1.0]", accuracy=0.9)


@pytest.mark.long
def test_a_function_without_samples_asks_for_an_example(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    found = models_at(f"{tmp_path}/models.py:load")
    assert found is not None
    (tmp_path / "out").mkdir()
    with pytest.raises(InvalidInput, match="does not say what it takes; give one record that it takes with --example"):
        plan_models(found, tmp_path / "out")


def test_an_example_of_an_estimator_is_of_its_features(tmp_path: Path) -> None:
    from gearshift.verbs.quick.light import write_project

    (tmp_path / "models.py").write_text(
        "class Estimator:\n    n_features_in_ = 4\n    def predict_proba(self, x): ...\n\n"
        "def load(): return Estimator()\n"
    )
    found = models_at(f"{tmp_path}/models.py:load")
    assert found is not None
    (tmp_path / "out").mkdir()
    write_project(found, tmp_path / "out", samples=None, example=None)
    with np.load(tmp_path / "out" / "example.npz") as row:
        assert row["input input"].shape == (1, 4)
