import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gearshift.measuring.other_batches import found_in_other_batches
from gearshift.model import Predicted
from gearshift.models.certainty import top_two_difference
from gearshift.models.user_model import UserModel
from gearshift.request import Request, Sample

X = np.random.default_rng(2).normal(size=(200, 3))
WORDS = np.array(["x" * (1 + n % 7) for n in range(200)], dtype=object)
SIZES = (1, 4, 32)


def found(
    predict: Callable[[Any], Any], x: Any = X, *, sizes: tuple[int, ...] = SIZES, **how: Any
) -> tuple[list[str], int]:
    """The warnings about a model, and the number of batches run to find them; a batch takes 1 s."""
    model = UserModel("m", predict, top_two_difference)
    parts = [model.run({"x": x[begin : begin + sizes[-1]]}) for begin in range(0, len(x), sizes[-1])]
    answers = Predicted(
        {name: np.concatenate([part.outputs[name] for part in parts]) for name in parts[0].outputs},
        np.concatenate([part.certainty for part in parts]),
    )
    ran = 0

    async def run(rows: list[int]) -> tuple[list[Sample], float]:
        nonlocal ran
        ran += 1
        said = model.run({"x": x[rows]})
        samples = []
        for i, row in enumerate(rows):
            sample = Sample(Request(id=0, operator="", arrived_ns=0), row, row)
            sample.result = {name: array[i : i + 1] for name, array in said.outputs.items()}
            sample.certainty = float(said.certainty[i])
            samples.append(sample)
        return samples, 1.0

    return asyncio.run(found_in_other_batches("m", run, answers, sizes, seed=0, **{"longest_s": 1e3} | how)), ran


def scored(total: Any) -> Any:
    return np.stack([-total, total], axis=1)


def test_a_model_that_takes_each_row_by_itself_is_fine() -> None:
    told, ran = found(lambda x: scored(x.sum(axis=1)))
    assert told == []
    assert ran == 1 + 2 + 16 + 64


def test_float_noise_in_certainties_is_fine() -> None:
    assert found(lambda x: scored(x.sum(axis=1) * (1 + 1e-4 * len(x))))[0] == []
    assert found(lambda x: (np.zeros(len(x)), np.full(len(x), 5 + 1e-9 * len(x))))[0] == []


def test_a_model_that_normalises_over_its_batch_is_told() -> None:
    (told,), _ = found(lambda x: scored((x - x.mean(axis=0)).sum(axis=1)))
    assert "model 'm' answers" in told
    assert "of 64 rows otherwise when they run alone or in other batches; call eval()" in told


def test_a_model_that_pads_to_the_longest_text_of_its_batch_is_told() -> None:
    def padded(words: Any) -> Any:
        longest = max(map(len, words))
        return scored(np.array([2 * len(word) - longest - 0.5 for word in words]))

    (told,), _ = found(padded, WORDS)
    assert "rows otherwise when they run alone" in told


def test_a_certainty_that_depends_on_the_batch_is_told_where_answers_do_not() -> None:
    (told,), _ = found(lambda x: scored(x.sum(axis=1) / np.abs(x.sum(axis=1)).max()))
    assert "model 'm' has another certainty, by up to" in told


def test_a_model_that_answers_the_same_batch_in_two_ways_is_told() -> None:
    generator = np.random.default_rng(0)
    (told,), ran = found(lambda x: scored(generator.normal(size=len(x))))
    assert "rows otherwise when they are run again" in told
    assert ran == 1


def test_slow_models_are_looked_at_for_a_bounded_time() -> None:
    _, ran = found(lambda x: scored(x.sum(axis=1)), longest_s=10.0)
    assert ran == 11


@pytest.mark.parametrize(
    "predict",
    [
        lambda x: ({"other": x[:, 0]}, np.ones(len(x))),
        lambda x: ({"label": x}, np.ones(len(x))),
        lambda x: (np.zeros(len(x)), np.full(len(x), np.inf)),
    ],
)
def test_answers_that_are_refused_anyway_are_not_looked_at(predict: Callable[[Any], Any]) -> None:
    assert found(predict) == ([], 0)


def test_a_single_batch_size_is_enough() -> None:
    (told,), _ = found(lambda x: scored((x - x.mean(axis=0)).sum(axis=1)), sizes=(8,))
    assert "alone or in other batches" in told
