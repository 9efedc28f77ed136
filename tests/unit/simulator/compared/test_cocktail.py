import dataclasses
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Device, identical_devices
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.profiles.profile import PART_A, PredictionRecords, Profile
from gearshift.simulator.compared.cocktail import (
    CocktailRun,
    capacity_within,
    fewest_devices_cocktail,
    serve_cocktail,
    serve_in_turn,
)
from gearshift.simulator.compared.ensembles import majority_vote, useful_ensembles, voted_quality
from gearshift.simulator.simulate import simulate
from gearshift.workload import Trace, Workload
from tests.often import often
from tests.worlds import synthetic_profile

MS = 1_000_000
TABLE_NS = np.array([0, 10, 11, 12, 13], dtype=np.int64) * MS
RANDOM = settings(max_examples=often(60), deadline=None, derandomize=True)


def independent_profile(*, models: int = 3, samples: int = 900, wrong: int = 10) -> Profile:
    """Models of 2, 4, 8, .. ms, each wrong on other samples: one of `wrong`, in a way of its own."""
    profile = synthetic_profile(models=models, samples=samples, fastest_s=0.002, growth=2.0)
    sample = np.arange(samples)
    label = np.full(samples, "right")
    prediction = np.array([np.where(sample // 2 % wrong == k, f"wrong{k}", label) for k in range(models)])
    records = dataclasses.replace(
        profile.predictions,
        quality=(prediction == label).astype(np.float64),
        part=(sample % 2).astype(np.int8),
        label=label,
        prediction=prediction,
    )
    return dataclasses.replace(profile, predictions=records)


PROFILE = independent_profile()


def trace_of(*qps: int, seconds: int = 10, seed: int = 0) -> Trace:
    """`seconds` at each load; arrivals evenly spread, each moved a little."""
    generator = np.random.default_rng(seed)
    times_s = [k * seconds + (np.arange(q * seconds) + generator.random(q * seconds)) / q for k, q in enumerate(qps)]
    return Trace((np.concatenate(times_s) * 1e9).astype(np.int64), float(seconds * len(qps)))


def served(*qps: int, latency_s: float = 0.1, accuracy: float | None = 0.85, **changed: Any) -> CocktailRun:
    settings: dict[str, Any] = {"load_s": 2.0, "period_s": 10.0} | changed
    return serve_cocktail(PROFILE, trace_of(*qps), Objective(latency_s=latency_s, accuracy=accuracy), **settings)


# Devices in turn ------------------------------------------------------------------------------------------------------


def test_a_batch_takes_what_waits_up_to_the_largest() -> None:
    """0 runs from 0 to 10; of 1, 2, 3 that wait two run until 21, the last until 31."""
    finished_ns, busy_ns = serve_in_turn(np.array([0, 1, 2, 3]) * MS, 1, TABLE_NS, 2)
    assert (finished_ns // MS).tolist() == [10, 21, 21, 31]
    assert busy_ns == 31 * MS


def test_devices_take_requests_in_turn() -> None:
    finished_ns, _ = serve_in_turn(np.array([0, 1, 2, 3]) * MS, 2, TABLE_NS, 4)
    assert (finished_ns // MS).tolist() == [10, 11, 20, 21]


def test_a_request_that_arrives_as_a_batch_ends_is_not_in_the_next_one() -> None:
    finished_ns, _ = serve_in_turn(np.array([0, 5, 10]) * MS, 1, TABLE_NS, 4)
    assert (finished_ns // MS).tolist() == [10, 20, 30]


def test_simultaneous_requests_at_an_idle_device_run_one_and_then_the_others() -> None:
    finished_ns, _ = serve_in_turn(np.zeros(3, dtype=np.int64), 1, TABLE_NS, 4)
    assert (finished_ns // MS).tolist() == [10, 21, 21]


def test_nothing_to_serve_takes_no_time() -> None:
    finished_ns, busy_ns = serve_in_turn(np.zeros(0, dtype=np.int64), 3, TABLE_NS, 4)
    assert (len(finished_ns), busy_ns) == (0, 0)


@RANDOM
@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 1000))
def test_devices_in_turn_are_what_the_simulator_of_gear_plans_gives(devices: int, largest: int, seed: int) -> None:
    arrivals_ns = np.sort(np.random.default_rng(seed).integers(0, 50 * devices * MS, 200))
    workload = Workload(arrivals_ns=arrivals_ns, record=np.zeros(200, dtype=np.int32), duration_s=1.0)
    hardware = identical_devices(devices)
    replicas = tuple(Replica(id=f"r{d.id}", model="m0", device_ids=(d.id,)) for d in hardware.devices)
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades=alone("task", Cascade(models=("m0",))),
        replicas=tuple(
            ReplicaSettings(replica=r.id, load_share=1 / devices, largest_batch_size=largest) for r in replicas
        ),
    )
    nothing = SourceFile(path="", sha256="")
    plan = GearPlan(
        planner="test",
        hardware=hardware,
        placement=Placement(replicas=replicas),
        pipelines={
            "task": PipelinePlan(
                nodes={"task": Node(operator="task")}, output="task", objective=Objective(), gears=(gear,)
            )
        },
        profiles={"task": nothing},
        traces={"task": nothing},
    )
    finished_ns, _ = serve_in_turn(arrivals_ns, devices, PROFILE.curves[0].table_ns(), largest)
    assert finished_ns.tolist() == simulate(plan, PROFILE, workload).finished_ns.tolist()


def test_a_device_carries_no_more_than_its_highest_throughput() -> None:
    curve = PROFILE.curves[0]
    highest = 32 / (curve.seconds(32) + curve.overhead_per_batch_s)
    assert 0.8 * highest < capacity_within(curve, 1.0, 0.95, seed=0).qps < highest
    assert capacity_within(curve, 0.0020, 0.95, seed=0).qps == 0
    assert 0 < capacity_within(curve, 0.005, 0.95, seed=0).qps < 0.8 * highest


# Votes ----------------------------------------------------------------------------------------------------------------


def naive_vote(predictions: NDArray[Any]) -> list[int]:
    winners = []
    for votes in predictions.T.tolist():
        most = max(Counter(votes).values())
        winners.append(next(m for m, vote in enumerate(votes) if votes.count(vote) == most))
    return winners


@RANDOM
@given(st.integers(1, 6), st.integers(1, 20), st.integers(1, 4), st.integers(0, 1000))
def test_a_majority_vote_is_that_of_counting(models: int, samples: int, classes: int, seed: int) -> None:
    predictions = np.random.default_rng(seed).integers(0, classes, (models, samples)).astype(str)
    assert majority_vote(predictions).tolist() == naive_vote(predictions)


def test_a_vote_without_a_majority_goes_to_the_first_model() -> None:
    assert majority_vote(np.array([["a", "a"], ["b", "b"], ["c", "b"]])).tolist() == [0, 1]


def test_models_that_are_wrong_on_different_samples_are_right_together() -> None:
    assert PROFILE.predictions.quality.mean(axis=1).tolist() == pytest.approx([0.9, 0.9, 0.9])
    assert voted_quality(PROFILE.predictions, PROFILE.models).all()


def test_ensembles_that_are_no_better_than_a_part_of_them_are_left_out() -> None:
    """Two models cannot outvote each other."""
    found = {e.models: e.accuracy for e in useful_ensembles(PROFILE.predictions, PROFILE.models)}
    assert found == {("m0",): 0.9, ("m1",): 0.9, ("m2",): 0.9, ("m0", "m1", "m2"): 1.0}


def test_ensembles_are_judged_on_part_a() -> None:
    records = PROFILE.predictions
    quality = np.where(records.part == PART_A, records.quality, 0.0)
    changed = dataclasses.replace(records, quality=quality)
    assert useful_ensembles(changed, PROFILE.models) == useful_ensembles(records, PROFILE.models)


# Serving --------------------------------------------------------------------------------------------------------------


def test_a_request_is_answered_when_the_slowest_member_is_done() -> None:
    run = served(1, accuracy=1.0)
    assert run.arrangements[0].ensemble.models == ("m0", "m1", "m2")
    assert run.latency_s.tolist() == pytest.approx([0.0081] * 10)
    assert run.result.accuracy == 1.0


def test_the_ensemble_is_the_one_that_needs_the_fewest_devices() -> None:
    run = served(500)
    assert run.arrangements[0].ensemble.models == ("m0",)
    assert run.result.accuracy == pytest.approx(0.9, abs=0.01)


def test_without_an_accuracy_objective_the_ensemble_is_the_most_accurate() -> None:
    assert served(10, accuracy=None).arrangements[0].ensemble.models == ("m0", "m1", "m2")


def test_devices_follow_the_load_up_after_loading_and_down_at_once() -> None:
    run = served(100, 2000, 100)
    assert [(a.asked_s, a.from_s) for a in run.arrangements] == [(0, 0), (10, 12), (20, 20)]
    few, many, again = (a.devices[0] for a in run.arrangements)
    assert few == again < many == run.peak_devices == run.result.devices
    assert run.device_s == pytest.approx(20 * few + 10 * many)
    assert run.mean_devices == pytest.approx(run.device_s / 30)


def test_while_models_load_requests_wait() -> None:
    waiting, loaded = served(100, 2000, 100), served(100, 2000, 100, load_s=0.0)
    assert loaded.result.share_late < 0.02 < waiting.result.share_late
    arrival_s = trace_of(100, 2000, 100).arrivals_ns / 1e9
    assert waiting.latency_s[arrival_s < 10].max() < 0.1 < waiting.latency_s[(arrival_s > 11) & (arrival_s < 12)].min()


def test_while_another_ensemble_loads_both_are_paid_for() -> None:
    """Little load is carried by one device of the most accurate model, much load by few of the fastest."""
    profile = synthetic_profile(models=3, samples=1000)
    prediction = np.where(profile.predictions.quality == 1, "right", "wrong")
    records = dataclasses.replace(profile.predictions, prediction=prediction)
    run = serve_cocktail(
        dataclasses.replace(profile, predictions=records),
        trace_of(10, 3000),
        Objective(latency_s=0.1, accuracy=0.65),
        load_s=2.0,
        period_s=10.0,
    )
    low, high = run.arrangements
    assert (low.ensemble.models, low.devices, high.ensemble.models) == (("m2",), (1,), ("m0",))
    many = high.devices[0]
    assert run.device_s == pytest.approx(10 * 1 + 2 * (1 + many) + 8 * many)
    assert run.peak_devices == 1 + many


def test_a_margin_gives_as_many_times_the_devices() -> None:
    assert served(2000, margin=4.0).peak_devices in range(
        3 * served(2000).peak_devices, 4 * served(2000).peak_devices + 1
    )


def test_figures_are_of_part_b_and_the_same_each_time() -> None:
    assert served(100, 700).result == served(100, 700).result
    records = PROFILE.predictions
    wrong_on_b = dataclasses.replace(records, quality=np.where(records.part == PART_A, records.quality, 0.0))
    run = serve_cocktail(
        dataclasses.replace(PROFILE, predictions=wrong_on_b), trace_of(100), Objective(latency_s=0.1, accuracy=0.85)
    )
    assert run.result.accuracy == 0.0


def test_utilisation_is_of_the_devices_held() -> None:
    run = served(100, accuracy=1.0)
    assert set(run.result.utilisation) == {"m0", "m1", "m2"}
    assert run.result.utilisation["m0"] == pytest.approx(100 * 0.0021, rel=0.1)


def test_a_trace_shorter_than_a_second_is_served() -> None:
    run = serve_cocktail(PROFILE, Trace(np.zeros(1, dtype=np.int64), 0.0), Objective(latency_s=0.1))
    assert (run.peak_devices, run.mean_devices) == (3, 3)


def test_models_that_do_not_fit_the_device_are_left_out() -> None:
    curves = tuple(
        msgspec.structs.replace(curve, memory_bytes=1 + 8 * (curve.model != "m1")) for curve in PROFILE.curves
    )
    run = serve_cocktail(
        dataclasses.replace(PROFILE, curves=curves),
        trace_of(10),
        Objective(latency_s=0.1),
        device=Device(id="d", memory_bytes=4),
    )
    assert run.arrangements[0].ensemble.models == ("m1",)


# The fewest devices ---------------------------------------------------------------------------------------------------


def test_the_fewest_devices_meet_the_objective_and_are_no_more_than_any_margin_that_does() -> None:
    trace, objective = trace_of(400, 1500, 600), Objective(latency_s=0.1, accuracy=0.85)
    best = fewest_devices_cocktail(PROFILE, trace, objective, load_s=0.5, periods_s=(5.0, 10.0))
    assert best.result.share_late <= 0.05
    for period_s in (5.0, 10.0):
        for margin in (1.0, 1.5, 2.0, 4.0):
            run = serve_cocktail(PROFILE, trace, objective, load_s=0.5, period_s=period_s, margin=margin)
            assert run.result.share_late > 0.05 or run.mean_devices >= best.mean_devices


def test_a_higher_accuracy_takes_more_devices() -> None:
    trace = trace_of(100, 1000)
    counts = [
        fewest_devices_cocktail(PROFILE, trace, Objective(latency_s=0.1, accuracy=a), load_s=0.0).mean_devices
        for a in (0.85, 0.95)
    ]
    assert counts[1] >= 3 * counts[0]


def test_loading_that_takes_too_long_for_any_margin_is_infeasible() -> None:
    with pytest.raises(Infeasible, match=r"models take 9 s to load, and no autoscaling keeps 0.95 of requests within"):
        fewest_devices_cocktail(
            PROFILE, trace_of(10, 3000), Objective(latency_s=0.05, accuracy=0.85), load_s=9.0, periods_s=(10.0,)
        )


# What is asked --------------------------------------------------------------------------------------------------------


def without_predictions() -> Profile:
    return dataclasses.replace(PROFILE, predictions=dataclasses.replace(PROFILE.predictions, prediction=None))


def many_models() -> PredictionRecords:
    names, ones = tuple(f"m{k}" for k in range(13)), np.ones((13, 2))
    part = np.array([0, 1], dtype=np.int8)
    return PredictionRecords(models=names, quality=ones, certainty=ones, part=part, prediction=ones.astype(str))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"load_s": -1.0}, "load_s is -1.0; give a number of seconds from 0"),
        ({"period_s": 1.5}, "a period of 1.5 s is too short; give at least 2 s: a second, and the time in which"),
        ({"margin": 0.0}, "margin is 0.0; give a positive number"),
        ({"device": Device(id="d", kind="tpu")}, "the profile has no run times of model 'm0' on device kind 'tpu'"),
    ],
)
def test_settings_that_cannot_be_served_name_the_value(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        served(10, **changed)
    assert str(caught.value).startswith(sentence)


def test_a_profile_without_predictions_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidInput, match="records: the profile has no predictions, which an ensemble needs to vote;"):
        serve_cocktail(without_predictions(), trace_of(10), Objective(latency_s=0.1))


def test_a_latency_objective_is_needed() -> None:
    with pytest.raises(InvalidInput, match="Cocktail\\+ needs a latency objective; give a latency"):
        serve_cocktail(PROFILE, trace_of(10), Objective(accuracy=0.8))


def test_too_many_models_are_refused() -> None:
    records = many_models()
    with pytest.raises(InvalidInput, match="the ensembles of 13 models are too many to look at"):
        useful_ensembles(records, records.models)


def test_no_periods_are_refused() -> None:
    with pytest.raises(InvalidInput, match="there are no periods to choose from"):
        fewest_devices_cocktail(PROFILE, trace_of(10), Objective(latency_s=0.1), periods_s=())


@pytest.mark.parametrize(
    ("objective", "sentence"),
    [
        (Objective(latency_s=0.001), "no model answers 0.95 of requests within 1 ms, however many devices there are"),
        (
            Objective(latency_s=0.003, accuracy=0.95),
            "no ensemble within 3 ms has an accuracy of 0.95; the best has 0.9",
        ),
    ],
)
def test_what_no_ensemble_meets_is_infeasible(objective: Objective, sentence: str) -> None:
    with pytest.raises(Infeasible) as caught:
        serve_cocktail(PROFILE, trace_of(10), objective)
    assert str(caught.value).startswith(sentence)


def test_a_request_also_takes_the_front_ends_time() -> None:
    trace, fronted = trace_of(100, 300), dataclasses.replace(PROFILE, front_end_s=0.01)
    bare = serve_cocktail(PROFILE, trace, Objective(latency_s=0.05))
    found = serve_cocktail(fronted, trace, Objective(latency_s=0.06))
    assert found.arrangements == bare.arrangements
    assert found.latency_s == pytest.approx(bare.latency_s + 0.01)
