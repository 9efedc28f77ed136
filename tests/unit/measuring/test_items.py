import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.measuring.items import items_of, spec_of_rows
from gearshift.model import TensorSpec


def rows(*shapes: tuple[int, ...], dtype: type = np.float32) -> list[np.ndarray]:
    return [np.zeros(shape, dtype) for shape in shapes]


@pytest.mark.parametrize(
    ("shapes", "shape"),
    [
        ([(4,), (4,)], (-1, 4)),
        ([(2, 4), (3, 4)], (-1, -1, 4)),
        ([(), ()], (-1,)),
        ([(2, 4), (0,)], (-1, -1, 4)),
        ([(2, 4), (2, 4), (0, 4)], (-1, -1, 4)),
        ([(0, 4), (0, 4)], (-1, -1, 4)),
    ],
)
def test_dimensions_that_differ_are_open(shapes: list[tuple[int, ...]], shape: tuple[int, ...]) -> None:
    assert spec_of_rows("x", rows(*shapes)) == TensorSpec(name="x", datatype="FP32", shape=shape)


def test_rows_of_two_types_get_one_that_holds_both() -> None:
    assert spec_of_rows("x", [np.zeros(2, np.int32), np.zeros(2, np.float64)]).datatype == "FP64"


def test_text_beside_numbers_and_other_dimensions_are_refused() -> None:
    with pytest.raises(InvalidInput, match="tensor 'x' is text in some rows and numbers in others"):
        spec_of_rows("x", [np.zeros(2), np.array(["a", "b"])])
    with pytest.raises(InvalidInput, match="tensor 'x' has rows of 1 and 2 dimensions"):
        spec_of_rows("x", rows((2,), (2, 2)))


def test_a_payload_is_one_row_whatever_the_others_are() -> None:
    items = items_of({"x": [np.arange(2), np.arange(3)], "y": [np.float32(1), np.float32(2)]}, None)
    assert len(items) == 2
    assert [{name: array.tolist() for name, array in one.items()} for one in items.payloads([1, 0])] == [
        {"x": [[0, 1, 2]], "y": [2.0]},
        {"x": [[0, 1]], "y": [1.0]},
    ]
    assert [spec.shape for spec in items.specs] == [(-1, -1), (-1,)]


def test_fewer_than_two_items_are_refused() -> None:
    with pytest.raises(InvalidInput, match="there are 1 items, needs at least 2"):
        items_of({"x": [np.zeros(2)]}, None)
