from typing import Any

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.model import TensorSpec
from gearshift.models.declared_outputs import EVERY_OUTPUT, DeclaredOutputs, common_outputs


def spec(name: str, datatype: str = "FP32", *shape: int) -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, shape=(-1, *shape))


def answer(label: Any = (0, 1), **others: Any) -> dict[str, Any]:
    return {"label": np.array(label), **{name: np.asarray(value) for name, value in others.items()}}


# What is published


def test_what_all_models_answer_alike_is_published() -> None:
    scores = np.eye(2, dtype=np.float32)
    published, left_out = common_outputs({"a": answer(scores=scores), "b": answer(scores=scores)})
    assert published == (spec("label", "INT64"), spec("scores", "FP32", 2))
    assert left_out == ()


@pytest.mark.parametrize(
    ("a", "b", "datatype"),
    [
        ("int32", "int64", "INT64"),
        ("float32", "float64", "FP64"),
        ("uint8", "int8", "INT16"),
        ("bool", "uint8", "UINT8"),
        ("int64", "float64", "FP64"),
        ("float16", "float16", "FP16"),
    ],
)
def test_numbers_are_published_in_a_datatype_that_holds_those_of_all_models(a: str, b: str, datatype: str) -> None:
    published, _ = common_outputs({"a": answer(np.array([0, 1], a)), "b": answer(np.array([1, 0], b))})
    assert published == (spec("label", datatype),)


def test_text_and_bytes_are_one_datatype() -> None:
    said = {"a": answer(["x", "y"]), "b": answer([b"x", b"y"]), "c": answer(np.array(["x", b"y"], dtype=object))}
    assert common_outputs(said)[0] == (spec("label", "BYTES"),)


def test_an_output_that_one_model_lacks_is_left_out_and_told() -> None:
    published, left_out = common_outputs({"a": answer(), "b": answer(heat=[0.5, 0.5])})
    assert published == (spec("label", "INT64"),)
    assert left_out == ("output 'heat' is not answered by the server: it is answered by model 'b', but not by 'a'",)


def test_an_output_of_two_shapes_is_left_out_and_told() -> None:
    _, left_out = common_outputs({"a": answer(scores=np.zeros((2, 3))), "b": answer(scores=np.zeros((2, 4)))})
    assert left_out == (
        "output 'scores' is not answered by the server: it has shape [-1, 3] from model 'a' and [-1, 4] from 'b'",
    )


def test_scores_of_classes_in_another_order_are_left_out_and_told() -> None:
    forward, backward = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.1, 0.9], [0.7, 0.3]])
    said = {"a": answer(["cat", "dog"], scores=forward), "b": answer(["cat", "dog"], scores=backward)}
    _, (told,) = common_outputs(said)
    assert told.endswith("it has the class 'cat' in column 0 from model 'a' and 'dog' from 'b'")


def scores_of(columns: int) -> dict[str, np.ndarray]:
    return answer(["cat", "dog"], scores=np.eye(2, columns))


def test_scores_of_models_that_name_their_classes_are_published_in_the_first_ones_order() -> None:
    said = {"a": scores_of(3), "b": scores_of(3)}
    specs, told = common_outputs(said, {"a": ("cat", "dog", "eel"), "b": ("eel", "cat", "dog")})
    assert told == ()
    assert [(one.name, one.classes) for one in specs] == [("label", ()), ("scores", ("cat", "dog", "eel"))]


@pytest.mark.parametrize("classes", [("cat", "dog"), ("cat", "dog", "fox")])
def test_scores_of_other_classes_are_left_out_and_told_by_name(classes: tuple[str, ...]) -> None:
    said = {"a": scores_of(3), "b": scores_of(len(classes))}
    specs, (told,) = common_outputs(said, {"a": ("cat", "dog", "eel"), "b": classes})
    assert [one.name for one in specs] == ["label"]
    assert "it is of the classes 'cat', 'dog', 'eel' from model 'a' and 'cat', 'dog'" in told


def test_where_one_model_names_no_classes_its_answers_say_what_columns_are() -> None:
    said = {"a": scores_of(2), "b": scores_of(2)}
    specs, told = common_outputs(said, {"a": ("cat", "dog"), "b": ()})
    assert (told, specs[1].classes) == ((), ())


def test_scores_beside_labels_that_they_do_not_decide_say_nothing_of_classes() -> None:
    said = {
        "a": answer(["cat", "dog"], scores=np.array([[0.9, 0.1], [0.8, 0.2]])),
        "b": answer(["dog", "cat"], scores=np.array([[0.9, 0.1], [0.2, 0.8]])),
    }
    assert common_outputs(said)[1] == ()


def test_labels_as_text_from_one_model_and_numbers_from_another_are_refused() -> None:
    with pytest.raises(InvalidInput, match="output 'label' is BYTES from model 'a' and INT64 from 'b'; let all models"):
        common_outputs({"a": answer(["0", "1"]), "b": answer()})


# What is answered


def published(*classes: str) -> TensorSpec:
    return TensorSpec(name="scores", datatype="FP64", shape=(-1, len(classes)), classes=classes)


def test_columns_of_scores_are_put_into_the_published_order() -> None:
    given = {"scores": np.array([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]])}
    made = DeclaredOutputs([published("cat", "dog", "eel")], ("eel", "cat", "dog")).of(given)
    assert made["scores"].tolist() == [[0.2, 0.7, 0.1], [0.3, 0.2, 0.5]]
    same = DeclaredOutputs([published("cat", "dog", "eel")], ("cat", "dog", "eel")).of(given)
    assert same["scores"] is given["scores"]


def test_other_classes_than_the_published_are_refused() -> None:
    with pytest.raises(InvalidInput, match="its classes are 'cat', 'fox', and those that are published 'cat', 'dog'"):
        DeclaredOutputs([published("cat", "dog")], ("cat", "fox"))


def test_outputs_that_are_not_published_are_left_out() -> None:
    made = DeclaredOutputs([spec("label", "INT64")]).of(answer(heat=[0.5, 0.5]))
    assert list(made) == ["label"]
    assert list(EVERY_OUTPUT.of(answer(heat=[0.5, 0.5]))) == ["label", "heat"]


def test_numbers_take_the_published_datatype() -> None:
    made = DeclaredOutputs([spec("label", "FP64"), spec("x", "FP32")]).of(
        answer(np.array([0, 1], np.int32), x=np.array([0.5, np.nan]))
    )
    assert {name: array.dtype.str for name, array in made.items()} == {"label": "<f8", "x": "<f4"}
    assert made["label"].tolist() == [0, 1]


def test_arrays_of_the_published_datatype_are_not_copied() -> None:
    given = answer()
    assert DeclaredOutputs([spec("label", "INT64")]).of(given)["label"] is given["label"]


@pytest.mark.parametrize(
    ("given", "published", "why"),
    [
        ({"heat": np.zeros(2)}, spec("label"), "without output 'label'"),
        (answer([0.1, 0.2]), spec("label", "FP32"), "type float64, which FP32 cannot hold"),
        (answer([2**53 + 1, 0]), spec("label", "FP64"), "type int64, which FP64 cannot hold"),
        (answer([300, 0]), spec("label", "UINT8"), "type int64, which UINT8 cannot hold"),
        (answer(["a", "b"]), spec("label", "INT64"), "not INT64"),
        (answer(), spec("label", "BYTES"), "not BYTES"),
        (answer(scores=np.zeros((2, 3))), spec("scores", "FP64", 2), r"shape \[2, 3\], not \[-1, 2\]"),
        (answer(scores=np.zeros(2)), spec("scores", "FP64", 2), r"shape \[2\], not \[-1, 2\]"),
    ],
)
def test_what_does_not_fit_is_refused(given: Any, published: TensorSpec, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        DeclaredOutputs([published]).of(given)


def test_a_dimension_that_varies_takes_any_size() -> None:
    made = DeclaredOutputs([spec("scores", "FP64", -1)]).of({"scores": np.zeros((2, 5))})
    assert made["scores"].shape == (2, 5)
