import dataclasses

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.cascade import Cascade
from gearshift.hardware import Device
from gearshift.planner.space.cascade_search import (
    CascadeSpace,
    evaluate_cascade,
    pareto_cascades,
    search_cascades,
    work_per_request_s,
)
from gearshift.profiles.profile import PART_A, PART_B, PredictionRecords
from tests.often import often
from tests.worlds import BATCH_SIZES, synthetic_profile

LITTLE = settings(max_examples=often(40), deadline=None, derandomize=True)


@st.composite
def records(draw: st.DrawFn) -> PredictionRecords:
    """Few distinct certainties, so that many are equal to a threshold."""
    models, samples = draw(st.integers(1, 4)), draw(st.integers(2, 40))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.sampled_from([2, 5, 1000]))
    part = (generator.random(samples) < 0.5).astype(np.int8)
    part[0], part[1] = PART_A, PART_B
    return PredictionRecords(
        models=tuple("abcd"[:models]),
        quality=generator.integers(0, 2, (models, samples)) * generator.random((models, 1)),
        certainty=generator.integers(0, levels, (models, samples)) / levels,
        part=part,
    )


def works(records: PredictionRecords) -> dict[str, float]:
    return {model: 0.001 * 3.0**k for k, model in enumerate(records.models)}


def sample_by_sample(
    cascade: Cascade, records: PredictionRecords, work_s: dict[str, float], part: int
) -> tuple[float, float, list[float]]:
    """Accuracy, work and reach, by sending each sample through the cascade."""
    quality, work, reach = 0.0, 0.0, [0] * len(cascade.models)
    columns = records.indices(part)
    for column in columns:
        for stage, model in enumerate(cascade.models):
            row = records.models.index(model)
            work += work_s[model]
            reach[stage] += 1
            if stage == len(cascade.thresholds) or records.certainty[row, column] >= cascade.thresholds[stage]:
                quality += records.quality[row, column]
                break
    n = len(columns)
    return quality / n, work / n, [count / n for count in reach]


@LITTLE
@given(records())
def test_every_candidates_figures_are_those_of_sending_each_sample_through_it(records: PredictionRecords) -> None:
    work_s = works(records)
    space = search_cascades(records, work_s, quantiles=4)
    for i in range(0, len(space), max(1, len(space) // 50)):
        accuracy, work, _ = sample_by_sample(space.cascade(i), records, work_s, PART_A)
        assert (space.accuracy[i], space.work_s[i]) == pytest.approx((accuracy, work), abs=1e-12)


@LITTLE
@given(records(), st.sampled_from([PART_A, PART_B]))
def test_one_cascades_figures_are_those_of_sending_each_sample_through_it(
    records: PredictionRecords, part: int
) -> None:
    work_s = works(records)
    thresholds = (0.4, 0.6, 0.2)[: len(records.models) - 1]
    cascade = Cascade(models=records.models, thresholds=thresholds)
    got = evaluate_cascade(cascade, records, work_s, part=part)
    accuracy, work, reach = sample_by_sample(cascade, records, work_s, part)
    assert (got.accuracy, got.work_s) == pytest.approx((accuracy, work), abs=1e-12)
    assert list(got.reach) == pytest.approx(reach)


@LITTLE
@given(records())
def test_no_candidate_dominates_a_member_of_the_front(records: PredictionRecords) -> None:
    space = search_cascades(records, works(records), quantiles=4)
    for i in space.front():
        no_worse = (space.accuracy >= space.accuracy[i]) & (space.work_s <= space.work_s[i])
        better = (space.accuracy > space.accuracy[i]) | (space.work_s < space.work_s[i])
        assert not (no_worse & better).any()


@LITTLE
@given(records())
def test_the_front_holds_the_cheapest_and_the_most_accurate_by_rising_work(records: PredictionRecords) -> None:
    space = search_cascades(records, works(records), quantiles=4)
    front = space.front()
    assert space.work_s[front[0]] == space.work_s.min()
    assert space.accuracy[front[-1]] == space.accuracy.max()
    assert (np.diff(space.work_s[front]) > 0).all()
    assert (np.diff(space.accuracy[front]) > 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_rounding_puts_no_equal_cascades_on_the_front(seed: int) -> None:
    profile = synthetic_profile(models=4, samples=150 + seed, seed=seed)
    work_s = {model: 0.0013 * 3.1**k for k, model in enumerate(profile.models)}
    front = pareto_cascades(profile, work_s, most=10_000)
    assert min(np.diff([c.accuracy for c in front])) > 1e-9
    assert min(np.diff([c.work_s for c in front])) > 1e-12


@LITTLE
@given(records())
def test_every_candidate_is_covered_by_the_front(records: PredictionRecords) -> None:
    space = search_cascades(records, works(records), quantiles=4)
    front = space.front()
    for i in range(len(space)):
        covers = (space.accuracy[front] >= space.accuracy[i]) & (space.work_s[front] <= space.work_s[i])
        assert covers.any()


def the_space(*, longest_chain: int = 3, samples: int = 400) -> CascadeSpace:
    profile = synthetic_profile(models=4, samples=samples)
    work_s = work_per_request_s(profile, Device(id="d"))
    return search_cascades(profile.predictions, work_s, quantiles=8, longest_chain=longest_chain)


def test_all_chains_of_one_to_three_models_by_rising_work_are_searched() -> None:
    chains = the_space().chains
    assert len(chains) == 4 + 6 + 4
    assert ("m0", "m1", "m3") in chains
    assert all(list(chain) == sorted(chain) for chain in chains)


def test_longer_chains_are_searched_on_request() -> None:
    assert ("m0", "m1", "m2", "m3") in the_space(longest_chain=4).chains


def test_every_candidates_number_names_another_cascade() -> None:
    space = the_space()
    assert len({space.cascade(i) for i in range(len(space))}) == len(space)


def test_thresholds_come_from_part_a_alone() -> None:
    profile = synthetic_profile(models=3, samples=300)
    records = profile.predictions
    other = records.indices(PART_B)
    certainty, quality = records.certainty.copy(), records.quality.copy()
    certainty[:, other], quality[:, other] = -5.0, 0.0
    changed = PredictionRecords(models=records.models, quality=quality, certainty=certainty, part=records.part)
    work_s = work_per_request_s(profile, Device(id="d"))
    before, after = search_cascades(records, work_s), search_cascades(changed, work_s)
    assert {m: t.tolist() for m, t in before.thresholds.items()} == {m: t.tolist() for m, t in after.thresholds.items()}
    assert before.accuracy.tolist() == after.accuracy.tolist()


def test_the_work_of_a_request_is_its_part_of_the_best_batch() -> None:
    profile = synthetic_profile(models=2, samples=20, fastest_s=0.001)
    largest = BATCH_SIZES[-1]
    assert work_per_request_s(profile, Device(id="d"))["m0"] == pytest.approx(
        (0.001 * (0.5 + 0.5 * largest) + 0.0001) / largest
    )


def test_the_work_of_a_request_counts_all_devices_of_a_replica_that_spans_several() -> None:
    profile = synthetic_profile(models=2, samples=20)
    narrow = msgspec.structs.replace(profile.curves[0], batch_sizes=(1,), median_s=(0.5,), p95_s=(0.5,))
    wide = msgspec.structs.replace(
        profile.curves[1], batch_sizes=(1,), median_s=(0.2,), p95_s=(0.2,), tensor_parallel=2
    )
    curves = (narrow, msgspec.structs.replace(narrow, median_s=(0.3,), tensor_parallel=2), wide)
    work_s = work_per_request_s(dataclasses.replace(profile, curves=curves), Device(id="d"))
    assert work_s == {"m0": pytest.approx(0.5 + 0.0001), "m1": pytest.approx(2 * (0.2 + 0.0001))}


@pytest.mark.parametrize("most", [2, 3, 10, 1000])
def test_a_thinned_front_keeps_its_ends_and_its_order(most: int) -> None:
    profile = synthetic_profile(models=4, samples=600)
    work_s = work_per_request_s(profile, Device(id="d"))
    whole = pareto_cascades(profile, work_s, most=10_000)
    thinned = pareto_cascades(profile, work_s, most=most)
    assert len(thinned) <= most
    assert (thinned[0], thinned[-1]) == (whole[0], whole[-1])
    assert [c.work_s for c in thinned] == sorted(c.work_s for c in thinned)
