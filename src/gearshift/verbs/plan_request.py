"""The request of `plan`, `plan_frontier` and `compare` to a planner, and its options."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Unpack

import msgspec

from gearshift.errors import require
from gearshift.gear import GearPlan, SourceFile
from gearshift.hardware import HOST, MOST_POOL_CORES, Device, Hardware, identical_devices
from gearshift.objective import Objective, Policy, Scope
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.hosts import bytes_side_by_side
from gearshift.planner.space.request import RANGES, LoadDistribution, PlanRequest
from gearshift.plans.hardware_file import read_hardware
from gearshift.plans.prices import AS_OF, PER_HOUR, priced
from gearshift.profiles.profile import Profile
from gearshift.profiles.several import as_one
from gearshift.profiles.store import read_profile
from gearshift.support.files import PathLike
from gearshift.traces.read import read_trace
from gearshift.verbs.inputs import plan_and_profiles, traces_for
from gearshift.verbs.options import GIBIBYTES, MILLISECONDS, SECONDS, Option
from gearshift.workload import Trace

ByOperator = Mapping[str, float]
"""A number for each operator."""


class SearchOptions(TypedDict, total=False):
    """How planners search.

    `percentile` of requests must be within a latency (default 0.95). `seed` is that of everything
    that is drawn.
    """

    percentile: float
    scope: Annotated[
        Scope,
        Option(
            "Where the objective must hold: in every load range and on the trace, or on the trace alone.",
            default="every-range",
        ),
    ]
    load: Annotated[
        LoadDistribution | None,
        Option("How often load ranges are taken to be visited [default: the planner's choice]."),
    ]
    budget_s: Annotated[
        float | None,
        Option("End a search after about this many seconds, with the best plan so far.", unit=SECONDS),
    ]
    ranges: Annotated[int, Option("How many load ranges.", default=RANGES)]
    max_qps: Annotated[float | None, Option("The top of the load ranges, in requests per second.")]
    least_margin: Annotated[
        float | None,
        Option("Plan every range for at least this multiple of its load [default: 1.15; 0.5 with --scope trace]."),
    ]
    memory_bytes: Annotated[
        int | None,
        Option("Memory of each device; by default enough for every model.", "--memory-gib", unit=GIBIBYTES),
    ]
    price_per_hour: Annotated[
        str | float | None,
        Option(
            f"What each device costs for an hour: a number, or one of {', '.join(PER_HOUR)} for its price of {AS_OF} "
            "[default: a file's own, or none: then no cost is told].",
            metavar="NUMBER|KIND",
        ),
    ]
    seed: int


class DeviceOptions(TypedDict, total=False):
    """The devices to plan for, or the cores of one host."""

    devices: Annotated[
        int | Hardware | PathLike | None,
        Option(
            "How many devices like the profiled one, or a JSON or TOML file that lists devices [default: 1; the fewest"
            " that are enough where both a latency and an accuracy are given].",
            metavar="NUMBER|FILE",
        ),
    ]
    cores: Annotated[
        int | None,
        Option(
            "In place of devices, a host with this many cores, which every load range divides among its models: the"
            " fewest core-seconds that keep both a latency and an accuracy."
        ),
    ]


class ObjectiveOptions(TypedDict, total=False):
    """The objective: `percentile` of requests within `latency_s`, or `accuracy`.

    The plan names its profile and its trace as `profile_source` and `trace_source` say.
    """

    latency_s: float | None
    accuracy: Annotated[float | None, Option("The accuracy that must be reached, from 0 to 1.")]
    confidence: Annotated[
        float | None, Option("How sure the accuracy must be: its lower confidence bound must reach it.")
    ]
    median_s: Annotated[
        float | None, Option("Half of the requests must be within this, too.", "--p50-ms", unit=MILLISECONDS)
    ]
    profile_source: SourceFile | None
    trace_source: SourceFile | None


class LanguageOptions(TypedDict, total=False):
    """The times that `percentile` of the answers of language models keep, and the unit of their load."""

    ttft_s: Annotated[
        float | None,
        Option(
            "For language models: 95 % of first tokens must come within this many milliseconds.",
            "--ttft-p95-ms",
            unit=MILLISECONDS,
        ),
    ]
    per_token_s: Annotated[
        float | None,
        Option("As --ttft-p95-ms, for the mean time between tokens.", "--per-token-p95-ms", unit=MILLISECONDS),
    ]
    total_s: Annotated[
        float | None,
        Option("As --ttft-p95-ms, for the time to the last token.", "--total-p95-ms", unit=MILLISECONDS),
    ]
    metric: Annotated[
        Literal["ttft", "per_token", "total"] | None,
        Option("For language models, with --frontier or --accuracy alone: the time that counts [default: ttft]."),
    ]
    load_unit: Annotated[
        Literal["drain_s", "outstanding_requests", "queued_tokens"] | None,
        Option("For language models: the outstanding work by which gears are chosen [default: drain_s]."),
    ]
    memory_share: Annotated[
        float | None,
        Option("For language models: the share of a device's memory that engines use [default: 0.9]."),
    ]


class PolicyOptions(TypedDict, total=False):
    """The policies of a plan."""

    policy: Annotated[
        Policy,
        Option(
            "Gears as in the papers; or rows are refined while there is time; or the better of the two plans.",
            default="gears",
        ),
    ]


class PlanOptions(DeviceOptions, ObjectiveOptions, PolicyOptions, SearchOptions, LanguageOptions, total=False):
    """The options of `plan` and of `plan_frontier`."""


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
    for name in LanguageOptions.__annotations__:
        require(name not in given, f"{name} is given, which is for language models", remedy="leave it out")
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
    sources = {
        "profile_source": source_file(profile, out, measured.sha256),
        "trace_source": trace_file(trace, out, arrivals),
    }
    objective = Objective(**{name: given.pop(name) for name in Objective.__struct_fields__ if name in given})
    return PlanRequest(profile=measured, trace=arrivals, hardware=hardware, objective=objective, **sources | given)


def hardware_of(
    devices: int | Hardware | PathLike,
    profile: Profile,
    *,
    memory_bytes: int | None = None,
    price: str | float | None = None,
) -> Hardware:
    """The hardware; `price`, where given, is that of each device, and replaces a file's."""
    return priced(_hardware_of(devices, profile, memory_bytes), price)


def _hardware_of(devices: int | Hardware | PathLike, profile: Profile, memory_bytes: int | None) -> Hardware:
    if isinstance(devices, Hardware):
        return devices
    if isinstance(devices, int):
        return profiled_devices(profile, devices, memory_bytes=memory_bytes)
    require(
        memory_bytes is None, "memory and a hardware file are both given", remedy="write memory_bytes into the file"
    )
    return read_hardware(Path(devices))


def host_of(profile: Profile, cores: int) -> Hardware:
    require(1 <= cores <= MOST_POOL_CORES, f"{cores} cores asked for", remedy=f"ask for 1 to {MOST_POOL_CORES}")
    return Hardware(devices=(Device(id=HOST, kind=profile.curves[0].device_kind),), pool_cores=cores)


def profiled_devices(profile: Profile, count: int, *, memory_bytes: int | None = None) -> Hardware:
    """Return `count` devices like the profiled one, with memory for all models of the profile.

    For a model that only runs split over several devices, its part is counted.
    """
    first = profile.curves[0]
    require(1 <= count <= 10_000, f"{count} devices asked for", remedy="ask for 1 to 10000")
    if memory_bytes is None:
        memory_bytes = max(1 << 30, bytes_side_by_side(profile, kind=first.device_kind, cores=first.cores))
    require(memory_bytes >= 1, f"memory_bytes is {memory_bytes}", remedy="give a positive number of bytes")
    return identical_devices(count, kind=first.device_kind, cores=first.cores, memory_bytes=memory_bytes)


def source_file(source: object, out: PathLike | None, sha256: str) -> SourceFile:
    if not isinstance(source, (str, Path)):
        return SourceFile(path="", sha256=sha256)
    path = str(source) if out is None else os.path.relpath(Path(source).resolve(), Path(out).resolve().parent)
    return SourceFile(path=path, sha256=sha256)


def trace_file(source: object, out: PathLike | None, trace: Trace) -> SourceFile:
    named = source_file(source, out, trace.sha256)
    return msgspec.structs.replace(named, reading=trace.reading if named.path else None)


# Several operators ---------------------------------------------------------------------------------


def several_request(
    profiles: Sequence[Profile | PathLike],
    traces: Mapping[str, Trace | PathLike],
    latency_s: ByOperator,
    accuracy: ByOperator,
    *,
    devices: int | Hardware | PathLike | None,
    beside: GearPlan | PathLike | None,
    beside_profiles: Mapping[str, Profile] | None,
    beside_traces: Mapping[str, Trace] | None,
    out: PathLike | None,
    profile_sources: Mapping[str, SourceFile],
    trace_sources: Mapping[str, SourceFile],
    worth: ByOperator | None = None,
    **asked: Any,
) -> SeveralRequest:
    """Build the request of `plan_together`, with a request for each operator. Paths are read."""
    measured = named_profiles(profiles)
    require(beside is not None or len(measured) > 1, "one operator is given", remedy="call `plan`, or give beside=")
    for what, by_name in (("trace", traces), ("latency", latency_s), ("accuracy", accuracy), ("worth", worth or {})):
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
            objective=Objective(latency_s=latency_s[name], accuracy=accuracy.get(name), **objective),
            profile_source=profile_sources.get(name) or source_file(source, out, profile.sha256),
            trace_source=trace_sources.get(name) or trace_file(trace, out, arrivals),
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


def moved(plan: GearPlan, path: object, out: PathLike | None) -> GearPlan:
    """The plan with the paths of its sources relative to `out`."""
    if not isinstance(path, (str, Path)):
        return plan

    def source(each: SourceFile) -> SourceFile:
        place = (Path(path).parent / each.path).resolve()
        base = Path.cwd() if out is None else Path(out).resolve().parent
        return msgspec.structs.replace(each, path=os.path.relpath(place, base) if each.path else "")

    return msgspec.structs.replace(
        plan,
        profiles={name: source(each) for name, each in plan.profiles.items()},
        traces={name: source(each) for name, each in plan.traces.items()},
    )
