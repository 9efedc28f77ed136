import sys
from pathlib import Path

import pytest

from gearshift.models.config import read_project
from gearshift.models.loaded_from import (
    MIB,
    WHOLE_BYTES,
    LoadedFrom,
    changes,
    files_of,
    files_read,
    fingerprint,
    note_read,
    settings_of,
)
from gearshift.models.loading import load_model
from gearshift.models.torch_module import load_weights

PROJECT = """\
operator = "task"
samples = "models.py:samples"
[models.small]
load = "models.py:small"
[models.large]
load = "models.py:large"
"""
MODELS = """\
from pathlib import Path
import helper

HERE = Path(__file__).parent

def small():
    return lambda x: x

def large():
    weights = (HERE / "weights.bin").read_bytes()
    with open(HERE / "log.txt", "a") as log:
        log.write("loaded")
    return lambda x: x
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    for name, text in (("gearshift.toml", PROJECT), ("models.py", MODELS), ("helper.py", ""), ("weights.bin", "1")):
        (tmp_path / name).write_text(text)
    return tmp_path / "gearshift.toml"


def loaded(path: Path, *models: str) -> tuple[LoadedFrom, ...]:
    project = read_project(path)
    found = []
    for model in models:
        with files_read() as opened:
            load_model(project, path.parent, model)
        files = files_of(project, path.parent, model, sorted(opened))
        found.append(LoadedFrom(model=model, settings=settings_of(project, model), files=files))
    return tuple(found)


def test_a_model_is_known_by_the_projects_code_and_the_files_that_it_reads(project: Path) -> None:
    small, large = loaded(project, "small", "large")
    assert set(small.files) == {"models.py", "helper.py"}
    assert set(large.files) == {"models.py", "helper.py", "weights.bin"}


def test_nothing_that_changed_is_nothing_to_tell(project: Path) -> None:
    before = loaded(project, "small", "large")
    (project.parent / "log.txt").write_text("more")
    project.write_text(PROJECT + "memory_mib = 7\n[profile]\nrepeats = 5\n")
    assert changes(before, project) == []


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("weights.bin", "model 'large' may have been replaced since profiling: weights.bin changed; "),
        ("helper.py", "models 'small', 'large' may have been replaced since profiling: helper.py changed; "),
    ],
)
def test_a_file_that_changed_or_went_is_told_with_the_models_made_from_it(project: Path, file: str, told: str) -> None:
    before = loaded(project, "small", "large")
    (project.parent / file).write_text("x = 2")
    assert [sentence.startswith(told) for sentence in changes(before, project)] == [True]
    (project.parent / file).unlink()
    assert [sentence.startswith(told) for sentence in changes(before, project)] == [True]


@pytest.mark.parametrize(
    "text",
    [
        'certainty = "negative_entropy"\n' + PROJECT,
        PROJECT + "softmax = true\n",
        PROJECT.replace("models.py:large", "models.py:small"),
    ],
)
def test_settings_that_answers_depend_on_are_told(project: Path, text: str) -> None:
    before = loaded(project, "large")
    project.write_text(text)
    (told,) = changes(before, project)
    assert "'large' may have been replaced since profiling: its settings in gearshift.toml changed" in told


def test_files_elsewhere_that_are_not_here_say_nothing(project: Path, tmp_path: Path) -> None:
    (one,) = loaded(project, "small")
    moved = LoadedFrom(model="small", settings=one.settings, files={"/nowhere/weights.bin": "1"})
    assert changes((moved,), project) == []
    assert changes((one,), tmp_path / "gone" / "gearshift.toml") == []


def test_a_large_file_is_known_by_its_size_and_parts_of_it(tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    seen = set()
    for size, at in ((WHOLE_BYTES + MIB, 0), (WHOLE_BYTES + MIB, WHOLE_BYTES), (WHOLE_BYTES + 2 * MIB, 0)):
        with path.open("wb") as file:
            file.truncate(size)
            file.seek(at)
            file.write(b"x")
        seen.add(fingerprint(path))
    assert len(seen) == 3


def test_files_that_other_code_reads_can_be_told(tmp_path: Path) -> None:
    note_read("nobody listens")
    with files_read() as opened:
        note_read(tmp_path / "a")
    assert opened == {str(tmp_path / "a")}


def test_weights_in_safetensors_are_among_the_files_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    module = torch.nn.Linear(2, 2)
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    with files_read() as opened:
        load_weights(module, tmp_path / "w.safetensors")
    assert str(tmp_path / "w.safetensors") in opened


def test_versions_of_learned_caches_that_serving_makes_do_not_count(project: Path) -> None:
    caches = project.parent / "caches"
    for name in ("manifest.json", "state.json", "versions/000001/manifest.json"):
        (caches / name).parent.mkdir(parents=True, exist_ok=True)
        (caches / name).write_text("{}")
    opened = [str(caches / name) for name in ("manifest.json", "state.json", "versions/000001/manifest.json")]
    assert "caches/manifest.json" in (files := files_of(read_project(project), project.parent, "small", opened))
    assert not {"caches/state.json", "caches/versions/000001/manifest.json"} & set(files)
