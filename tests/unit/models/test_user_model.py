from typing import Any

import numpy as np
import pytest

from gearshift.errors import ModelFailed
from gearshift.model import Predicted, datatype_of
from gearshift.models.certainty import agreement, highest_probability, mean_token_log_probability, top_two_difference
from gearshift.models.user_model import UserModel, fitted_columns
from gearshift.support.frames import columns_of

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


def runnable(model: object) -> UserModel:
    return UserModel("m", model, top_two_difference)


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
    said = UserModel("m", model, highest_probability).run(INPUTS)
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
    said = UserModel("m", Predicts(np.array([[0, 1], [3, 3]])), highest_probability, softmax=True).run(INPUTS)
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
    said = UserModel("m", Predicts({"label": ["x", "y"], "scores": np.array([[1.0], [1.0]])}), certainty)
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


WRONG: dict[str, tuple[object, str]] = {
    "too few rows": (
        np.ones((3, 2)),
        "model 'm' answered 3 rows for a batch of 2; answer one row per row of the batch",
    ),
    "one value per row": (np.array([0, 1]), r"one value per row \(shape \(2,\)\).*answer scores \(n, classes\)"),
    "labels alone": (np.array([0, 1]), "labels alone can only be the last of a cascade: .* the same certainty"),
    "names alone": (np.array(["a", "b"]), "labels alone can only be the last of a cascade"),
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
        r"outputs 'label' without a certainty; answer \(outputs, certainty\), or one of them.*labels alone .*np\.ones",
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
        UserModel("m", Predicts(SCORES), unsure).run(INPUTS)


def test_a_model_may_say_after_which_segment_each_row_left() -> None:
    scores = np.eye(2)
    said = UserModel("m", lambda x: {"scores": scores, "exit_segment": [3, 0]}, top_two_difference).run({"x": scores})
    assert said.exit_segment is not None
    assert said.exit_segment.tolist() == [3, 0]
    assert sorted(said.outputs) == ["label", "scores"]


@pytest.mark.parametrize("exits", [[1], [0.5, 1], [-1, 0], "last"])
def test_segments_that_are_none_are_refused(exits: object) -> None:
    model = UserModel("m", lambda x: {"scores": np.eye(2), "exit_segment": exits}, top_two_difference)
    with pytest.raises(ModelFailed, match=r"answered an exit_segment of shape .* for a batch of 2; give the number"):
        model.run({"x": np.eye(2)})


def test_an_estimator_of_several_labels_is_refused_though_its_scores_look_like_those_of_classes() -> None:
    estimator = Estimator([0, 1, 2])
    assert runnable(estimator).run(INPUTS).outputs["label"].tolist() == [1, 0]
    estimator.multilabel_ = True
    with pytest.raises(ModelFailed, match="answered several labels per row; an operator answers one label per row"):
        runnable(estimator).run(INPUTS)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_model_of_frames_gets_one_of_all_inputs_and_may_answer_one(kind: Any) -> None:
    library = pytest.importorskip(kind)
    given: list[Any] = []

    def predict(frame: Any) -> Any:
        given.append(frame)
        answers = {"label": ["a", "b"], "certainty": [0.5, 1.0]}
        return library.table(answers) if kind == "pyarrow" else library.DataFrame(answers)

    model = UserModel("m", predict, lambda scores: scores, frame=kind)
    answer = model.run({"age": np.array([1.0, np.nan]), "name": np.array(["Ada", None], dtype=object)})
    columns = columns_of(given[0])
    assert columns is not None
    assert columns["name"].tolist() == ["Ada", None]
    assert answer.outputs["label"].tolist() == ["a", "b"]
    assert answer.certainty.tolist() == [0.5, 1.0]


class FittedOnCategories(Predicts):
    """As an estimator that was fitted on a data frame with a column of pandas' type category."""

    feature_names_in_ = np.array(["town"], dtype=object)

    def predict(self, batch: Any) -> Any:
        codes = batch["town"].cat.codes.to_numpy()
        return np.stack([codes == 0, codes == 1], axis=1).astype(float)


def test_texts_become_categories_in_the_order_that_the_settings_give() -> None:
    pytest.importorskip("pandas")
    inputs = {"town": np.array(["Ulm", "Bonn", "Rom", None], dtype=object)}
    model = UserModel("m", FittedOnCategories(None), top_two_difference, categories={"town": ("Ulm", "Bonn")})
    assert model.run(inputs).outputs["scores"].tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]


def test_an_estimator_that_wants_categories_says_where_to_give_them() -> None:
    pytest.importorskip("pandas")
    with pytest.raises(ModelFailed, match=r"AttributeError.*categories\.town = \[\.\.\.\] in \[models\.m\]"):
        runnable(FittedOnCategories(None)).run({"town": np.array(["Ulm"], dtype=object)})


def test_categories_of_another_type_than_the_values_are_refused() -> None:
    model = UserModel("m", FittedOnCategories(None), top_two_difference, categories={"town": ("1", "2")})
    with pytest.raises(ModelFailed, match="has categories of 'town' such as '1', and values of type int64"):
        model.run({"town": np.array([1, 2])})
    model = UserModel("m", FittedOnCategories(None), top_two_difference, categories={"city": ("1", "2")})
    with pytest.raises(ModelFailed, match="has categories of 'city', which is no input"):
        model.run({"town": np.array([1, 2])})


def test_categories_of_an_input_with_several_values_per_row_are_refused() -> None:
    model = UserModel("m", FittedOnCategories(None), top_two_difference, categories={"town": (1, 2)})
    with pytest.raises(ModelFailed, match=r"has categories of 'town', which has rows of shape \(2,\); name an input"):
        model.run({"town": np.array([[1, 2], [2, 1]])})


class FittedByCatBoost(Predicts):
    feature_names_ = ["age", "town"]  # noqa: RUF012  as the library has it

    def predict(self, batch: Any) -> Any:
        return np.stack([batch["age"], batch["town"] == "Ulm"], axis=1).astype(float)


def test_catboost_gets_the_columns_that_it_was_fitted_on() -> None:
    pytest.importorskip("pandas")
    inputs = {"town": np.array(["Ulm", "Bonn"], dtype=object), "age": np.array([0.0, 4.0])}
    assert runnable(FittedByCatBoost(None)).run(inputs).outputs["scores"].tolist() == [[0, 1], [4, 0]]
    fitted_on_an_array = FittedByCatBoost(None)
    fitted_on_an_array.feature_names_ = ["0", "1"]
    assert fitted_columns(fitted_on_an_array) is None
