"""Inputs of verbs for language models: a plan with its profile, and the workload."""

from pathlib import Path
from typing import Any

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.language_workload import LanguageWorkload, draw_language_workload
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import read_language_profile
from gearshift.profiles.pipelines.of_plan import profile_of_plan
from gearshift.profiles.profile import PART_B, Profile
from gearshift.profiles.store import NAME_IT
from gearshift.support.files import PathLike
from gearshift.workload import Trace


def language_profile(profile: object, *, remedy: str = NAME_IT) -> LanguageProfile:
    """Read it where it is a path; raises `InvalidInput` for one of other models."""
    if isinstance(profile, LanguageProfile):
        return profile
    require(not isinstance(profile, Profile), "the profile is not of language models", remedy="give theirs")
    return read_language_profile(Path(str(profile)), remedy=remedy)


def plan_and_language_profile(plan: GearPlan | PathLike, profile: Any = None) -> tuple[GearPlan, LanguageProfile]:
    """The plan, and its profile: as given, or read from the path that the plan names."""
    made = plan if isinstance(plan, GearPlan) else read_plan(Path(plan))
    folder, where = (None, "plan") if isinstance(plan, GearPlan) else (Path(plan).parent, str(plan))
    (operator,) = made.profiles
    return made, profile_of_plan(made, operator, folder, profile, read=read_language_profile, where=where)[0]


def language_workload(profile: LanguageProfile, trace: Trace, *, seed: int | None = None) -> LanguageWorkload:
    """The trace's requests with prompts of part B, and with the trace's tokens where it has them.

    `simulate` and `replay` both serve this workload. Prompts are drawn by `seed`, by default that
    with which the trace was read.
    """
    if seed is None:
        seed = 0 if trace.reading is None else trace.reading.seed
    return draw_language_workload(
        trace,
        profile.answers.indices(PART_B),
        seed=seed,
        prompt_tokens=trace.prompt_tokens,
        output_tokens=trace.output_tokens,
    )
