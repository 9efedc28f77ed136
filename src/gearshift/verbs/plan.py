"""Plan for an objective, or all undominated plans."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import msgspec

from gearshift.errors import require
from gearshift.gear import GearPlan, SourceFile
from gearshift.hardware import Hardware
from gearshift.objective import Policy
from gearshift.planner import planners
from gearshift.plans.plan_file import write_plan
from gearshift.plans.plan_folder import plan_name, require_plans_replaceable, write_plans
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile
from gearshift.support.files import PathLike
from gearshift.traces.read import read_trace
from gearshift.verbs.inputs import Progress, silent, trace_for
from gearshift.verbs.language.inputs import is_of_language, language_profile
from gearshift.verbs.language.plan import plan_language, plan_language_frontier
from gearshift.verbs.options import Option
from gearshift.verbs.plan_request import (
    ByOperator,
    PlanOptions,
    SearchOptions,
    plan_request,
    several_request,
    source_file,
    trace_file,
)
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.largest_alone import LargestAlone

Planner = Annotated[str, Option("The planner that searches.", choices=tuple(planners.for_()))]


def plan(
    profile: Profile | LanguageProfile | PathLike,
    trace: Trace | PathLike,
    *,
    planner: Planner = planners.DEFAULT,
    fewest: bool = False,
    out: PathLike | None = None,
    progress: Progress = silent,
    **asked: Unpack[PlanOptions],
) -> GearPlan:
    """Plan for an objective and confirm by replaying the whole trace; write to `out` if given.

    With `fewest` the plan uses as few devices, like the first of `devices`, as meet both a latency
    and an accuracy. With `cores`, in place of `devices`, models share that many cores of one host:
    each gear sets a cascade and its cores, for the fewest core-seconds that keep a latency and an
    accuracy. Models must then have been measured on several core counts.

    For language models (a profile of theirs) `ttft_s`, `per_token_s` or `total_s` takes the place of a
    latency; load is outstanding work, counted in `load_unit`.

    Objectives and the other options are those of `plan_request`. Raises `Infeasible` when there is
    no plan, with the nearest feasible objectives; each of these is planned for, which takes time
    within `budget_s`.
    """
    from gearshift.planner.nearest import feasible_or_nearest

    if is_of_language(profile):
        asked = with_sources(profile, trace, out, asked)
        return plan_language(profile, trace, planner=planner, fewest=fewest, out=out, progress=progress, **asked)
    assert not isinstance(profile, LanguageProfile)
    on_cores = asked.get("cores") is not None
    if on_cores:
        for name, given in (("planner", planner != planners.DEFAULT), ("fewest", fewest)):
            require(
                not given, f"{name} and cores are both given", remedy="leave one out: cores have a planner of their own"
            )
    request = plan_request(profile, trace, out=out, **asked)
    if on_cores:
        made = planners.on_cores(request, progress=progress)
    else:
        made = feasible_or_nearest(planners.fewest if fewest else planners.plan, planner, request, progress=progress)
    if out is not None:
        write_plan(made, Path(out))
    return made


def plan_frontier(
    profile: Profile | LanguageProfile | PathLike,
    trace: Trace | PathLike,
    *,
    planner: Planner = planners.DEFAULT,
    out: PathLike | None = None,
    progress: Progress = silent,
    **asked: Unpack[PlanOptions],
) -> list[GearPlan]:
    """Find all undominated plans, by rising latency; write them to the folder `out` if given.

    Options are those of `plan_request` without latency, accuracy and confidence (use `plan` for
    these). Latencies are those at `percentile`. Raises `InvalidInput` where one of the three is
    given, and `Infeasible` when there is no plan.
    """
    from gearshift.planner.nearest import feasible_or_nearest

    if is_of_language(profile):
        asked = with_sources(profile, trace, None if out is None else Path(out) / plan_name(0), asked)
        return plan_language_frontier(profile, trace, planner=planner, out=out, progress=progress, **asked)
    assert not isinstance(profile, LanguageProfile)
    require(asked.get("cores") is None, "cores are given for a frontier", remedy="give devices, or call `plan`")
    for name in ("latency_s", "accuracy", "confidence"):
        require(
            asked.get(name) is None,
            f"{name} is given for a frontier, which has plans for every latency and accuracy",
            remedy="leave it out, or call `plan`",
        )
    if out is not None:
        require_plans_replaceable(Path(out))
    first_plan = None if out is None else Path(out) / plan_name(0)
    request = plan_request(profile, trace, out=first_plan, **asked)
    made = feasible_or_nearest(planners.frontier, planner, request, progress=progress)
    if out is not None:
        write_plans(made, Path(out))
    return made


def with_sources(
    profile: LanguageProfile | Profile | PathLike, trace: Trace | PathLike, out: PathLike | None, asked: PlanOptions
) -> PlanOptions:
    """The options with the files that a plan of language models names, where they are not given."""
    measured = language_profile(profile)
    arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    named: PlanOptions = {
        "profile_source": source_file(profile, out, measured.sha256),
        "trace_source": trace_file(trace, out, arrivals),
    }
    return {**named, **asked}


def plan_together(
    profiles: Sequence[Profile | PathLike],
    traces: Mapping[str, Trace | PathLike],
    *,
    latency_s: ByOperator,
    accuracy: ByOperator | None = None,
    planner: str = planners.default_for("rows", "several"),
    policy: Policy = "gears",
    worth: ByOperator | None = None,
    devices: int | Hardware | PathLike | None = None,
    beside: GearPlan | PathLike | None = None,
    beside_profiles: Mapping[str, Profile] | None = None,
    beside_traces: Mapping[str, Trace] | None = None,
    profile_sources: Mapping[str, SourceFile] | None = None,
    trace_sources: Mapping[str, SourceFile] | None = None,
    out: PathLike | None = None,
    progress: Progress = silent,
    **asked: Unpack[SearchOptions],
) -> GearPlan:
    """Plan several operators together, each a pipeline of one node; write the plan to `out` if given.

    `traces`, `latency_s` and `accuracy` are by operator; traces are on one clock. The plan has the
    highest mean accuracy over all requests that is found, where each operator keeps its latency,
    and its accuracy if one is given. Each load range of an operator is held in steady load while
    the others have the 95th percentile of their traces' load; then all traces are replayed at once.

    With `beside`, a plan, its pipelines stay as they are on its devices, and the operators of
    `profiles`, which may then be one, are added with what is left. Its profiles and traces are
    read as it names them, or given. The plan names profiles and traces by `profile_sources` and
    `trace_sources` where they are given. Other options are those of `plan_request`. The `planner`
    is one of `planners.for_("rows", "several")`. By `policy` all operators have gears, all refine rows while there
    is time, or the better of the two plans is taken; one that refines takes no `beside`. There an accuracy
    point of an operator counts times its `worth`, 1 where none is given. The other
    planners are baselines to compare with, and take neither `accuracy` nor `beside`.

    Raises `Infeasible`, which names the operator, its load range and the bottleneck.
    """
    planners.require_planner(planner, "rows", "several")
    options: dict[str, Any] = dict(asked)
    require(
        options.pop("median_s", None) is None,
        "median_s is given, which is for one operator",
        remedy="leave it out, or plan one operator with `plan`",
    )
    for what, given, takes in (
        ("an accuracy", bool(accuracy), ("optimal", "refine")),
        ("a plan to add to", beside is not None, ("optimal",)),
    ):
        require(
            not given or planner in takes,
            f"{what} is given, and planner {planner!r} plans without",
            remedy="leave one of them out",
        )
    require(
        beside is None or policy == "gears",
        "a plan to add to is given, and a policy: operators that refine are planned together",
        remedy="leave one of them out",
    )
    require(
        policy != "refine" or planner in (planners.DEFAULT, "refine"),
        f"planner {planner!r} is named, and the policy refine, whose plans are of planner refine",
        remedy="leave one of them out, or choose the policy best",
    )
    require(
        not worth or policy != "gears" or planner == "refine",
        "a worth is given, and plans of gears alone have none",
        remedy="leave it out, or choose the policy refine or best",
    )
    request = several_request(
        profiles,
        traces,
        latency_s,
        accuracy or {},
        devices=devices,
        beside=beside,
        beside_profiles=beside_profiles,
        beside_traces=beside_traces,
        out=out,
        profile_sources=profile_sources or {},
        trace_sources=trace_sources or {},
        policy=policy,
        worth=worth,
        **options,
    )
    made = planners.plan(planner, request, progress=progress)
    if out is not None:
        write_plan(made, Path(out))
    return made


def what_if(
    plan: GearPlan,
    profile: Profile | PathLike,
    trace: Trace | PathLike,
    *,
    out: PathLike | None = None,
    progress: Progress = silent,
) -> GearPlan:
    """The plan with predictions for up to two devices fewer and more, as `what_if`; written to `out` if given.

    Each is planned as the plan was, which takes as long; the report of the plan then has a chart.
    """
    from gearshift.planner.what_if import what_if as find

    measured = profile if isinstance(profile, Profile) else read_profile(Path(profile))
    found = find(plan, measured, trace_for(plan, plan, trace), progress=progress)
    made = msgspec.structs.replace(plan, what_if=found)
    if out is not None:
        write_plan(made, Path(out))
    return made


def largest_alone(plan: GearPlan, profile: Profile | PathLike, trace: Trace | PathLike) -> "LargestAlone":
    """Count the devices that the largest model alone would need to serve the plan's load.

    It must keep the plan's latency at the loads of all ranges; accuracy does not matter.
    """
    from gearshift.planner.largest_alone import largest_alone as find

    measured = profile if isinstance(profile, Profile) else read_profile(Path(profile))
    return find(plan, measured, trace_for(plan, plan, trace))
