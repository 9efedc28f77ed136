"""Say why a plan is as it is."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from gearshift.gear import GearPlan
from gearshift.profiles.profile import Profile
from gearshift.profiles.tuples import JointRecords
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Progress, silent, traces_of
from gearshift.verbs.common.options import Option, ProfileOfPlan
from gearshift.verbs.kinds.registry import kind_of_plan
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.explain import Explanation
    from gearshift.planner.explain_together import TogetherExplanation
    from gearshift.planner.language.compared.explain import LanguageExplanation


def explain(
    plan: GearPlan | PathLike,
    trace: Trace | PathLike | Mapping[str, Trace | PathLike] | None = None,
    *,
    profile: ProfileOfPlan = None,
    profiles: Mapping[str, Profile | PathLike] | None = None,
    joint: Mapping[str, JointRecords] | None = None,
    devices_too: Annotated[bool, Option("Also plan for one device fewer and one more; takes longer.")] = False,
    progress: Progress = silent,
) -> "Explanation | TogetherExplanation | LanguageExplanation":
    """Explain each range's cascade, what the next more accurate one would break, and device use.

    `profile`, `profiles`, `joint` and `trace` are as in `simulate`. `devices_too` also plans for one
    device fewer and one more. Graphs and several pipelines are explained by tuples of cascades, each
    pipeline among the others; of language models also what certainty is worth on the trace.
    """
    kind, shape, made = kind_of_plan(plan)
    how: dict[str, Any] = {"devices_too": devices_too}
    records: dict[str, Any] = {"profile": profile, "profiles": profiles, "joint": joint}
    kind.require_supported("explain", shape, how | records)
    found: Explanation | TogetherExplanation | LanguageExplanation
    found = kind.explain(kind.inputs(plan, **records), traces_of(made, plan, trace), progress=progress, **how)
    return found
