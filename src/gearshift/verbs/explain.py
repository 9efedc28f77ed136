"""Say why a plan is as it is."""

from typing import TYPE_CHECKING, Annotated

from gearshift.gear import GearPlan
from gearshift.support.files import PathLike
from gearshift.verbs.inputs import Progress, plan_and_profile, silent, trace_for
from gearshift.verbs.options import Option, ProfileOfPlan
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.explain import Explanation


def explain(
    plan: GearPlan | PathLike,
    trace: Trace | PathLike | None = None,
    *,
    profile: ProfileOfPlan = None,
    devices_too: Annotated[bool, Option("Also plan for one device fewer and one more; takes longer.")] = False,
    progress: Progress = silent,
) -> "Explanation":
    """Explain each range's cascade, what the next more accurate one would break, and device use.

    `profile` and `trace` replace the paths in the plan file. `devices_too` also plans for one
    device fewer and one more.
    """
    from gearshift.planner.explain import explain as run

    made, measured = plan_and_profile(plan, profile)
    return run(made, measured, trace_for(made, plan, trace), devices_too=devices_too, progress=progress)
