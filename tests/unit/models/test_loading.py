import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gearshift.errors import InvalidInput, ModelFailed
from gearshift.model import Predicted, datatype_of, spec_of
from gearshift.models.certainty import agreement, highest_probability, mean_token_log_probability, top_two_difference
from gearshift.models.config import ModelSettings, Project
from gearshift.models.loading import RunnableModel, Samples, load_model, load_samples

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])
INPUTS = {"input": np.zeros((2, 4), dtype=np.float32)}


class Predicts:
    """A model that answers the same whatever it is asked."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def predict(self, batch: object) -> object:
        return self.answer


class Estimator:
    def __init__(self, classes: object, scores: object = SCORES) -> None:
        self.classes_, self.scores = classes, scores

    def predict_proba(self, batch: object) -> object:
        return self.scores

    def predict(self, batch: object) -> object:
        raise AssertionError("predict_proba goes first")


def runnable(model: object) -> RunnableModel:
    return RunnableModel("m", model, top_two_difference)


def project(**changes: Any) -> Project:
    models = {"m": ModelSettings(load="models.py:load")}
    return Project(**({"operator": "pets", "samples": "samples.py:load", "models": models} | changes))


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


@pytest.fixture(autouse=True)
def _own_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


# Samples


def test_one_array_is_the_input_named_input() -> None:
    samples = Samples(np.zeros((3, 2)))
    assert {name: array.shape for name, array in samples.arrays.items()} == {"input": (3, 2)}
    assert len(samples) == 3


def test_a_batch_takes_rows_of_every_input() -> None:
    samples = Samples({"a": np.arange(4), "b": np.arange(4) * 10})
    batch = samples.batch(np.array([3, 1]))
    assert {name: array.tolist() for name, array in batch.items()} == {"a": [3, 1], "b": [30, 10]}


def test_lists_become_arrays() -> None:
    samples = Samples(["good film", "bad film"], labels=[1, 0])  # type: ignore[arg-type]
    assert samples.arrays["input"].dtype.kind == "U"
    assert isinstance(samples.labels, np.ndarray)


def test_arrays_of_the_other_byte_order_are_turned() -> None:
    assert datatype_of(Samples(np.array([1, 2], dtype=">f4")).arrays["input"]) == "FP32"


UNUSABLE: dict[str, tuple[Callable[[], Samples], str]] = {
    "no inputs": (lambda: Samples({}), "there are no inputs"),
    "one row": (lambda: Samples(np.zeros((1, 2))), "there are 1 rows, needs at least 2"),
    "a number": (lambda: Samples(3), "input 'input' is int, no array of rows"),  # type: ignore[arg-type]
    "ragged": (lambda: Samples([[1], [1, 2]]), "input 'input' is no array"),  # type: ignore[arg-type]
    "no width": (lambda: Samples(np.zeros((3, 0))), r"input 'input' has shape \(3, 0\)"),
    "infinity": (lambda: Samples(np.array([[np.nan], [0], [np.inf]])), "infinity in 1 rows, the first is row 2"),
    "dates": (lambda: Samples(np.array(["2020-01-01"] * 2, dtype="datetime64")), r"datetime64\[D\] have no datatype"),
    "objects": (lambda: Samples(np.array([{}, None], dtype=object)), "holds objects of type NoneType"),
    "rows differ": (lambda: Samples({"a": np.zeros(3), "b": np.zeros(2)}), "input 'b' has 2 rows, but input 'a' has 3"),
    "few labels": (lambda: Samples(np.zeros(3), np.zeros(2)), "labels has 2 rows, but input 'input' has 3"),
    "wide labels": (lambda: Samples(np.zeros(3), np.zeros((3, 2))), r"labels have shape \(3, 2\), needs one value"),
    "NaN labels": (lambda: Samples(np.zeros(2), np.array([1, np.nan])), "labels holds NaN"),
    "few groups": (lambda: Samples(np.zeros(3), None, np.zeros(4)), "groups has 4 rows"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_samples_are_refused(name: str) -> None:
    make, told = UNUSABLE[name]
    with pytest.raises(InvalidInput, match=told):
        make()


# What a model may be


def test_an_estimator_answers_its_best_class_and_scores() -> None:
    said = runnable(Estimator(np.array([10, 20, 30]))).run(INPUTS)
    assert said.outputs["label"].tolist() == [20, 10]
    assert np.array_equal(said.outputs["scores"], SCORES)
    assert said.certainty == pytest.approx([0.5, 0.2])


@pytest.mark.parametrize("classes", [["a", "b", "c"], np.array(["a", "b", "c"], dtype=object)])
def test_text_classes_become_text_that_travels_as_bytes(classes: object) -> None:
    label = runnable(Estimator(classes)).run(INPUTS).outputs["label"]
    assert label.tolist() == ["b", "a"]
    assert (label.dtype.kind, datatype_of(label)) == ("U", "BYTES")


def test_a_real_scikit_learn_pipeline_runs() -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    linear = pytest.importorskip("sklearn.linear_model")
    pipeline = pytest.importorskip("sklearn.pipeline")
    model = pipeline.make_pipeline(text.CountVectorizer(), linear.LogisticRegression())
    films = np.array(["good film", "bad film", "good", "bad"])
    model.fit(films, ["up", "down", "up", "down"])
    said = runnable(model).run({"input": films})
    assert said.outputs["label"].tolist() == ["up", "down", "up", "down"]
    assert said.certainty.min() > 0


def test_a_scikit_learn_regressor_is_told_how_to_give_a_certainty() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    model = linear.LinearRegression().fit(np.zeros((2, 4)), [0, 1])
    with pytest.raises(
        ModelFailed, match=r"one value per row .*answer scores \(n, classes\), or \(answers, certainty\)"
    ):
        runnable(model).run(INPUTS)


@pytest.mark.parametrize("model", [Predicts(SCORES), Predicts(SCORES.tolist()), lambda batch: SCORES])
def test_scores_give_the_best_class_and_the_chosen_certainty(model: object) -> None:
    said = RunnableModel("m", model, highest_probability).run(INPUTS)
    assert said.outputs["label"].tolist() == [1, 0]
    assert said.certainty.tolist() == [0.7, 0.5]


def test_predicted_is_taken_as_it_is() -> None:
    said = runnable(Predicts(Predicted({"box": np.ones((2, 4))}, np.array([0.1, 0.2])))).run(INPUTS)
    assert said.outputs["box"].shape == (2, 4)
    assert said.certainty.tolist() == [0.1, 0.2]


def test_named_outputs_beside_a_certainty_are_taken() -> None:
    said = runnable(Predicts(({"text": ["x", "y"]}, [1, 2]))).run(INPUTS)
    assert said.outputs["text"].tolist() == ["x", "y"]
    assert said.certainty.dtype == np.float64


@pytest.mark.parametrize("name", ["scores", "probabilities", "logits"])
def test_scores_among_named_outputs_give_label_and_certainty(name: str) -> None:
    said = runnable(Predicts({name: SCORES, "text": ["x", "y"]})).run(INPUTS)
    assert {key: array.tolist() for key, array in said.outputs.items()} == {
        "label": [1, 0],
        "scores": SCORES.tolist(),
        "text": ["x", "y"],
    }
    assert said.certainty == pytest.approx([0.5, 0.2])


def test_a_label_beside_scores_is_kept() -> None:
    said = runnable(Predicts({"label": ["x", "y"], "scores": SCORES})).run(INPUTS)
    assert said.outputs["label"].tolist() == ["x", "y"]


def test_a_certainty_among_named_outputs_is_taken() -> None:
    said = runnable(Predicts({"label": ["x", "y"], "certainty": [1, 2]})).run(INPUTS)
    assert (list(said.outputs), said.certainty.tolist()) == (["label"], [1, 2])


def test_softmax_goes_before_certainty_and_outputs() -> None:
    said = RunnableModel("m", Predicts(np.array([[0, 1], [3, 3]])), highest_probability, softmax=True).run(INPUTS)
    assert said.outputs["scores"].sum(axis=1) == pytest.approx([1, 1])
    assert said.certainty == pytest.approx([np.e / (1 + np.e), 0.5])


def test_one_array_beside_a_certainty_is_the_label() -> None:
    assert runnable(Predicts((np.array(["x", "y"]), np.ones(2)))).run(INPUTS).outputs["label"].tolist() == ["x", "y"]


def test_scores_beside_a_certainty_give_the_best_class() -> None:
    said = runnable(Predicts((SCORES, np.array([0.3, 0.4])))).run(INPUTS)
    assert said.outputs["label"].tolist() == [1, 0]
    assert said.certainty.tolist() == [0.3, 0.4]


def test_a_nan_certainty_is_handed_on() -> None:
    scores = np.array([[np.nan, np.nan], [0.9, 0.1]])
    said = runnable(Predicts(scores)).run(INPUTS)
    assert np.isnan(said.certainty).tolist() == [True, False]


def test_one_input_is_given_as_an_array_and_several_by_name() -> None:
    seen: list[Any] = []

    def model(batch: object) -> object:
        seen.append(batch)
        return SCORES

    runnable(model).run(INPUTS)
    runnable(model).run({"a": np.zeros(2), "b": np.ones(2)})
    assert isinstance(seen[0], np.ndarray)
    assert sorted(seen[1]) == ["a", "b"]


def test_decode_sees_inputs_by_name_and_encode_names_outputs() -> None:
    class Coded:
        def decode(self, inputs: dict[str, Any]) -> Any:
            return inputs["input"].sum(axis=1)

        def predict(self, batch: Any) -> Any:
            return np.stack([batch, 1 - batch], axis=1)

        def encode(self, scores: Any) -> Any:
            return {"first": scores[:, 0]}

    said = runnable(Coded()).run(INPUTS)
    assert {name: array.tolist() for name, array in said.outputs.items()} == {"first": [0.0, 0.0]}
    assert said.certainty.tolist() == [1.0, 1.0]


def test_outputs_of_the_other_byte_order_are_turned() -> None:
    said = runnable(Predicts(SCORES.astype(">f4"))).run(INPUTS)
    assert said.outputs["scores"].dtype == np.dtype("<f4")
    said = runnable(Predicts({"label": np.array([1, 2], ">i2"), "certainty": np.ones(2, ">f8")})).run(INPUTS)
    assert (said.outputs["label"].dtype, said.outputs["label"].tolist()) == (np.dtype("<i2"), [1, 2])


@pytest.mark.parametrize("certainty", [mean_token_log_probability, agreement, lambda scores: np.abs(scores[:, 0])])
def test_one_column_beside_a_label_is_enough_for_a_certainty_that_is_not_of_classes(certainty: Any) -> None:
    said = RunnableModel("m", Predicts({"label": ["x", "y"], "scores": np.array([[1.0], [1.0]])}), certainty)
    assert said.run(INPUTS).certainty.tolist() == [1.0, 1.0]


class Fitted(Predicts):
    """As an estimator that was fitted on a data frame."""

    feature_names_in_ = np.array(["age", "town"], dtype=object)

    def predict(self, batch: Any) -> Any:
        assert list(batch.columns) == ["age", "town"]
        return np.stack([np.zeros(len(batch)), (batch["town"] == "Ulm") * batch["age"]], axis=1)


def test_an_estimator_of_named_columns_gets_the_inputs_of_these_names_as_a_frame() -> None:
    pytest.importorskip("pandas")
    inputs = {"town": np.array(["Ulm", "Bonn"], dtype=object), "more": np.zeros(2), "age": np.array([3.0, 4.0])}
    assert runnable(Fitted(None)).run(inputs).outputs["scores"].tolist() == [[0, 3], [0, 0]]


def test_a_column_that_no_input_is_is_named() -> None:
    with pytest.raises(ModelFailed, match="'m' was fitted on a column 'town', but the inputs are 'age', 'city'"):
        runnable(Fitted(None)).run({"age": np.zeros(2), "city": np.zeros(2)})


class Frame:
    """As data frames of several libraries are: columns by name."""

    def __init__(self, **columns: object) -> None:
        self.columns, self._values = list(columns), columns

    def __getitem__(self, column: str) -> Any:
        return SimpleNamespace(to_numpy=lambda: np.array(self._values[column]))


def test_the_columns_of_a_data_frame_are_the_inputs() -> None:
    samples = Samples(Frame(age=[1.0, np.nan], town=["Ulm", "Bonn"]))  # type: ignore[arg-type]
    assert list(samples.arrays) == ["age", "town"]
    assert samples.arrays["town"].tolist() == ["Ulm", "Bonn"]


def test_a_data_frame_of_pandas_is_taken() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [1, 2], "town": ["Ulm", "Bonn"]})
    assert {name: array.tolist() for name, array in Samples(frame).arrays.items()} == {
        "age": [1, 2],
        "town": ["Ulm", "Bonn"],
    }


def test_missing_values_of_an_input_are_told_by_its_tensor() -> None:
    samples = Samples({"a": np.array([np.nan, 1.0]), "b": np.zeros(2)})
    assert [spec_of(name, array).missing for name, array in samples.arrays.items()] == [True, False]


class FittedOnAnArray(Estimator):
    def predict_proba(self, batch: object) -> object:
        return super().predict_proba(np.asarray(batch, dtype=float))


def test_an_estimator_that_cannot_take_several_inputs_says_what_to_do() -> None:
    with pytest.raises(
        ModelFailed, match=r"TypeError.* in predict_proba.*; the estimator was given the inputs 'a', 'b'"
    ):
        runnable(FittedOnAnArray([0, 1])).run({"a": np.zeros(2), "b": np.zeros(2)})
    with pytest.raises(ModelFailed, match=r"ValueError[^;]*$"):
        runnable(FittedOnAnArray([0, 1])).run({"a": np.array(["x", "y"])})


# What a model may not answer

WRONG: dict[str, tuple[object, str]] = {
    "too few rows": (
        np.ones((3, 2)),
        "model 'm' answered 3 rows for a batch of 2; answer one row per row of the batch",
    ),
    "one value per row": (np.array([0, 1]), r"one value per row \(shape \(2,\)\).*answer scores \(n, classes\)"),
    "a number": (0.5, r"answered an array of shape \(\)"),
    "one column": (np.ones((2, 1)), r"from which no class can be chosen; .*two or more classes"),
    "one column beside a label": (
        {"label": np.array([0, 1]), "scores": np.array([[0.1], [0.9]])},
        r"model 'm' answered scores of one column, which is low where it is sure of the other class; .*np\.stack",
    ),
    "a regression": (np.array([0.5, 1.5]), "a regression is not judged here: make classes of its values, or plan from"),
    "one value in a column": (np.ones((2, 1)), "a regression is not judged here"),
    "several targets": ([np.ones((2, 2)), np.ones((2, 3))], "answered several labels per row; an operator answers one"),
    "several targets of one size": ([np.ones((2, 2))] * 3, "answered several labels per row"),
    "text scores": (np.array([["a", "b"]] * 2), "from which no class can be chosen"),
    "no classes": (np.ones((2, 0)), r"shape \(2, 0\)"),
    "three dimensions": (np.ones((2, 3, 4)), r"shape \(2, 3, 4\)"),
    "nothing": (None, "gave an answer of type NoneType"),
    "ragged": ([[1.0], [1.0, 2.0]], "gave an answer that is no array"),
    "outputs alone": (
        {"label": np.zeros(2)},
        r"outputs 'label' without a certainty; answer \(outputs, certainty\), or one of them",
    ),
    "a triple": ((1, 2, 3), "answered a tuple of 3"),
    "no outputs": (({}, np.ones(2)), "answered outputs of type dict"),
    "short output": (({"a": np.zeros(3)}, np.ones(2)), "answered 3 rows in output 'a' for a batch of 2"),
    "single output": (({"a": 1}, np.ones(2)), "answered a single value in output 'a' for a batch of 2"),
    "object output": (({"a": [{}, {}]}, np.ones(2)), "output 'a' with objects of type dict"),
    "complex output": (({"a": np.ones(2) * 1j}, np.ones(2)), "output 'a' with arrays of type complex128"),
    "wide certainty": (
        (np.zeros(2), np.ones((2, 1))),
        r"certainty of shape \(2, 1\).* for a batch of 2; .*shape \(2,\)",
    ),
    "unwritable name": (({"a\udc80": np.zeros(2)}, np.ones(2)), r"answered an output of name 'a\\udc80'"),
    "text certainty": ((np.zeros(2), np.array(["a", "b"])), "certainty of shape .* and type <U1"),
    "no certainty": ((np.zeros(2), None), "gave a certainty of type NoneType"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_told(name: str) -> None:
    answer, told = WRONG[name]
    with pytest.raises(ModelFailed, match=told):
        runnable(Predicts(answer)).run(INPUTS)


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        (np.array(["b", "a"], dtype=object), ("b", "a")),
        ([False, True], ("0", "1")),
        ([1.0, 2.0], ("1", "2")),
        ([["a", "b"], ["c", "d"]], ()),
        ([["a", "b"], ["c"]], ()),
    ],
)
def test_a_model_names_the_classes_of_its_columns(classes: object, names: tuple[str, ...]) -> None:
    assert runnable(Estimator(classes)).classes == names


def test_a_model_that_encodes_its_scores_names_no_classes() -> None:
    model = Estimator(["a", "b"])
    model.encode = lambda scores: scores[:, 0]  # type: ignore[attr-defined]
    assert runnable(model).classes == ()
    assert runnable(Predicts(SCORES)).classes == ()


def test_an_estimator_of_other_classes_than_scores_is_refused() -> None:
    with pytest.raises(ModelFailed, match=r"scores of 3 classes, but its classes_ has shape \(2,\)"):
        runnable(Estimator(["a", "b"])).run(INPUTS)


def test_what_a_model_raises_is_told_in_one_line() -> None:
    def broken(batch: object) -> object:
        raise RuntimeError("out of\n  memory")

    with pytest.raises(ModelFailed, match=r"^model 'm' raised RuntimeError: out of memory in its function$") as caught:
        runnable(broken).run(INPUTS)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_model_that_leaves_python_is_told_too() -> None:
    def leaving(batch: object) -> object:
        raise SystemExit(3)

    with pytest.raises(ModelFailed, match="raised SystemExit: 3"):
        runnable(leaving).run(INPUTS)


def test_a_certainty_function_that_raises_is_named() -> None:
    def unsure(scores: object) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ModelFailed, match="model 'm' raised ZeroDivisionError in its certainty"):
        RunnableModel("m", Predicts(SCORES), unsure).run(INPUTS)


# Loading


def test_samples_are_loaded_from_the_users_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        samples="""
            import numpy as np
            from gearshift import Samples
            def load(): return Samples(np.zeros((3, 2)), labels=[0, 1, 0])
        """,
    )
    samples = load_samples(project(), tmp_path)
    assert len(samples) == 3


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
    assert model.run(INPUTS).certainty.tolist() == [0.1, 0.1]


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


def test_unusable_samples_name_the_function(tmp_path: Path) -> None:
    text = "from gearshift import Samples\ndef load(): return Samples([1, 2], labels=[1])"
    with pytest.raises(InvalidInput, match=r"samples\.py:load, samples: labels has 1 rows, but input 'input' has 2"):
        load_samples(project(), write(tmp_path, samples=text))


def test_samples_of_another_type_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFailed, match=r"samples\.py:load answered dict; answer gearshift\.Samples"):
        load_samples(project(), write(tmp_path, samples="def load(): return {}"))


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


# Exits of learned caches


def test_a_model_may_say_after_which_segment_each_row_left() -> None:
    scores = np.eye(2)
    said = RunnableModel("m", lambda x: {"scores": scores, "exit_segment": [3, 0]}, top_two_difference).run(
        {"x": scores}
    )
    assert said.exit_segment is not None
    assert said.exit_segment.tolist() == [3, 0]
    assert sorted(said.outputs) == ["label", "scores"]


@pytest.mark.parametrize("exits", [[1], [0.5, 1], [-1, 0], "last"])
def test_segments_that_are_none_are_refused(exits: object) -> None:
    model = RunnableModel("m", lambda x: {"scores": np.eye(2), "exit_segment": exits}, top_two_difference)
    with pytest.raises(ModelFailed, match=r"answered an exit_segment of shape .* for a batch of 2; give the number"):
        model.run({"x": np.eye(2)})


def test_an_estimator_of_several_labels_is_refused_though_its_scores_look_like_those_of_classes() -> None:
    estimator = Estimator([0, 1, 2])
    assert runnable(estimator).run(INPUTS).outputs["label"].tolist() == [1, 0]
    estimator.multilabel_ = True
    with pytest.raises(ModelFailed, match="answered several labels per row; an operator answers one label per row"):
        runnable(estimator).run(INPUTS)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ("np.linspace(0, 1, 50)", "labels hold 50 different fractions in 50 rows, .* a regression is not judged here"),
        ("np.eye(50, dtype=int)", r"labels have shape \(50, 50\).*an operator answers one label per row"),
        ("np.arange(50) % 9 / 2", None),
        ("np.arange(50.0)", None),
    ],
)
def test_labels_that_are_no_classes_are_refused_at_the_door(tmp_path: Path, labels: str, told: str | None) -> None:
    code = f"""
        import numpy as np
        import gearshift
        def load():
            return gearshift.Samples(inputs=np.zeros((50, 2)), labels={labels})
        """
    write(tmp_path, samples=code)
    if told is None:
        assert len(load_samples(project(), tmp_path)) == 50
    else:
        with pytest.raises(InvalidInput, match=told):
            load_samples(project(), tmp_path)
