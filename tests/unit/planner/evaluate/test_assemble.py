import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput
from gearshift.gear import Gear, LoadRange, SourceFile, alone
from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.objective import Objective
from gearshift.planner.evaluate.assemble import (
    DEFAULT_ALPHA,
    assemble,
    curves_of,
    replica_settings,
    rounded_up_s,
    with_objective,
)
from gearshift.planner.evaluate.confirm import SEEDS, replay, with_predictions
from gearshift.planner.space.beside import without_idle_models
from gearshift.planner.space.hosts import place_everywhere
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.verbs.simulate import simulate
from tests.unit.planner.little import PROFILE, little_request
from tests.unit.planner.spanning import mixed, spanning_profile
from tests.worlds import BATCH_SIZES, synthetic_profile

HARDWARE = identical_devices(2)
PLACEMENT = place_everywhere(PROFILE, HARDWARE)
CASCADE = Cascade(models=("m0", "m2"), thresholds=(0.2,))
LARGEST = BATCH_SIZES[-1]
OF_MODEL = {m: [r.id for r in PLACEMENT.replicas if r.model == m] for m in PROFILE.models}


def settings_with(**changed: object) -> dict[str, tuple[float, int, int, float]]:
    """By replica id: load share, minimum queue length, largest batch, longest wait."""
    every = [r.id for r in PLACEMENT.replicas]
    options = {"shares": dict.fromkeys(every, 0.5), "largest_batch_size": 8, **changed}
    made = replica_settings(PROFILE, HARDWARE, PLACEMENT, CASCADE, **options)  # type: ignore[arg-type]
    assert [s.replica for s in made] == every
    return {s.replica: (s.load_share, s.minimum_queue_length, s.largest_batch_size, s.longest_wait_s) for s in made}


def test_models_that_no_gear_uses_are_not_placed_and_nothing_else_changes() -> None:
    request = little_request()
    placement = place_everywhere(request.profile, request.hardware)
    settings = replica_settings(
        request.profile, request.hardware, placement, CASCADE, shares={r.id: 1.0 for r in placement.replicas},
        largest_batch_size=8,
    )  # fmt: skip
    gear = Gear(load_range=LoadRange(from_=0.0, to=None), cascades=alone("task", CASCADE), replicas=settings)
    made = assemble(request, placement, [gear], planner="p")
    kept = without_idle_models(made)
    assert made.placement.models == ("m0", "m1", "m2")
    assert kept.placement.models == ("m0", "m2")
    assert without_idle_models(kept) is kept
    before, after = (simulate(plan, request.trace, profile=request.profile) for plan in (made, kept))
    assert np.array_equal(before.latency_s, after.latency_s, equal_nan=True)


def test_replicas_of_models_outside_the_cascade_have_no_share_and_wait_for_nothing() -> None:
    every = [r.id for r in PLACEMENT.replicas]
    made = settings_with(minimum_queue_length=dict.fromkeys(every, 4), longest_wait_s=dict.fromkeys(every, 0.3))
    for model, ids in OF_MODEL.items():
        for id_ in ids:
            assert made[id_] == ((0.0, 1, 8, 0.0) if model == "m1" else (0.5, 4, 8, 0.3))


def test_what_is_not_said_is_no_share_no_wait_and_a_queue_of_one() -> None:
    used, other = OF_MODEL["m0"]
    made = settings_with(shares={used: 1.0}, minimum_queue_length={used: 0}, longest_wait_s={})
    assert made[used] == (1.0, 1, 8, 0.0)
    assert made[other] == (0.0, 1, 8, 0.0)


@pytest.mark.parametrize(("asked", "given"), [(1, 1), (LARGEST, LARGEST), (LARGEST + 1, LARGEST), (10_000, LARGEST)])
def test_batches_are_capped_at_what_was_profiled(asked: int, given: int) -> None:
    assert {largest for _, _, largest, _ in settings_with(largest_batch_size=asked).values()} == {given}


def test_settings_name_the_cores_of_their_replicas() -> None:
    made = replica_settings(PROFILE, HARDWARE, PLACEMENT, CASCADE, shares={}, largest_batch_size=1)
    assert [s.cores for s in made] == [r.cores for r in PLACEMENT.replicas]


def test_run_times_are_those_of_the_kind_that_a_replica_is_on_and_of_the_devices_that_it_spans() -> None:
    profile, hardware = spanning_profile(), mixed()
    placement = place_everywhere(profile, hardware)
    curves, kind = curves_of(profile, hardware, placement), {d.id: d.kind for d in hardware.devices}
    assert curves.keys() == {r.id for r in placement.replicas}
    found = [(r.model, kind[r.device_ids[0]], r.tensor_parallel) for r in placement.replicas]
    assert [(c.model, c.device_kind, c.tensor_parallel) for c in curves.values()] == found
    assert {k for _, k, _ in found} == {"gpu", "old"}
    assert {t for _, _, t in found} > {1}


def test_a_kind_that_was_not_measured_is_refused() -> None:
    other = Hardware(devices=tuple(Device(id=d.id, kind="tpu", memory_bytes=d.memory_bytes) for d in HARDWARE.devices))
    with pytest.raises(InvalidInput, match="tpu"):
        curves_of(PROFILE, other, PLACEMENT)


# Plans ----------------------------------------------------------------------------------------------------------------

SOURCES = {
    "profile_source": SourceFile(path="profile", sha256="1" * 64),
    "trace_source": SourceFile(path="trace.csv", sha256="2" * 64),
}


def gear(node: str = "task") -> Gear:
    shares = {r.id: 1 / len(OF_MODEL[r.model]) for r in PLACEMENT.replicas}
    settings = replica_settings(PROFILE, HARDWARE, PLACEMENT, CASCADE, shares=shares, largest_batch_size=4)
    return Gear(load_range=LoadRange(from_=0.0), cascades=alone(node, CASCADE), replicas=settings)


def request(**changed: object) -> PlanRequest:
    return little_request(hardware=HARDWARE, **{"seed": 7, **SOURCES, **changed})


def test_a_plan_says_what_was_asked_for_and_by_whom_it_was_made() -> None:
    asked = request()
    made = assemble(asked, PLACEMENT, [gear()], planner="by hand", alpha=2.0, meter="alpha")
    operator = made.pipelines["task"]
    assert (made.planner, made.seed, made.unfinished, made.predictions) == ("by hand", 7, False, {})
    assert (made.hardware, made.placement) == (HARDWARE, PLACEMENT)
    assert (made.profile, made.trace) == (SOURCES["profile_source"], SOURCES["trace_source"])
    assert (operator.objective, operator.gears) == (asked.objective, (gear(),))
    assert (operator.alpha, operator.meter) == (2.0, "alpha")


def test_load_is_metered_with_the_backlog_unless_said_otherwise() -> None:
    operator = assemble(request(), PLACEMENT, [gear()], planner="by hand").pipelines["task"]
    assert (operator.alpha, operator.meter) == (DEFAULT_ALPHA, "backlog") == (8.0, "backlog")


@pytest.mark.parametrize(("latency_s", "starvation_s"), [(0.03, 0.3), (1.0, 10.0), (1e6, 1e5), (None, None)])
def test_nobody_starves_longer_than_ten_times_the_objective(
    latency_s: float | None, starvation_s: float | None
) -> None:
    made = assemble(request(objective=Objective(latency_s=latency_s)), PLACEMENT, [gear()], planner="by hand")
    assert made.pipelines["task"].starvation_s == (None if starvation_s is None else pytest.approx(starvation_s))


def test_another_objective_changes_that_and_who_starves_and_nothing_else() -> None:
    before = assemble(request(), PLACEMENT, [gear()], planner="by hand", alpha=2.0, meter="alpha")
    asked = Objective(latency_s=0.5, percentile=0.9, scope="trace")
    after = with_objective(before, asked)
    assert after.pipelines["task"].objective == asked
    assert after.pipelines["task"].starvation_s == 5.0
    assert with_objective(after, before.pipelines["task"].objective) == before


# Replays --------------------------------------------------------------------------------------------------------------


def test_a_replay_judges_the_plan_by_the_requests_objective() -> None:
    made = assemble(request(), PLACEMENT, [gear()], planner="by hand")
    loose, tight = (replay(made, request(latency_s=s), part=PART_B) for s in (1.0, 0.002))
    assert len(loose.share_late) == SEEDS
    assert loose.share_late.max() == 0.0
    assert tight.share_late.min() > 0.1
    high = replay(made, request(objective=Objective(latency_s=1.0, percentile=0.99)), part=PART_B, seeds=2)
    assert len(high.latency_s) == 2
    assert (high.latency_s > loose.latency_s[:2]).all()


def test_predictions_are_of_part_b() -> None:
    made = assemble(request(), PLACEMENT, [gear()], planner="by hand")
    predicted = with_predictions(made, request()).predictions
    assert predicted == {"task": replay(made, request(), part=PART_B).result}
    assert predicted["task"] != replay(made, request(), part=PART_A).result


def test_the_operator_has_the_profiles_name() -> None:
    named = synthetic_profile(models=3, samples=1000, fastest_s=0.001)
    asked = request(profile=dataclasses.replace(named, operator="mail"))
    made = assemble(asked, PLACEMENT, [gear("mail")], planner="by hand")
    assert made.pipelines.keys() == {"mail"}
    assert with_predictions(made, asked).predictions.keys() == {"mail"}
    assert with_objective(made, Objective(latency_s=1.0)).pipelines.keys() == {"mail"}


# Rounding -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "digits", "rounded"),
    [(0.0123, 2, 0.013), (0.0123, 3, 0.0124), (0.0999, 2, 0.1), (1.01, 2, 1.1), (7.0, 2, 7.1), (0.00012345, 1, 0.0002)],
)
def test_objectives_are_rounded_up(seconds: float, digits: int, rounded: float) -> None:
    assert rounded_up_s(seconds, digits=digits) == pytest.approx(rounded)


@given(st.floats(1e-6, 1e6), st.integers(1, 4))
def test_a_rounded_objective_is_never_less_and_hardly_more(seconds: float, digits: int) -> None:
    rounded = rounded_up_s(seconds, digits=digits)
    unit_ms = 10.0 ** (math.floor(math.log10(seconds * 1e3)) - digits + 1)
    assert seconds <= rounded <= seconds + 1.001 * unit_ms / 1e3
    assert rounded * 1e3 / unit_ms == pytest.approx(round(rounded * 1e3 / unit_ms))
