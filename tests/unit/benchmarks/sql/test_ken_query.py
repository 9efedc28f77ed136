"""Shapes of queries and fronts over them; small data made here stands for the real."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.sql.ken_query import Shape, front_over, shapes, work_for

pytestmark = pytest.mark.long


def test_shapes_name_their_operators_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines" / "mmqa"
    folder.mkdir(parents=True)
    (folder / "query_shapes.csv").write_text(
        'shape,operators,count_in_dev\nTextQ,1,7\n"Compare(TableQ,Compose(TableQ,TextQ))",3,2\n'
    )
    assert shapes(tmp_path) == [
        Shape(operators=("TextQ",), count=7),
        Shape(operators=("TableQ", "TableQ", "TextQ"), count=2),
    ]


def test_each_shape_takes_its_own_best_at_a_price() -> None:
    cheap_or_good = np.array([0.5, 0.9]), np.array([0.1, 1.0]), np.array([0.4, 0.8]), np.array([0.1, 1.0])
    only = np.array([0.7]), np.array([0.2]), np.array([0.6]), np.array([0.2])
    front = front_over([cheap_or_good, only], np.array([0.5, 0.5]))
    assert front[0].max() == pytest.approx(0.7)
    assert work_for(front, 0.7 - 1e-9) == pytest.approx(0.6)
    assert work_for(front, 0.5 - 1e-9) == pytest.approx(0.15)
    assert work_for(front, 0.9) == np.inf
