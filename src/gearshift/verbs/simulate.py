"""Predict how a plan serves a trace."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from gearshift.gear import GearPlan
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.backlog import backlog_of
from gearshift.profiles.profile import Profile
from gearshift.support.files import PathLike
from gearshift.verbs.inputs import plan_and_profile, trace_for, workload_of
from gearshift.verbs.options import Option, ProfileOfPlan
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.policies.cores.demand import Scaling
    from gearshift.simulator.simulate import Simulation
    from gearshift.traces.network import Uplink


def simulate(
    plan: GearPlan | PathLike,
    trace: Trace | PathLike | None = None,
    *,
    profile: ProfileOfPlan = None,
    seed: int | None = None,
    uplink: "Uplink | None" = None,
    scaling: "Scaling | None" = None,
    scaler_cores: Annotated[
        int | None,
        Option("The cores that workers share, with `static` evenly; by default those of the plan.", least=1, most=4096),
    ] = None,
    most_waiting: int | None = None,
) -> "Simulation":
    """Predict by simulation how `plan` serves `trace`; `Simulation.result(...)` gives the figures.

    With an `uplink`, the trace holds the times of sending: requests arrive later, with the
    deadlines that the uplink gives them, and latencies count from sending. With `scaling` a scaler
    gives workers cores out of `scaler_cores` (default: all of the plan), at least the gear's where
    the plan was made with `cores`. When more than `most_waiting` samples wait, requests are
    refused (default: the server's bound).

    `profile` and `trace` replace the paths in the plan file. The plan's own trace is read as it
    was for the plan; a warning is logged where it may have changed. `seed` draws samples and
    arrivals, by default as for the plan. Raises `InvalidInput` for a profile other than the
    plan's.
    """
    from gearshift.simulator.compared.scalers import COMPARED
    from gearshift.simulator.simulate import simulate as run

    made, measured = plan_and_profile(plan, profile)
    workload = workload_of(measured, trace_for(made, plan, trace, seed=seed), seed=seed)
    how: Any = {"scaling": scaling, "scaler_cores": scaler_cores}
    if scaling is None or scaling.scaler not in COMPARED:
        how["most_waiting"] = most_waiting or _most_waiting(made, measured, scaling, scaler_cores)
    if uplink is None:
        return run(made, measured, workload, **how)
    arrived = uplink.carry(workload)
    simulation = run(made, measured, arrived.workload, **how)
    return replace(simulation, communication_s=arrived.communication_s)


def _most_waiting(plan: GearPlan, profile: Profile, scaling: "Scaling | None", scaler_cores: int | None) -> int:
    tables = plan_tables(plan)
    cores = scaler_cores
    if scaling is not None and scaling.scaler != "static":
        cores = scaler_cores or sum(replica.cores for replica in plan.placement.replicas)
    return backlog_of(plan, tables, profile, scaler_cores=cores).most_waiting
