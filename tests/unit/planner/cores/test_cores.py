import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import gearshift
from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner.contract.planner import SoFar
from gearshift.planner.cores import cores
from gearshift.planner.cores.core_splits import CoreSplits, on_every_count
from gearshift.planner.cores.cores import Option
from gearshift.planner.evaluate.spike_recovery import confirmed_to_recover
from gearshift.planner.space.cascade_search import evaluate_cascade
from gearshift.planner.space.request import PlanRequest, silent
from gearshift.plans.plan_file import encode_plan
from gearshift.profiles.profile import PART_A
from gearshift.simulator.simulate import simulate
from gearshift.verbs.common.inputs import workload_of
from gearshift.verbs.planning.hardware import host_of
from tests.unit.planner.little import PROFILE, little_trace
from tests.worlds import on_core_counts, synthetic_profile

SLOW = synthetic_profile(models=2, samples=600, fastest_s=0.01)
MEASURED = on_core_counts(SLOW, (1, 2, 4))
TRACE = little_trace(low_qps=20.0, high_qps=120.0)
ASKED: dict[str, Any] = {"cores": 8, "latency_s": 0.2, "accuracy": 0.74, "ranges": 3}


@lru_cache
def planned(**changed: Any) -> GearPlan:
    return gearshift.plan(MEASURED, TRACE, **(ASKED | changed))


def test_every_gear_splits_the_cores_and_holds_the_objective() -> None:
    made = planned()
    (operator,) = made.pipelines.values()
    assert made.hardware.pool_cores == 8
    assert all(sum(s.cores for s in gear.replicas) <= 8 for gear in operator.gears)
    assert all(gear.predicted is not None and gear.predicted.latency_p95_s <= 0.2 for gear in operator.gears)
    predicted = made.predictions["task"]
    assert predicted.accuracy >= 0.74
    assert predicted.share_late <= 0.05


def test_core_seconds_follow_the_load_and_are_what_simulation_says() -> None:
    made = planned()
    (operator,) = made.pipelines.values()
    held = [sum(s.cores for s in gear.replicas) for gear in operator.gears]
    assert held[0] < held[-1]
    run = gearshift.simulate(made, TRACE, profile=MEASURED)
    gears = [(0.0, 0), *((at / 1e9, gear) for at, gear in run.shifts.tolist()), (run.duration_s, 0)]
    expected = sum(held[gear] * (until - at) for (at, gear), (until, _) in itertools.pairwise(gears))
    assert run.core_s == pytest.approx(expected)
    assert run.result(MEASURED, latency_objective_s=0.2).core_s == pytest.approx(expected)
    assert expected < 0.9 * held[-1] * run.duration_s


def test_batches_take_the_time_of_the_cores_of_the_gear_in_force() -> None:
    made = planned()
    slow = simulate(made, MEASURED, workload_of(MEASURED, little_trace(low_qps=1.0, high_qps=1.0)))
    (operator,) = made.pipelines.values()
    gear = operator.gears[0]
    first = gear.cascade.models[0]
    cores = next(s.cores for s in gear.replicas if s.replica.startswith(first))
    alone_s = on_every_count(MEASURED, 8).curve(first, device_kind="cpu", cores=cores).table_ns()[1] / 1e9
    assert float(slow.latency_s.min()) == pytest.approx(alone_s, rel=1e-6)


def test_the_same_request_gives_the_same_bytes() -> None:
    assert encode_plan(planned()) == encode_plan(gearshift.plan(MEASURED, TRACE, **ASKED))


def test_a_higher_accuracy_never_takes_fewer_core_seconds_in_steady_loads() -> None:
    def held(made: GearPlan) -> float:
        (operator,) = made.pipelines.values()
        assert operator.planned_load is not None
        shares = operator.planned_load.shares
        return sum(w * sum(s.cores for s in g.replicas) for w, g in zip(shares, operator.gears, strict=True))

    assert held(planned(accuracy=0.7)) <= held(planned())


@pytest.mark.parametrize("accuracy", [0.7252, 0.73])
def test_no_choice_is_confirmed_twice(accuracy: float, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []

    def confirm(made: GearPlan, request: PlanRequest, **how: Any) -> GearPlan | None:
        tried.append(encode_plan(made))
        return confirmed_to_recover(made, request, **how)

    monkeypatch.setattr(cores, "confirmed_to_recover", confirm)
    gearshift.plan(MEASURED, TRACE, **(ASKED | {"accuracy": accuracy}))
    assert len(tried) == len(set(tried)) <= 10


@pytest.mark.long
def test_the_first_choice_for_a_margin_is_made_once_for_all_alphas() -> None:
    asked: list[tuple[float, float | None]] = []

    class Refused(cores._Search):
        def chosen(self, margin: float, accuracy: float | None) -> list[Option] | None:
            asked.append((margin, accuracy))
            return super().chosen(margin, accuracy)

        def tried(self, chosen: Sequence[Option], margin: float, alpha: float) -> GearPlan | None:
            return None

    objective = Objective(latency_s=0.2, accuracy=0.74)
    request = PlanRequest(profile=MEASURED, trace=TRACE, hardware=host_of(MEASURED, 8), objective=objective, ranges=3)
    assert Refused(SoFar(request, silent)).confirmed(0.74) is None
    assert len(asked) == len(set(asked)) > 2


def test_every_model_alone_is_a_choice_as_it_needs_no_core_for_another() -> None:
    """A cascade before it may be as accurate with less work, and leave it out of the front of these two."""
    request = PlanRequest(
        profile=MEASURED,
        trace=TRACE,
        hardware=host_of(MEASURED, 8),
        objective=Objective(latency_s=0.2, accuracy=0.74),
        most_candidates=2,
    )
    alone = {c.cascade.models for c in cores._Search(SoFar(request, silent)).candidates if len(c.cascade.models) == 1}
    assert alone == {(model,) for model in MEASURED.models}


@pytest.mark.long
def test_ranges_may_be_visited_by_zipfs_law() -> None:
    (operator,) = planned(load="zipf").pipelines.values()
    assert operator.planned_load is not None
    assert operator.planned_load.shares == pytest.approx((6 / 11, 3 / 11, 2 / 11), abs=1e-5)


def test_a_spent_budget_leaves_no_plan_or_an_unfinished_one() -> None:
    with pytest.raises(Infeasible, match="no plan was found within the budget"):
        gearshift.plan(MEASURED, TRACE, **ASKED, budget_s=1e-6)


def test_splits_that_are_left_out_do_not_hold() -> None:
    profile = on_every_count(MEASURED, 4)
    cascade = Cascade(models=("m0", "m1"), thresholds=(float(np.median(SLOW.predictions.certainty[0])),))
    candidate = evaluate_cascade(cascade, profile.predictions, {"m0": 1.0, "m1": 1.0}, part=PART_A)
    splits = CoreSplits(profile, Objective(latency_s=0.15), 8, 0)
    left_out = 0
    for qps in (5.0, 90.0, 200.0):
        offered = [tuple(split.tolist()) for split in splits.promising(candidate, qps)]
        assert [sum(split) for split in offered] == sorted(sum(split) for split in offered)
        holding = [s for s in itertools.product(range(1, 5), repeat=2) if splits.holds(candidate, s, qps)]
        assert holding
        assert set(holding) <= set(offered)
        left_out += 16 - len(offered)
    assert left_out > 0


def test_counts_of_cores_between_the_measured_are_filled() -> None:
    profile = on_every_count(MEASURED, 3)
    assert sorted({curve.cores for curve in profile.curves}) == [1, 2, 3]
    two, three = (profile.curve("m0", device_kind="cpu", cores=cores).median_s for cores in (2, 3))
    assert all(b < a for a, b in zip(two, three, strict=True))


@pytest.mark.parametrize(
    ("profile", "changed", "says"),
    [
        (PROFILE, {}, "profile it with `--cores 1,2,4`"),
        (on_core_counts(SLOW, (2, 4)), {}, "profiled on 2 cores and more"),
        (MEASURED, {"accuracy": None}, "give a latency and an accuracy"),
        (MEASURED, {"cores": 0}, "0 cores asked for; ask for 1 to 4096"),
    ],
)
def test_what_cannot_be_planned_is_said(profile: Any, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        gearshift.plan(profile, TRACE, **(ASKED | changed))


def test_a_load_that_no_split_holds_names_range_and_bottleneck() -> None:
    with pytest.raises(Infeasible, match=r"no cascade keeps 0\.95 of requests within 5 ms on 8 cores") as error:
        planned(latency_s=0.005)
    assert (error.value.load_range, error.value.bottleneck) == ("[0, 52.4)", "m0")


@pytest.mark.long
def test_an_accuracy_out_of_reach_names_one_that_is_confirmed() -> None:
    with pytest.raises(Infeasible, match=r"accuracy of 0\.95 within 200 ms") as error:
        planned(accuracy=0.95)
    nearest = error.value.nearest_accuracy
    assert nearest is not None
    assert planned(accuracy=nearest).predictions["task"].accuracy >= nearest
