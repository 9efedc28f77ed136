"""A scaler in the simulator; `tests/conformance` holds its decisions to the router's."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from gearshift.decisions import Decision, Ending
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import identical_devices
from gearshift.plans.plan_file import read_plan
from gearshift.policies.cores.demand import Scaling
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile
from gearshift.simulator.simulate import Simulation, simulate
from gearshift.workload import Workload
from tests.scaled_task import write_scaled_cascade

MS = 1_000_000
EXACT = Scaling(period_s=0.1)


@pytest.fixture
def cascade(tmp_path: Path) -> tuple[GearPlan, Profile]:
    """`net`, then `big` for every other sample, in turns on one device of one core."""
    write_scaled_cascade(tmp_path, devices=1, cores=1, most_net=3)
    return read_plan(tmp_path / "plan.json"), read_profile(tmp_path / "profile")


def served(cascade: tuple[GearPlan, Profile], *, left_ms: int, **how: object) -> Simulation:
    """Ten requests a second for three seconds, each with `left_ms` to be answered in."""
    arrivals_ns = np.arange(30) * 100 * MS
    workload = Workload(
        arrivals_ns=arrivals_ns,
        record=np.arange(30, dtype=np.int32) % 20,
        duration_s=3.0,
        deadline_ns=arrivals_ns + left_ms * MS,
    )
    return simulate(*cascade, workload, log_rows=1000, **how)  # type: ignore[arg-type]


def test_replicas_in_turns_on_one_device_have_its_cores_together(cascade: tuple[GearPlan, Profile]) -> None:
    tight = served(cascade, left_ms=60, scaling=EXACT, scaler_cores=4)
    changes = [(at, wanted) for at, kind, _, wanted, _ in tight.log if kind == Decision.CORES]
    assert changes[::2] == changes[1::2]
    assert max(wanted for _, wanted in changes) == 3  # as many as both were measured on
    assert tight.held[0].tolist() == [0, 1]
    assert tight.held[:, 1].max() == 3  # of the worker, not of each replica
    degraded, before = (np.count_nonzero(run.ended == Ending.DEGRADED) for run in (tight, served(cascade, left_ms=60)))
    assert degraded < before


def test_a_scaler_gives_no_more_than_there_is(cascade: tuple[GearPlan, Profile]) -> None:
    assert {cores for _, cores in served(cascade, left_ms=60, scaling=EXACT, scaler_cores=2).held.tolist()} == {1, 2}
    assert served(cascade, left_ms=60, scaling=EXACT).held.tolist() == [[0, 1]]


def test_more_cores_are_there_after_the_time_that_the_scaler_expects(cascade: tuple[GearPlan, Profile]) -> None:
    soon, late = (
        served(cascade, left_ms=60, scaling=Scaling(period_s=0.1, effect_s=effect_s), scaler_cores=4)
        for effect_s in (0.0, 0.099)
    )
    assert soon.held.tolist() == late.held.tolist()
    assert soon.busy_s.sum() < late.busy_s.sum()


def test_what_the_server_refuses_to_scale_is_not_simulated(cascade: tuple[GearPlan, Profile]) -> None:
    with pytest.raises(InvalidInput, match="share a worker, and the printed algorithm knows one model"):
        served(cascade, left_ms=60, scaling=Scaling(scaler="paper", slo_s=1.0))
    plan, profile = cascade
    big = msgspec.structs.replace(plan, hardware=identical_devices(1, cores=4))
    four = [msgspec.structs.replace(replica, cores=4) for replica in plan.placement.replicas]
    big = msgspec.structs.replace(big, placement=msgspec.structs.replace(plan.placement, replicas=tuple(four)))
    with pytest.raises(InvalidInput, match="begins with 4 cores, and replicas share 3; give more --scaler-cores"):
        served((big, profile), left_ms=60, scaling=EXACT, scaler_cores=3)
    other = (four[0], msgspec.structs.replace(four[1], cores=2), *four[2:])
    big = msgspec.structs.replace(big, placement=msgspec.structs.replace(plan.placement, replicas=other))
    with pytest.raises(InvalidInput, match="share a worker, of 2 and 4 cores; give both the same number"):
        served((big, profile), left_ms=60, scaling=EXACT)
    with pytest.raises(InvalidInput, match="4 cores are given to share, and no scaler"):
        served(cascade, left_ms=60, scaler_cores=4)
    with pytest.raises(InvalidInput, match="begins with 1 cores, and replicas share 0"):
        served(cascade, left_ms=60, scaling=EXACT, scaler_cores=0)
