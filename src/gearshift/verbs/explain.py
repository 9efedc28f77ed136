"""Say why a plan is as it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.profile import Profile
from gearshift.profiles.tuples import JointRecords
from gearshift.support.files import PathLike
from gearshift.verbs.inputs import Progress, plan_and_profile, plan_and_records, silent, trace_for, traces_for
from gearshift.verbs.language.inputs import plan_and_language_profile, plans_language
from gearshift.verbs.options import Option, ProfileOfPlan
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.explain import Explanation
    from gearshift.planner.explain_together import TogetherExplanation
    from gearshift.planner.language.compared.explain import LanguageExplanation


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

    known = plan if isinstance(plan, GearPlan) else read_plan(Path(plan))
    require(not plans_language(known), "the plan is of language models", remedy="call `explain_language`")
    made, measured = plan_and_profile(plan, profile)
    return run(made, measured, trace_for(made, plan, trace), devices_too=devices_too, progress=progress)


def explain_language(
    plan: GearPlan | PathLike,
    trace: Trace | PathLike | None = None,
    *,
    profile: LanguageProfile | PathLike | None = None,
    progress: Progress = silent,
) -> "LanguageExplanation":
    """As `explain`, for a plan of language models; also what certainty is worth on the trace."""
    from gearshift.planner.language.compared.explain import explain_language as run

    made, measured = plan_and_language_profile(plan, profile)
    return run(made, measured, trace_for(made, plan, trace), progress=progress)


def explain_pipelines(
    plan: GearPlan | PathLike,
    traces: Mapping[str, Trace | PathLike] | None = None,
    *,
    profiles: Mapping[str, Profile | PathLike] | None = None,
    joint: Mapping[str, JointRecords] | None = None,
    progress: Progress = silent,
) -> "TogetherExplanation":
    """As `explain`, for graphs and for several pipelines: by tuples, each pipeline among the others.

    `traces` replace some of those that the plan names, `profiles` those of some operators; joint
    records of graphs that `joint` lacks are read from beside the profiles.
    """
    from gearshift.planner.explain_together import explain_together

    made, measured, recorded = plan_and_records(plan, profiles, joint)
    return explain_together(made, measured, recorded, traces_for(made, plan, traces), progress=progress)
