"""Scalers that are there to be compared with, for a plan of one model."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gearshift.decisions import Ending
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.plans.plan_file import read_plan
from gearshift.policies.cores.demand import Scaling
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile
from gearshift.simulator.simulate import Simulation, simulate
from gearshift.workload import Workload
from tests.scaled_task import scaled_plan, write_scaled_cascade, write_scaled_task

MS, S = 1_000_000, 1_000_000_000
FA2, VPA = Scaling(scaler="fa2"), Scaling(scaler="vpa")


@pytest.fixture
def one_core(tmp_path: Path) -> tuple[GearPlan, Profile]:
    """`net` on a device of one core, where a batch of one takes 24 ms and one of four 72 ms."""
    write_scaled_task(tmp_path)
    profile = read_profile(tmp_path / "profile")
    return scaled_plan(profile.sha256, cores=1), profile


def workload(qps: int, *, left_ms: int | None = 900, seconds: int = 20) -> Workload:
    arrivals_ns = np.arange(qps * seconds) * S // qps
    return Workload(
        arrivals_ns=arrivals_ns,
        record=np.arange(qps * seconds, dtype=np.int32) % 20,
        duration_s=float(seconds),
        deadline_ns=None if left_ms is None else arrivals_ns + left_ms * MS,
    )


def test_a_horizontal_scaler_serves_with_more_only_after_their_cold_start(one_core: tuple[GearPlan, Profile]) -> None:
    run = simulate(*one_core, workload(100), scaling=FA2, scaler_cores=4)
    assert run.held[:, 1].tolist() == [1, 2]  # 100 a second at 18 ms each
    asked_ns = int(run.held[1, 0])
    assert S <= asked_ns <= S + 100 * MS
    refused_ns = run.workload.arrivals_ns[run.ended == Ending.INFEASIBLE]
    assert len(refused_ns) > 100
    assert refused_ns.max() < asked_ns + 11 * S  # whoever waited when the second began
    assert run.core_s == pytest.approx(2 * run.duration_s - asked_ns / S)
    result = run.result(one_core[1], latency_objective_s=None)
    assert result.share_refused == len(refused_ns) / 2000
    assert result.requests == 2000


def test_a_scaler_by_utilisation_adds_cores_until_seven_tenths_are_busy(one_core: tuple[GearPlan, Profile]) -> None:
    run = simulate(*one_core, workload(100), scaling=VPA, scaler_cores=4)
    assert run.held[:3, 1].tolist() == [1, 2, 3]
    assert run.result(one_core[1], latency_objective_s=None).accuracy == 1
    assert 0 < run.busy_s[0] < run.duration_s
    idle = simulate(*one_core, workload(5), scaling=VPA, scaler_cores=4)
    assert idle.held[:, 1].tolist() == [1]


def test_the_plans_objective_is_the_deadline_of_requests_without_one(one_core: tuple[GearPlan, Profile]) -> None:
    by_objective = simulate(*one_core, workload(100, left_ms=None), scaling=VPA)
    by_deadline = simulate(*one_core, workload(100, left_ms=1000), scaling=VPA)
    assert by_objective.finished_ns.tolist() == by_deadline.finished_ns.tolist()


def test_requests_wait_for_the_router_that_the_profile_has_measured_but_not_where_cores_are_shared(
    one_core: tuple[GearPlan, Profile],
) -> None:
    plan, profile = one_core
    busy, load = replace(profile, front_end_s=0.05, router_s=0.04), workload(6)
    alone_s, served_s = simulate(plan, profile, load).latency_s, simulate(plan, busy, load).latency_s
    assert served_s == pytest.approx(alone_s + 0.05), "six a second, at 40 ms each, never meet at the router"
    crowd = workload(30, seconds=2, left_ms=None)
    assert simulate(plan, busy, crowd).latency_s.mean() > simulate(plan, profile, crowd).latency_s.mean() + 0.15, (
        "25 at most"
    )
    ours = Scaling()
    shared = [simulate(plan, one, load, scaling=ours, scaler_cores=1).latency_s for one in (profile, busy)]
    assert shared[1] == pytest.approx(shared[0] + 0.05)


def test_the_kernel_agrees_where_nothing_is_scaled(one_core: tuple[GearPlan, Profile]) -> None:
    """Six a second never wait, so that both answer each at once."""
    vertical = simulate(*one_core, workload(6), scaling=VPA)
    plain = simulate(*one_core, workload(6))
    assert vertical.held[:, 1].tolist() == [1]
    assert vertical.latency_s.tolist() == plain.latency_s.tolist()
    assert vertical.batches.tolist() == plain.batches.tolist()
    assert vertical.busy_s == pytest.approx(plain.busy_s)


def refused(plan: GearPlan, profile: Profile, load: Workload, reason: str, **how: object) -> None:
    with pytest.raises(InvalidInput, match=reason):
        simulate(plan, profile, load, scaling=FA2, **how)  # type: ignore[arg-type]


def test_what_it_does_not_know_is_refused(one_core: tuple[GearPlan, Profile], tmp_path: Path) -> None:
    refused(*one_core, workload(5), "keeps no log", log_rows=10)
    refused(*one_core, workload(5), "keeps no log", late="answer")
    rows = workload(5)
    pairs = Workload(
        arrivals_ns=rows.arrivals_ns // (400 * MS) * (400 * MS),
        record=rows.record,
        duration_s=rows.duration_s,
        continues=np.arange(100) % 2 == 1,
    )
    refused(*one_core, pairs, "requests of one row only")
    write_scaled_cascade(tmp_path, devices=1, cores=1)
    plan, profile = read_plan(tmp_path / "plan.json"), read_profile(tmp_path / "profile")
    refused(plan, profile, workload(5), "one model on one worker, the plan has more; compare with --scaler exact")
    refused(*one_core, workload(5), "begins with 1 cores, and replicas share 0", scaler_cores=0)


def test_without_an_objective_a_deadline_is_needed(one_core: tuple[GearPlan, Profile]) -> None:
    plan, profile = one_core
    operator = plan.pipelines["numbers"]
    objective = msgspec.structs.replace(operator.objective, latency_s=None)
    free = msgspec.structs.replace(plan, pipelines={"numbers": msgspec.structs.replace(operator, objective=objective)})
    refused(free, profile, workload(5, left_ms=None), "fa2 needs a deadline; give --slo-ms")
    assert isinstance(simulate(free, profile, workload(5), scaling=FA2), Simulation)
