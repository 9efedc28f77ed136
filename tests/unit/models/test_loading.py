import sys
from pathlib import Path

import numpy as np
import pytest

from gearshift.errors import InvalidInput, ModelFailed
from gearshift.models.loading import load_model
from gearshift.models.samples import load_samples
from tests.unit.models.user_files import project, write


@pytest.fixture(autouse=True)
def _own_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_users_files_import_each_other(tmp_path: Path) -> None:
    write(tmp_path, models="from gearshift_test_shared import load", gearshift_test_shared="def load(): return print")
    assert load_model(project(), tmp_path, "m").model is print


def test_two_projects_may_have_files_of_one_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, models=f"def load(): return lambda batch: {name!r}")
    answers = [load_model(project(), tmp_path / name, "m").model(None) for name in ("a", "b")]
    assert answers == ["a", "b"]


def test_a_file_is_imported_once_for_all_its_models(tmp_path: Path) -> None:
    write(tmp_path, models="shared = []\ndef load(): shared.append(1); return lambda batch: len(shared)")
    first, second = (load_model(project(), tmp_path, "m").model for _ in range(2))
    assert first(None) == second(None) == 2


def test_setup_runs_when_a_model_is_loaded(tmp_path: Path) -> None:
    write(
        tmp_path,
        models="""
            class Model:
                def setup(self): self.ready = True
                def predict(self, batch): return batch
            load = Model
        """,
    )
    assert load_model(project(), tmp_path, "m").model.ready


def test_a_users_certainty_is_loaded(tmp_path: Path) -> None:
    write(tmp_path, models="def load(): return lambda b: [[.1, .9]] * 2", c="def sure(scores): return scores[:, 0]")
    model = load_model(project(certainty="c.py:sure"), tmp_path, "m")
    assert model.run({"input": np.zeros((2, 4), dtype=np.float32)}).certainty.tolist() == [0.1, 0.1]


def test_an_unknown_certainty_lists_the_built_in_ones() -> None:
    with pytest.raises(InvalidInput, match=r"certainty is 'gut'; use one of top_two_difference, .*file.py:function"):
        project(certainty="gut")


def test_an_unknown_model_lists_the_models(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no model 'x'; use one of m"):
        load_model(project(), tmp_path, "x")


def test_a_missing_file_names_the_field(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"field models\.m\.load: there is no file .*models\.py"):
        load_model(project(), tmp_path, "m")


@pytest.mark.parametrize("text", ["", "load = 3"])
def test_a_missing_function_names_file_and_function(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match=r"field samples: .*samples\.py has no function 'load'"):
        load_samples(project(), write(tmp_path, samples=text))


def test_a_file_that_cannot_be_imported_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(ModelFailed, match=r"models\.py raised ImportError: no torch here \(models\.py, line 2\)"):
        load_model(project(), write(tmp_path, models="x = 1\nraise ImportError('no torch here')"), "m")


def test_a_file_that_is_no_python_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(ModelFailed, match=r"models\.py raised SyntaxError: .*line 1"):
        load_model(project(), write(tmp_path, models="def load(:"), "m")


def test_a_loader_that_raises_names_function_type_message_and_line(tmp_path: Path) -> None:
    write(tmp_path, models="def load():\n    return open('/no/weights')")
    with pytest.raises(
        ModelFailed, match=r"models\.py:load raised FileNotFoundError: .*/no/weights.* \(models\.py, line 2\)"
    ):
        load_model(project(), tmp_path, "m")


@pytest.mark.parametrize(
    ("text", "kind"),
    [("def load(): return None", "NoneType"), ("class A: pass\ndef load(): return A", "the class A")],
)
def test_a_loader_must_answer_what_can_be_run(tmp_path: Path, text: str, kind: str) -> None:
    with pytest.raises(ModelFailed, match=f"answered {kind}, which cannot be run; answer an object with predict"):
        load_model(project(), write(tmp_path, models=text), "m")


def test_a_setup_that_raises_is_told(tmp_path: Path) -> None:
    text = "class M:\n  def setup(self): raise OSError('no GPU')\n  def predict(self, b): return b\nload = M"
    with pytest.raises(ModelFailed, match=r"model 'm' raised OSError: no GPU .* in setup"):
        load_model(project(), write(tmp_path, models=text), "m")
