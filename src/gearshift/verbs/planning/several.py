"""Plan several operators that share devices, each a pipeline of one node."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gearshift.errors import require
from gearshift.gear import GearPlan, SourceFile
from gearshift.hardware import Hardware
from gearshift.objective import Objective, Policy
from gearshift.planner import planners
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.request import PlanRequest, Progress
from gearshift.profiles.profile import Profile
from gearshift.profiles.several import as_one
from gearshift.profiles.store import read_profile
from gearshift.support.files import PathLike
from gearshift.traces.read import read_trace
from gearshift.verbs.common.inputs import plan_and_profiles, traces_for
from gearshift.verbs.planning.hardware import hardware_of
from gearshift.verbs.planning.options import ByOperator
from gearshift.verbs.planning.sources import moved, source_file, trace_file
from gearshift.workload import Trace


def several_request(
    profiles: Sequence[Profile | PathLike],
    traces: Mapping[str, Trace | PathLike],
    *,
    latency_s: ByOperator,
    accuracy: ByOperator | None = None,
    devices: int | Hardware | PathLike | None = None,
    beside: GearPlan | PathLike | None = None,
    beside_profiles: Mapping[str, Profile] | None = None,
    beside_traces: Mapping[str, Trace] | None = None,
    out: PathLike | None = None,
    profile_source: Mapping[str, SourceFile] | None = None,
    trace_source: Mapping[str, SourceFile] | None = None,
    worth: ByOperator | None = None,
    **asked: Any,
) -> SeveralRequest:
    """A request for each operator. Paths are read.

    With `beside`, a plan, its pipelines stay as they are on its devices. Its profiles and traces are
    read as it names them, or given.
    """
    measured = named_profiles(profiles)
    require(beside is not None or len(measured) > 1, "one operator is given", remedy="call `plan`, or give beside=")
    for what, by_name in (
        ("trace", traces),
        ("latency", latency_s),
        ("accuracy", accuracy or {}),
        ("worth", worth or {}),
    ):
        _require_named(what, by_name, measured, all_of_them=what in ("trace", "latency"))
    options: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    memory_bytes, price = (options.pop(name, None) for name in ("memory_bytes", "price_per_hour"))
    fixed, requests = None, dict[str, PlanRequest]()
    if beside is None:
        count = 1 if devices is None else devices
        hardware = hardware_of(count, as_one(measured), memory_bytes=memory_bytes, price=price)
    else:
        given = devices is not None or memory_bytes is not None or price is not None
        require(not given, "devices and a plan are both given", remedy="leave devices out: they are the plan's")
        found, fixed_profiles = plan_and_profiles(beside, beside_profiles)
        graphs = [name for name, pipeline in found.pipelines.items() if pipeline.is_graph]
        lead = f"the plan has a pipeline of several nodes, {graphs[0]!r}" if graphs else ""
        require(not graphs, lead, remedy="add operators to plans of operators alone")
        known = sorted(fixed_profiles.keys() & measured.keys())
        require(not known, f"the plan has operators {known} already", remedy="leave their profiles out")
        requests = _of_fixed(
            found, fixed_profiles, traces_for(found, beside, beside_traces), seed=options.get("seed", 0)
        )
        fixed, hardware = moved(found, beside, out), found.hardware
    objective = {name: options.pop(name) for name in ("percentile", "scope") if name in options}
    for (name, profile), source in zip(measured.items(), profiles, strict=True):
        trace = traces[name]
        arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
        requests[name] = PlanRequest(
            profile=profile,
            trace=arrivals,
            hardware=hardware,
            objective=Objective(latency_s=latency_s[name], accuracy=(accuracy or {}).get(name), **objective),
            profile_source=(profile_source or {}).get(name) or source_file(source, out, profile.sha256),
            trace_source=(trace_source or {}).get(name) or trace_file(trace, out, arrivals),
            **options,
        )
    return SeveralRequest(requests=requests, fixed=fixed, worth=worth or {})


def _of_fixed(
    plan: GearPlan, profiles: Mapping[str, Profile], traces: Mapping[str, Trace], *, seed: int
) -> dict[str, PlanRequest]:
    """The requests that a plan's pipelines were made for, as far as they are recorded."""
    requests = {}
    for name, profile in profiles.items():
        asked = plan.pipelines[name].asked
        recorded = (
            {} if asked is None else {each: getattr(asked, each) for each in ("ranges", "max_qps", "least_margin")}
        )
        requests[name] = PlanRequest(
            profile=profile,
            trace=traces[name],
            hardware=plan.hardware,
            objective=plan.pipelines[name].objective,
            seed=seed,
            **recorded,
        )
    return requests


def named_profiles(profiles: Sequence[Profile | PathLike]) -> dict[str, Profile]:
    """The profiles by operator; raises `InvalidInput` where two are of one operator."""
    measured: dict[str, Profile] = {}
    for each in profiles:
        profile = each if isinstance(each, Profile) else read_profile(Path(each))
        require(
            profile.operator not in measured,
            f"two profiles are of operator {profile.operator!r}",
            remedy="give one of them another name in its gearshift.toml",
        )
        measured[profile.operator] = profile
    return measured


def _require_named(what: str, given: Mapping[str, object], names: Mapping[str, object], *, all_of_them: bool) -> None:
    unknown = sorted(given.keys() - names.keys())
    require(not unknown, f"{what} is given for {unknown}, which is not planned", remedy=f"name one of {sorted(names)}")
    missing = sorted(names.keys() - given.keys()) if all_of_them else []
    require(not missing, f"no {what} is given for operators {missing}", remedy=f"give each operator a {what}")


def plan(
    profiles: Sequence[Profile | PathLike],
    traces: Mapping[str, Trace | PathLike],
    *,
    planner: str,
    fewest: bool = False,
    frontier: bool = False,
    progress: Progress,
    policy: Policy = "gears",
    **asked: Any,
) -> GearPlan:
    """The highest mean accuracy over all requests, where each operator keeps its latency, and its accuracy.

    Each load range of an operator is held in steady load while the others have the 95th percentile of
    their traces' load; then all traces are replayed at once. The baselines among planners take neither
    `accuracy` nor `beside`. Raises `Infeasible`, which names the operator, its load range and the
    bottleneck.
    """
    planners.require_planner(planner, "rows", "several")
    for what, given, takes in (
        ("an accuracy", bool(asked.get("accuracy")), ("optimal", "refine")),
        ("a plan to add to", asked.get("beside") is not None, ("optimal",)),
    ):
        require(
            not given or planner in takes,
            f"{what} is given, and planner {planner!r} plans without",
            remedy="leave one of them out",
        )
    require(
        asked.get("beside") is None or policy == "gears",
        "a plan to add to is given, and a policy: operators that refine are planned together",
        remedy="leave one of them out",
    )
    require(
        policy != "refine" or planner in (planners.DEFAULT, "refine"),
        f"planner {planner!r} is named, and the policy refine, whose plans are of planner refine",
        remedy="leave one of them out, or choose the policy best",
    )
    require(
        not asked.get("worth") or policy != "gears" or planner == "refine",
        "a worth is given, and plans of gears alone have none",
        remedy="leave it out, or choose the policy refine or best",
    )
    request = several_request(profiles, traces, policy=policy, **asked)
    return planners.plan(planner, request, progress=progress)
