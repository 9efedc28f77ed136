import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.measuring.answers import found_in_other_batches, records_from_answers
from gearshift.model import Predicted
from gearshift.models.certainty import top_two_difference
from gearshift.models.samples import Samples
from gearshift.models.user_model import UserModel
from gearshift.request import Request, Sample


def answer(labels: object, certainty: object = None) -> Predicted:
    values = np.asarray(labels)
    sure = np.full(len(values), 0.5) if certainty is None else np.asarray(certainty, dtype=np.float64)
    return Predicted({"label": values}, sure)


def samples(labels: object, groups: object = None) -> Samples:
    return Samples(
        np.zeros((4, 2)),
        None if labels is None else np.asarray(labels),
        None if groups is None else np.asarray(groups),
    )


def test_quality_is_whether_the_output_label_equals_the_label() -> None:
    records = records_from_answers(
        ["a", "b"], {"a": answer([0, 1, 1, 0]), "b": answer([0, 1, 2, 2])}, samples([0, 1, 2, 2]), 0
    )
    assert records.quality.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert records.labelled
    assert records.prediction is not None
    assert records.prediction[0].tolist() == ["0", "1", "1", "0"]
    assert records.label is not None
    assert records.label.tolist() == ["0", "1", "2", "2"]


@pytest.mark.parametrize(
    ("labels", "outputs"),
    [
        ([0.0, 1.0, 1.0, 0.0], [0, 1, 1, 0]),
        ([True, False, True, False], [1, 0, 1, 0]),
        (["a", "é", "a", "é"], np.array([b"a", "é".encode(), b"a", "é".encode()], dtype=object)),
        (np.array([1, 2, 1, 2], dtype=np.uint8), np.array([1, 2, 1, 2], dtype=np.int64)),
    ],
)
def test_equal_values_of_different_types_are_equal(labels: object, outputs: object) -> None:
    records = records_from_answers(["a"], {"a": answer(outputs)}, samples(labels), 0)
    assert records.quality.tolist() == [[1, 1, 1, 1]]


def test_without_labels_quality_is_agreement_with_the_strongest_model() -> None:
    answers = {"a": answer([0, 1, 1, 0]), "b": answer([0, 1, 2, 2])}
    records = records_from_answers(["a", "b"], answers, samples(None), 0, strongest="b")
    assert records.quality.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert not records.labelled
    assert records.label is None


def test_text_labels_beside_integer_outputs_are_refused_with_an_example() -> None:
    with pytest.raises(
        InvalidInput, match="no output of model 'a' is ever a value that the labels have, for example 'cat' and '0'"
    ):
        records_from_answers(["a"], {"a": answer([0, 1, 1, 0])}, samples(["cat", "dog", "cat", "dog"]), 0)


def test_outputs_that_never_are_a_label_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no output of model 'a' is ever a value that the labels have"):
        records_from_answers(["a"], {"a": answer([0, 1, 1, 0])}, samples([10, 11, 11, 10]), 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_certainty_that_is_not_finite_names_the_model_and_how_many(bad: float) -> None:
    answers = {"a": answer([0, 1, 0, 1]), "b": answer([0, 1, 0, 1], [0.5, bad, bad, 0.5])}
    with pytest.raises(InvalidInput, match="model 'b': the certainty of 2 of 4 samples is NaN or infinite"):
        records_from_answers(["a", "b"], answers, samples([0, 1, 0, 1]), 0)


def test_a_model_without_an_output_label_names_its_outputs() -> None:
    said = Predicted({"boxes": np.zeros((4, 4))}, np.ones(4))
    with pytest.raises(InvalidInput, match=r"model 'a': its outputs are \['boxes'\].*--from-records"):
        records_from_answers(["a"], {"a": said}, samples([0, 1, 0, 1]), 0)


def test_answers_for_fewer_samples_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"output 'label' has shape \(3,\) for 4 samples"):
        records_from_answers(["a"], {"a": answer([0, 1, 1])}, samples([0, 1, 0, 1]), 0)


def test_groups_stay_in_one_part() -> None:
    records = records_from_answers(["a"], {"a": answer([0, 1, 0, 1])}, samples([0, 1, 0, 1], ["x", "x", "y", "y"]), 0)
    assert records.part[0] == records.part[1] != records.part[2] == records.part[3]


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
