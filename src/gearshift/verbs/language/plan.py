"""Plan language models for an objective."""

from pathlib import Path
from typing import Any

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.hardware import Device, Hardware, identical_devices, is_remote
from gearshift.objective import Metric, Objective
from gearshift.planner import planners
from gearshift.planner.language.request import MEMORY_SHARE, LanguageRequest
from gearshift.planner.space.request import Progress, silent
from gearshift.plans.hardware_file import read_hardware
from gearshift.plans.plan_file import write_plan
from gearshift.plans.plan_folder import require_plans_replaceable, write_plans
from gearshift.plans.prices import priced
from gearshift.profiles.engines.contexts import answerable
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.profile import Profile
from gearshift.support.files import PathLike
from gearshift.traces.read import read_trace
from gearshift.verbs.language.inputs import language_profile
from gearshift.workload import Trace

TIMES: dict[str, Metric] = {"ttft_s": "ttft", "per_token_s": "per_token", "total_s": "total"}
MOST_DEVICES = 16
NOT_TAKEN = {
    "latency_s": "give ttft_s, per_token_s or total_s, as answers are streamed",
    "confidence": "leave it out",
    "cores": "give devices",
    "load": "leave it out: ranges are of outstanding work, visited as on the trace",
    "max_qps": "leave it out: ranges are of outstanding work",
}


def plan_language(
    profile: Profile | LanguageProfile | PathLike,
    trace: Trace | PathLike,
    *,
    planner: str,
    fewest: bool = False,
    out: PathLike | None = None,
    progress: Progress = silent,
    **asked: Any,
) -> GearPlan:
    """As `gearshift.plan`, for language models; write to `out` if given.

    One of `ttft_s`, `per_token_s` and `total_s` names the time and its limit; with an accuracy alone
    the time that `metric` names (the first token's) is made as short as may be. Raises `Infeasible`.
    """
    request = language_request(profile, trace, **asked)
    if fewest:
        made = planners.fewest(planner, request, most=MOST_DEVICES, progress=progress)
    else:
        made = planners.plan(planner, request, progress=progress)
    if out is not None:
        write_plan(made, Path(out))
    return made


def plan_language_frontier(
    profile: Profile | LanguageProfile | PathLike,
    trace: Trace | PathLike,
    *,
    planner: str,
    out: PathLike | None = None,
    progress: Progress = silent,
    **asked: Any,
) -> list[GearPlan]:
    """All undominated plans by rising time to the first token; write them to the folder `out` if given.

    With `metric`, they are by the time that it names.
    """
    for name, metric in TIMES.items():
        require(
            asked.get(name) is None,
            f"{name} is given for a frontier, which has plans for every time",
            remedy=f"leave it out, or call `plan`; metric={metric!r} makes the frontier one of that time",
        )
    if out is not None:
        require_plans_replaceable(Path(out))
    request = language_request(profile, trace, **asked)
    made = planners.frontier(planner, request, progress=progress)
    if out is not None:
        write_plans(made, Path(out))
    return made


def language_request(
    profile: Profile | LanguageProfile | PathLike, trace: Trace | PathLike, **asked: Any
) -> LanguageRequest:
    """Build the request; options are those of `plan_request` where they mean anything here.

    `ranges` bounds the number of gears. `devices` is a number of devices of the first profiled kind
    (default: the fewest on which any model fits, or where memory is not known, on which each has
    its own), `Hardware`, or its file. The plan names its profile and its trace as `profile_source`
    and `trace_source` say. Requests longer than every model's context are left out.
    """
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    for name, remedy in NOT_TAKEN.items():
        require(name not in given, f"{name} is given, which is not for language models", remedy=remedy)
    measured = language_profile(profile)
    arrivals, _ = answerable(trace if isinstance(trace, Trace) else read_trace(Path(trace)), measured.engines)
    hardware = language_hardware(
        measured,
        given.pop("devices", None),
        memory_bytes=given.pop("memory_bytes", None),
        memory_share=given.get("memory_share", MEMORY_SHARE),
    )
    hardware = priced(hardware, given.pop("price_per_hour", None))
    times = {name: given.pop(name) for name in TIMES if name in given}
    require(len(times) <= 1, f"{' and '.join(times)} are both given", remedy="give one of them")
    require(
        not (times and "metric" in given),
        f"metric and {next(iter(times), '')} are both given",
        remedy="leave metric out: the time that has a limit counts",
    )
    metric: Metric = TIMES[next(iter(times))] if times else given.pop("metric", "ttft")
    limit_s = next(iter(times.values()), None)
    accuracy = given.pop("accuracy", None)
    kept = {name: given.pop(name) for name in ("percentile", "scope") if name in given}
    objective = Objective(metric=metric, latency_s=limit_s, accuracy=accuracy, **kept)
    if "ranges" in given:
        given["most_gears"] = given.pop("ranges")
    return LanguageRequest(
        profile=measured,
        trace=arrivals,
        hardware=hardware,
        objective=objective,
        prompt_tokens=arrivals.prompt_tokens,
        output_tokens=arrivals.output_tokens,
        **given,
    )


def language_hardware(
    profile: LanguageProfile,
    devices: int | Hardware | PathLike | None,
    *,
    memory_bytes: int | None = None,
    memory_share: float = MEMORY_SHARE,
) -> Hardware:
    if isinstance(devices, Hardware):
        return devices
    if devices is not None and not isinstance(devices, int):
        require(
            memory_bytes is None, "memory and a hardware file are both given", remedy="write memory_bytes into the file"
        )
        return read_hardware(Path(devices))
    kind = profile.engines[0].device_kind
    if is_remote(kind):
        require(devices is None, "a number of devices is given, and models are behind endpoints", remedy="leave it out")
        return Hardware(devices=tuple(Device(id=f"{model}-0", kind=kind) for model in profile.models))
    here = [one for one in profile.engines if one.device_kind == kind]
    narrowest = {
        model: min(one.tensor_parallel for one in here if one.model == model) for model in {e.model for e in here}
    }
    known = all(one.weights_bytes and one.kv_bytes_per_token for one in here)
    count = devices or (min(narrowest.values()) if known else sum(narrowest.values()))
    require(1 <= count <= 10_000, f"{count} devices asked for", remedy="ask for 1 to 10000")
    enough = max(
        (one.weights_bytes + one.kv_blocks * one.block_tokens * one.kv_bytes_per_token) / one.tensor_parallel
        for one in here
    )
    return identical_devices(
        count, kind=kind, memory_bytes=memory_bytes or max(1 << 20, int(enough / memory_share) + 1)
    )
