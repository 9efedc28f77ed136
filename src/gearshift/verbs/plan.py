"""Plan for an objective, or all undominated plans."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import msgspec

from gearshift.gear import GearPlan
from gearshift.planner import planners
from gearshift.plans.plan_file import write_plan
from gearshift.plans.plan_folder import plan_name, require_plans_replaceable, write_plans
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Progress, silent, trace_for
from gearshift.verbs.common.options import Option
from gearshift.verbs.kinds.registry import kind_of_profile
from gearshift.verbs.planning.options import PlanOptions
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.largest_alone import LargestAlone
    from gearshift.profiles.engines.language_profile import LanguageProfile

    AnyProfile = Profile | LanguageProfile | PathLike

Planner = Annotated[str | None, Option("The planner that searches.", choices=tuple(planners.for_()))]


def plan(
    profile: "AnyProfile | Sequence[AnyProfile]",
    trace: Trace | PathLike | Mapping[str, Trace | PathLike],
    *,
    planner: Planner = None,
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

    Several profiles, or one with `beside`, are of operators that share the devices, each a pipeline of
    one node: `trace`, `latency_s`, `accuracy` and `worth` are then by operator, with traces on one
    clock (`gearshift.verbs.planning.several`). The folder of a profile of several operators has a
    pipeline of several nodes, which is planned as one (`gearshift.verbs.planning.graph`). For
    language models (a profile of theirs) `ttft_s`, `per_token_s` or `total_s` takes the place of a
    latency; load is outstanding work, counted in `load_unit`. Options that plans of this kind do not
    have are refused.

    Raises `Infeasible` when there is no plan, with the nearest feasible objectives; each of these
    is planned for, which takes time within `budget_s`.
    """
    made = _planned(profile, trace, planner, fewest=fewest, frontier=False, out=out, progress=progress, asked=asked)
    assert isinstance(made, GearPlan)
    if out is not None:
        write_plan(made, Path(out))
    return made


def plan_frontier(
    profile: "AnyProfile",
    trace: Trace | PathLike,
    *,
    planner: Planner = None,
    out: PathLike | None = None,
    progress: Progress = silent,
    **asked: Unpack[PlanOptions],
) -> list[GearPlan]:
    """Find all undominated plans, by rising latency; write them to the folder `out` if given.

    Options are those of `plan` without objectives (use `plan` for these). Latencies are those at
    `percentile`. Raises `InvalidInput` where an objective is given, and `Infeasible` when there is
    no plan.
    """
    if out is not None:
        require_plans_replaceable(Path(out))
    first = None if out is None else Path(out) / plan_name(0)
    made = _planned(profile, trace, planner, fewest=False, frontier=True, out=first, progress=progress, asked=asked)
    assert isinstance(made, list)
    if out is not None:
        write_plans(made, Path(out))
    return made


def _planned(
    profile: object,
    trace: object,
    planner: str | None,
    *,
    fewest: bool,
    frontier: bool,
    out: PathLike | None,
    progress: Progress,
    asked: PlanOptions,
) -> GearPlan | list[GearPlan]:
    found = kind_of_profile(profile, beside=asked.get("beside"))
    kind, shape = found.kind, found.shape
    kind.require_supported("plan", shape, {**asked, "fewest": fewest, "frontier": frontier})
    how: dict[str, Any] = {"fewest": fewest, "frontier": frontier, "out": out, "progress": progress, **asked}
    made: GearPlan | list[GearPlan]
    made = kind.plan(shape, profile, trace, planner=planner or kind.planners(shape)[0], **how)
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
