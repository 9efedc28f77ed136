from pathlib import Path

import numpy as np
import pytest

from gearshift.errors import InvalidInput, ModelFailed
from gearshift.model import TensorSpec
from gearshift.models.config import Operator, Project
from gearshift.models.declared_outputs import DeclaredOutputs
from gearshift.models.function_model import FunctionModel
from gearshift.models.loading import load_model
from tests.unit.models.user_files import write

X = {"x": np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])}


def loaded(folder: Path, code: str, name: str = "f") -> FunctionModel:
    write(folder, steps=code)
    operators = {name: Operator(function=f"steps.py:{name}", samples="s.py:s")}
    model = load_model(Project(operators=operators), folder, name)
    assert isinstance(model, FunctionModel)
    return model


def test_a_function_takes_arrays_by_name_and_is_certain(tmp_path: Path) -> None:
    model = loaded(tmp_path, "def f(x): return {'sum': x.sum(axis=1), 'label': ['a', 'b', 'c']}")
    answer = model.run(X)
    assert answer.outputs["sum"].tolist() == [3.0, 7.0, 11.0]
    assert answer.outputs["label"].tolist() == ["a", "b", "c"]
    assert answer.certainty.tolist() == [1.0, 1.0, 1.0]
    assert model.inputs == ("x",)


def test_elements_of_several_shapes_are_answered_in_pieces(tmp_path: Path) -> None:
    model = loaded(
        tmp_path, "import numpy as np\ndef f(x): return {'parts': [np.ones((int(n), 4)) * n for n in (2, 1, 2)]}"
    )
    pieces = model.pieces(X)
    assert [(rows, answer.outputs["parts"].shape) for rows, answer in pieces] == [([0, 2], (2, 2, 4)), ([1], (1, 1, 4))]
    with pytest.raises(ModelFailed, match="answered elements of several shapes"):
        model.run(X)


def test_an_element_without_rows_has_the_type_of_the_others(tmp_path: Path) -> None:
    model = loaded(tmp_path, "import numpy as np\ndef f(x): return {'parts': [[], np.ones((2, 4), np.float32), []]}")
    shapes = {answer.outputs["parts"].shape[1:]: answer.outputs["parts"].dtype for _, answer in model.pieces(X)}
    assert shapes == {(0, 4): np.float32, (2, 4): np.float32}


def test_a_batch_of_elements_without_rows_has_the_published_type(tmp_path: Path) -> None:
    model = loaded(tmp_path, "def f(x): return {'parts': [[]] * len(x)}")
    declared = DeclaredOutputs([TensorSpec(name="parts", datatype="FP32", shape=(-1, -1, 4))])
    ((rows, answer),) = FunctionModel("f", model.model, model.certainty, declared=declared, inputs=("x",)).pieces(X)
    assert (rows, answer.outputs["parts"].shape, answer.outputs["parts"].dtype) == ([0, 1, 2], (3, 0, 4), np.float32)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def f(y): return {}", "takes 'y', and is given 'x'; name it in the node's inputs"),
        ("def f(y=1): return {}", "takes no 'x'; leave it out"),
        ("def f(x): return x", 'answered ndarray; answer arrays by name, such as {"label": ...}'),
        ("def f(x): return {}", "answered dict; answer arrays by name"),
        ("def f(x): return {'y': x[:2]}", "answered 2 elements as 'y' for a batch of 3; answer one element for each"),
        ("def f(x): return {'y': 'abc'}", "answered str as 'y'; answer one element for each item"),
        ("def f(x): return {'y': 3}", "answered int as 'y'; answer one element"),
        ("def f(x): return {'y': [[[1], [1, 2]]] * 3}", "an element of 'y' that is no array"),
        ("def f(x): return {'y': [object()] * 3}", "answered output 'y' with objects of type object; answer numbers"),
        ("def f(x): return 1 / 0", "raised ZeroDivisionError: division by zero .*in its function"),
    ],
)
def test_a_wrong_function_is_told_in_a_sentence(tmp_path: Path, code: str, told: str) -> None:
    with pytest.raises(ModelFailed, match=told) as caught:
        loaded(tmp_path, code).pieces(X)
    assert str(caught.value).startswith("model 'f' ")


def test_parameters_without_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"operators\.f\.function: steps\.py:f takes 'x' by position"):
        loaded(tmp_path, "def f(x, /): return {}")


def test_a_function_may_have_defaults_or_take_any_input(tmp_path: Path) -> None:
    model = loaded(tmp_path, "def f(x, scale=2.0, **others): return {'y': x * scale + len(others)}")
    assert model.run({**X, "z": X["x"]}).outputs["y"].tolist() == (X["x"] * 2 + 1).tolist()
    assert (model.inputs, model.others, model.takes_any) == (("x",), ("scale",), True)


def test_a_missing_function_names_its_field(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"field operators\.g\.function: .* has no function 'g'"):
        loaded(tmp_path, "def f(x): return {}", name="g")
