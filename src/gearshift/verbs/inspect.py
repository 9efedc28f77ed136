"""Read and check a plan or a profile, and tell two plans apart."""

from pathlib import Path

from gearshift.gear import GearPlan
from gearshift.planner.space.beside import part_of
from gearshift.plans.plan_diff import PlanDiff
from gearshift.plans.plan_diff import diff as diff_plans
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import is_language_profile, read_language_profile
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile
from gearshift.support.files import PathLike
from gearshift.verbs.inputs import plan_and_profiles
from gearshift.verbs.language.inputs import plan_and_language_profile, plans_language


def profile_beside(plan: GearPlan, path: PathLike) -> LanguageProfile | None:
    """The profile of a plan of language models that was read from `path`, if it is found."""
    place = Path(path)
    found = (place.parent / plan.profile.path).is_dir()
    return plan_and_language_profile(place)[1] if found else None


def inspect(path: PathLike) -> GearPlan | Profile | LanguageProfile:
    """Read and check the plan or profile at `path`; check a plan against its profile, if found."""
    place = Path(path)
    if is_language_profile(place):
        return read_language_profile(place)
    if place.is_dir():
        return read_profile(place)
    made = read_plan(place)
    if plans_language(made):
        profile_beside(made, place)
    elif all((place.parent / source.path).is_dir() for source in made.profiles.values()):
        plan_and_profiles(place)
    return made


def diff_pipelines(a: GearPlan | PathLike, b: GearPlan | PathLike) -> dict[str, PlanDiff | str]:
    """The differences of each pipeline and of its replicas, by name; "a" or "b" where only one plan has it."""
    plans = [plan if isinstance(plan, GearPlan) else read_plan(Path(plan)) for plan in (a, b)]
    found: dict[str, PlanDiff | str] = {}
    for name in {**plans[0].pipelines, **plans[1].pipelines}:
        parts = [part_of(plan, [name]) for plan in plans if name in plan.pipelines]
        found[name] = diff_plans(*parts) if len(parts) == 2 else "a" if name in plans[0].pipelines else "b"
    return found


def diff(a: GearPlan | PathLike, b: GearPlan | PathLike) -> PlanDiff:
    """Return the differences between two plans or plan files."""
    return diff_plans(*(plan if isinstance(plan, GearPlan) else read_plan(Path(plan)) for plan in (a, b)))
