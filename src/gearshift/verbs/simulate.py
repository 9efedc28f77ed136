"""Predict how a plan serves a trace."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.plans.plan_file import read_plan
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.backlog import backlog_of
from gearshift.profiles.engines.contexts import answerable
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.profile import Profile
from gearshift.profiles.tuples import JointRecords
from gearshift.support.files import PathLike
from gearshift.verbs.inputs import (
    by_pipeline,
    plan_and_profile,
    plan_and_records,
    trace_for,
    traces_for,
    workload_of,
)
from gearshift.verbs.language.inputs import language_workload, plan_and_language_profile, plans_language
from gearshift.verbs.options import Option, ProfileOfPlan
from gearshift.workload import Trace, merge_workloads

if TYPE_CHECKING:
    from gearshift.policies.cores.demand import Scaling
    from gearshift.simulator.engines.language_simulation import LanguageSimulation
    from gearshift.simulator.simulate import Simulation
    from gearshift.traces.network import Uplink


def simulate(
    plan: GearPlan | PathLike,
    trace: Trace | PathLike | Mapping[str, Trace | PathLike] | None = None,
    *,
    profile: ProfileOfPlan = None,
    profiles: Mapping[str, Profile | PathLike] | None = None,
    joint: Mapping[str, JointRecords] | None = None,
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

    A plan of several pipelines is served with all their traces at once: `trace` is then a mapping
    that replaces some of them, and `profiles` replaces profiles of some operators; an uplink and a
    scaler are for one pipeline of one node. A graph is served with its recorded tuples: those beside
    its profiles, or `joint`.
    """
    from gearshift.simulator.compared.scalers import COMPARED
    from gearshift.simulator.simulate import simulate as run

    known = plan if isinstance(plan, GearPlan) else read_plan(Path(plan))
    require(
        not plans_language(known),
        "the plan is of language models",
        remedy="call `simulate_language`",
    )
    if not known.is_plain or isinstance(trace, Mapping):
        for name, given in (("uplink", uplink), ("scaling", scaling), ("profile", profile)):
            require(given is None, f"{name} is given, which is for one pipeline of one node", remedy="leave it out")
        traces = by_pipeline(known, trace)
        return _of_several(plan, traces, profiles, joint, seed=seed, most_waiting=most_waiting)
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


def simulate_language(
    plan: GearPlan | PathLike,
    trace: Trace | PathLike | None = None,
    *,
    profile: LanguageProfile | PathLike | None = None,
    seed: int | None = None,
) -> "LanguageSimulation":
    """As `simulate`, for a plan of language models; `LanguageSimulation.result(...)` gives the figures.

    Requests longer than the context of every model of the plan are left out.
    """
    from gearshift.simulator.engines.simulate_language import simulate_language as run

    made, measured = plan_and_language_profile(plan, profile)
    tables = engine_tables(made, measured)
    arrivals, _ = answerable(trace_for(made, plan, trace, seed=seed), tables.engines)
    return run(tables, measured, language_workload(measured, arrivals, seed=seed))


def _of_several(
    plan: GearPlan | PathLike,
    traces: Mapping[str, Trace | PathLike] | None,
    profiles: Mapping[str, Profile | PathLike] | None,
    joint: Mapping[str, JointRecords] | None,
    *,
    seed: int | None,
    most_waiting: int | None,
) -> "Simulation":
    from gearshift.simulator.simulate import simulate as run

    made, measured, recorded = plan_and_records(plan, profiles, joint)
    arrivals, tables = traces_for(made, plan, traces, seed=seed), plan_tables(made)
    names = list(made.pipelines)
    records = {
        name: recorded[name] if name in recorded else measured[pipeline.nodes[pipeline.output].operator]
        for name, pipeline in made.pipelines.items()
    }
    workload = merge_workloads([workload_of(records[name], arrivals[name], seed=seed) for name in names])
    bounds = [
        most_waiting or backlog_of(made, tables, measured, joint=recorded, pipeline=name).most_waiting for name in names
    ]
    return run(made, measured, workload, joint=recorded, most_waiting=bounds)


def _most_waiting(plan: GearPlan, profile: Profile, scaling: "Scaling | None", scaler_cores: int | None) -> int:
    tables = plan_tables(plan)
    cores = scaler_cores
    if scaling is not None and scaling.scaler != "static":
        cores = scaler_cores or sum(replica.cores for replica in plan.placement.replicas)
    return backlog_of(plan, tables, profile, scaler_cores=cores).most_waiting
