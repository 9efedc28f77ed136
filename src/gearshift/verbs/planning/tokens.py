"""Plan language models for an objective."""

from pathlib import Path
from typing import Any

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.hardware import Device, Hardware, identical_devices, is_remote
from gearshift.objective import Metric, Objective
from gearshift.planner import planners
from gearshift.planner.language.request import MEMORY_SHARE, LanguageRequest
from gearshift.planner.space.request import Progress
from gearshift.plans.prices import priced
from gearshift.profiles.engines.contexts import answerable
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.support.files import PathLike
from gearshift.traces.read import read_trace
from gearshift.verbs.planning.hardware import MOST_DEVICES as MOST_GIVEN
from gearshift.verbs.planning.hardware import named_hardware
from gearshift.verbs.planning.options import TIMES
from gearshift.verbs.planning.sources import source_file, trace_file
from gearshift.verbs.tokens.inputs import language_profile
from gearshift.workload import Trace

MOST_DEVICES = 16


def plan(
    profile: LanguageProfile | PathLike,
    trace: Trace | PathLike,
    *,
    planner: str,
    fewest: bool = False,
    frontier: bool = False,
    progress: Progress,
    **asked: Any,
) -> GearPlan | list[GearPlan]:
    """One of `ttft_s`, `per_token_s` and `total_s` names the time and its limit.

    With an accuracy alone the time that `metric` names (the first token's) is made as short as may
    be; a frontier is by that time, too. Raises `Infeasible`.
    """
    for name, metric in TIMES.items() if frontier else ():
        require(
            asked.get(name) is None,
            f"{name} is given for a frontier, which has plans for every time",
            remedy=f"leave it out, or call `plan`; metric={metric!r} makes the frontier one of that time",
        )
    request = language_request(profile, trace, **asked)
    if frontier:
        return planners.frontier(planner, request, progress=progress)
    if fewest:
        return planners.fewest(planner, request, most=MOST_DEVICES, progress=progress)
    return planners.plan(planner, request, progress=progress)


def language_request(
    profile: LanguageProfile | PathLike, trace: Trace | PathLike, *, out: PathLike | None = None, **asked: Any
) -> LanguageRequest:
    """What planners of language models are asked for.

    `ranges` bounds the number of gears. `devices` is a number of devices of the first profiled kind
    (default: the fewest on which any model fits, or where memory is not known, on which each has
    its own), `Hardware`, or its file. The plan names its profile and its trace as `profile_source`
    and `trace_source` say. Requests longer than every model's context are left out.
    """
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    measured = language_profile(profile)
    arrivals, _ = answerable(trace if isinstance(trace, Trace) else read_trace(Path(trace)), measured.engines)
    sources: dict[str, Any] = {
        "profile_source": source_file(profile, out, measured.sha256),
        "trace_source": trace_file(trace, out, arrivals),
    }
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
        **sources | given,
    )


def language_hardware(
    profile: LanguageProfile,
    devices: int | Hardware | PathLike | None,
    *,
    memory_bytes: int | None = None,
    memory_share: float = MEMORY_SHARE,
) -> Hardware:
    if devices is not None and not isinstance(devices, int):
        return named_hardware(devices, memory_bytes)
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
    require(1 <= count <= MOST_GIVEN, f"{count} devices asked for", remedy=f"ask for 1 to {MOST_GIVEN}")
    enough = max(
        (one.weights_bytes + one.kv_blocks * one.block_tokens * one.kv_bytes_per_token) / one.tensor_parallel
        for one in here
    )
    return identical_devices(
        count, kind=kind, memory_bytes=memory_bytes or max(1 << 20, int(enough / memory_share) + 1)
    )
