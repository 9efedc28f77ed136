"""Implementations and order for the operators of a query, on recorded rows."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gearshift.bulk.choice import accuracy_bound
from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.sql.optimizer import Judged, QueryChoice, composed, front_of, independent, optimize
from gearshift.sql.steps import StepRecords
from tests.often import often

PART = (np.arange(4000) % 2).astype(np.int8)


def records(
    name: str,
    passes: NDArray[np.bool_],
    truth: NDArray[np.bool_],
    work_s: list[float],
    quality: NDArray[np.float64] | None = None,
) -> StepRecords:
    implementations, rows = passes.shape
    return StepRecords(
        name,
        quality is None,
        tuple(Cascade(models=(f"{name}-{number}",)) for number in range(implementations)),
        truth,
        passes,
        np.ones(passes.shape) if quality is None else quality,
        np.repeat(np.array(work_s)[:, None], rows, axis=1),
        PART[:rows],
    )


def filter_of(name: str, share: float, errors: list[float], work_s: list[float], seed: int) -> StepRecords:
    """A filter that keeps `share` of the rows; implementation i is wrong on `errors[i]` of them."""
    generator = np.random.default_rng(seed)
    truth = generator.random(4000) < share
    wrong = generator.random(4000) < np.array(errors)[:, None]
    return records(name, truth ^ wrong, truth, work_s)


def map_of(name: str, errors: list[float], work_s: list[float], seed: int) -> StepRecords:
    right = np.random.default_rng(seed).random(4000) >= np.array(errors)[:, None]
    everything = np.ones(right.shape, dtype=bool)
    return records(name, everything, everything[0], work_s, right.astype(float))


def filter_with(name: str, generator: np.random.Generator, seed: int) -> StepRecords:
    errors = sorted(generator.uniform(0, 0.3, 3), reverse=True)
    return filter_of(name, generator.uniform(0.1, 0.9), errors, [0.01, 0.02, 0.03], seed)


def query() -> list[StepRecords]:
    return [
        map_of("vendor", [0.2, 0.02], [0.001, 0.05], 1),
        filter_of("dear", 0.5, [0.2, 0.01], [0.002, 0.2], 2),
        filter_of("rare", 0.05, [0.1, 0.01], [0.001, 0.02], 3),
    ]


def picks_of(choice: QueryChoice, steps: list[StepRecords]) -> list[int]:
    ordered = sorted(choice.operators, key=lambda one: one.number)
    return [steps[one.number].cascades.index(one.cascade) for one in ordered]


def test_the_filter_that_drops_most_for_its_work_runs_first_and_maps_last():
    choice = optimize(query(), 0.9)
    assert [one.name for one in choice.operators] == ["rare", "dear", "vendor"]
    assert choice.work_s < choice.as_given_s
    assert choice.operators[0].reached == 1
    assert choice.operators[1].reached == pytest.approx(choice.operators[0].kept)
    assert choice.work_s == pytest.approx(sum(one.work_s for one in choice.operators))


def test_an_operator_behind_a_selective_filter_may_be_cheap():
    """Few rows see it, so that its errors hardly count: the query keeps its accuracy."""
    choice = optimize(query(), 0.9)
    cascades = {one.name: one.cascade.models[0] for one in choice.operators}
    assert cascades["vendor"] == "vendor-0"
    assert choice.accuracy >= 0.9
    assert choice.work_s < choice.most_accurate_s / 2


def test_more_accuracy_costs_more_work():
    loose, strict = optimize(query(), 0.9), optimize(query(), 0.985)
    assert loose.work_s < strict.work_s
    assert strict.accuracy > loose.accuracy


@settings(max_examples=often(30), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_it_is_the_cheapest_of_all_combinations_on_the_front(seed, steps):
    generator = np.random.default_rng(seed)
    given_steps = [
        filter_of(f"f{number}", generator.uniform(0.1, 0.9), sorted(generator.uniform(0, 0.3, 3), reverse=True),
                  sorted(generator.uniform(0.001, 0.1, 3)), seed + number)
        for number in range(steps)
    ]  # fmt: skip
    combinations = [Judged(given_steps, picks, PART_A) for picks in itertools.product(range(3), repeat=steps)]
    target = float(np.median([one.accuracy for one in combinations]))
    chosen = optimize(given_steps, min(target, 0.999))
    front, _, _ = front_of(given_steps)
    enough = [one.work_s for picks in front if (one := Judged(given_steps, picks, PART_A)).accuracy >= target]
    picks = [
        given_steps[one.number].cascades.index(one.cascade) for one in sorted(chosen.operators, key=lambda o: o.number)
    ]
    assert Judged(given_steps, picks, PART_A).work_s == pytest.approx(min(enough))


def test_the_products_of_independent_operators_are_those_of_their_records():
    """Where errors are drawn independently, products and joint records agree."""
    steps, picks = query(), np.array([[0, 1, 0], [1, 0, 1]])
    accuracy, work_s = independent(steps, picks)
    for row, pick in enumerate(picks):
        joint = Judged(steps, pick, PART_A)
        assert accuracy[row] == pytest.approx(joint.accuracy, abs=0.02)
        assert work_s[row] == pytest.approx(joint.work_s, rel=0.15)


@settings(max_examples=often(30), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_the_accuracy_of_all_combinations_is_that_of_each_replayed(seed, steps):
    generator = np.random.default_rng(seed)
    given_steps = [
        map_of(f"s{number}", [0.3, 0.1, 0.02], [0.01, 0.02, 0.03], seed + number)
        if generator.random() < 0.3
        else filter_with(f"s{number}", generator, seed + number)
        for number in range(steps)
    ]
    counts = [list(range(len(step.cascades)))[: int(generator.integers(1, 4))] for step in given_steps]
    found = composed(given_steps, counts, PART_B)
    one_by_one = [Judged(given_steps, picks, PART_B).accuracy for picks in itertools.product(*counts)]
    assert found == pytest.approx(one_by_one, abs=1e-6)


def test_a_pair_whose_errors_come_together_is_found_where_the_product_would_not():
    """The dearer of the two cheap ones errs on the same rows as the other filter, and costs the query nothing."""
    generator = np.random.default_rng(7)
    truth = generator.random((2, 4000)) < [[0.5], [0.5]]
    both = truth[0] & truth[1]
    shared = both & (generator.random(4000) < 0.3)
    alone = both & ~shared & (generator.random(4000) < 0.35)
    first = records("a", np.stack([truth[0] ^ shared, truth[0]]), truth[0], [0.01, 0.5])
    second = records("b", np.stack([truth[1] ^ alone, truth[1] ^ shared, truth[1]]), truth[1], [0.009, 0.01, 0.5])
    chosen = optimize([first, second], 0.9)
    assert picks_of(chosen, [first, second]) == [0, 1]


def test_what_the_product_of_the_operators_gets_wrong_is_right_on_joint_records():
    """Of two filters that keep opposite rows, and err on the same ones, no row passes both: never wrong."""
    generator = np.random.default_rng(5)
    truth, wrong = generator.random((2, 4000)) < [[0.5], [0.2]]
    opposite = [records(name, (own ^ wrong)[None], own, [0.01]) for name, own in (("a", truth), ("b", ~truth))]
    (product,), _ = independent(opposite, np.array([[0, 0]]))
    assert product == pytest.approx(0.82, abs=0.02)
    assert Judged(opposite, [0, 0], PART_A).accuracy == 1
    assert optimize(opposite, 0.99).accuracy == 1


def test_a_certificate_is_of_the_querys_answers():
    steps = query()
    choice = optimize(steps, 0.9, confidence=0.95)
    picks = picks_of(choice, steps)
    assert choice.at_least == pytest.approx(accuracy_bound(Judged(steps, picks, PART_B).quality, 0.95))
    assert choice.at_least >= 0.9


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"accuracy": 0.9999}, "no implementations give the query accuracy 0.9999: the best have 0.9"),
        ({"accuracy": 0.9, "confidence": 0.9, "assume_independent": True}, "have no certificate"),
        ({"accuracy": 0.989, "confidence": 0.99999}, r"cannot be certified at confidence 1: 2000 rows of part B"),
        ({"accuracy": 95}, "accuracy is 95; give a share between 0 and 1"),
    ],
)
def test_what_cannot_be_promised_is_refused(options, said):
    with pytest.raises(InvalidInput, match=said):
        optimize(query(), **options)


def test_operators_that_were_recorded_on_other_rows_need_the_assumption():
    first, second = filter_of("a", 0.5, [0.1], [0.01], 1), filter_of("b", 0.1, [0.1], [0.01], 2)
    fewer = StepRecords(
        "b", True, second.cascades, second.truth[:100], second.passes[:, :100], second.quality[:, :100],
        second.work_s[:, :100], second.part[:100],
    )  # fmt: skip
    with pytest.raises(InvalidInput, match="'a' and 'b' were not recorded on the same rows"):
        optimize([first, fewer], 0.8)
    choice = optimize([first, fewer], 0.8, assume_independent=True)
    assert [one.name for one in choice.operators] == ["b", "a"]
    assert "if the operators err independently" in choice.explain()
    assert choice.explain().endswith("how often several err on one row is not known")


def test_it_is_explained_in_a_line_for_each_operator():
    lines = optimize(query(), 0.9).explain().splitlines()
    assert lines[0].startswith("1. filter rare: rare-0; 100.0 % of the rows reach it, it keeps ")
    assert lines[2].startswith("3. map vendor: vendor-0; ")
    assert lines[3].endswith("% of the rows is right")
    assert "in the order given" in lines[4]
    assert lines[5] == "judged on row r of each profile, which is taken to be the same row"
