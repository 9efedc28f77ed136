"""Plan one operator."""

from pathlib import Path
from typing import Any, Unpack

import msgspec

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.space.request import PlanRequest, Progress
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile
from gearshift.support.files import PathLike
from gearshift.traces.read import read_trace
from gearshift.verbs.planning.hardware import hardware_of, host_of
from gearshift.verbs.planning.options import PlanOptions
from gearshift.verbs.planning.sources import source_file, trace_file
from gearshift.workload import Trace


def plan_request(
    profile: Profile | PathLike, trace: Trace | PathLike, *, out: PathLike | None = None, **asked: Unpack[PlanOptions]
) -> PlanRequest:
    """Build a planner's request: `percentile` of requests within `latency_s`, `accuracy`, or both.

    Paths are read. `devices` is a number of devices like the profiled one (default 1), `Hardware`,
    or its file; alternatively `cores` are shared by all models on one host. `memory_bytes` is each
    device's memory where only a count is given. With `confidence` the lower confidence bound must
    reach the accuracy. `load` says how often load ranges are visited; `budget_s` bounds the
    search. The plan names its profile and trace by paths relative to the plan file `out`, or as
    `profile_source` and `trace_source` say.
    """
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    devices, cores, memory_bytes, price = (
        given.pop(name, None) for name in ("devices", "cores", "memory_bytes", "price_per_hour")
    )
    for name, value in (("devices", devices), ("memory_bytes", memory_bytes), ("price_per_hour", price)):
        require(value is None or cores is None, f"{name} and cores are both given", remedy="give one of them")
    measured = profile if isinstance(profile, Profile) else read_profile(Path(profile))
    arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    if cores is None:
        hardware = hardware_of(1 if devices is None else devices, measured, memory_bytes=memory_bytes, price=price)
    else:
        hardware = host_of(measured, cores)
    sources: dict[str, Any] = {
        "profile_source": source_file(profile, out, measured.sha256),
        "trace_source": trace_file(trace, out, arrivals),
    }
    objective = Objective(**{name: given.pop(name) for name in Objective.__struct_fields__ if name in given})
    return PlanRequest(profile=measured, trace=arrivals, hardware=hardware, objective=objective, **sources | given)


def plan(
    profile: Profile | PathLike,
    trace: Trace | PathLike,
    *,
    planner: str,
    fewest: bool = False,
    frontier: bool = False,
    out: PathLike | None = None,
    progress: Progress,
    **asked: Any,
) -> GearPlan | list[GearPlan]:
    from gearshift.planner.nearest import feasible_or_nearest

    on_cores = asked.get("cores") is not None
    if frontier:
        require(not on_cores, "cores are given for a frontier", remedy="give devices, or call `plan`")
        for name in ("latency_s", "accuracy", "confidence"):
            require(
                asked.get(name) is None,
                f"{name} is given for a frontier, which has plans for every latency and accuracy",
                remedy="leave it out, or call `plan`",
            )
    elif on_cores:
        for name, given in (("planner", planner != planners.DEFAULT), ("fewest", fewest)):
            require(
                not given, f"{name} and cores are both given", remedy="leave one out: cores have a planner of their own"
            )
    request = plan_request(profile, trace, out=out, **asked)
    if on_cores:
        return planners.on_cores(request, progress=progress)
    if frontier:
        return feasible_or_nearest(planners.frontier, planner, request, progress=progress)
    return feasible_or_nearest(planners.fewest if fewest else planners.plan, planner, request, progress=progress)


def what_if(
    made: GearPlan, profile: Profile, trace: Trace, *, planner: str, asked: dict[str, Any], progress: Progress
) -> GearPlan:
    """Each as the plan was made, on other numbers of devices."""
    from gearshift.planner.what_if import what_if as find

    return msgspec.structs.replace(made, what_if=find(made, profile, trace, progress=progress))
