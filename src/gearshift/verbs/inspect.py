"""Read and check a plan or a profile, and tell two plans apart."""

from pathlib import Path

from gearshift.gear import GearPlan
from gearshift.plans.plan_diff import PlanDiff
from gearshift.plans.plan_diff import diff as diff_plans
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile
from gearshift.support.files import PathLike
from gearshift.verbs.inputs import plan_and_profile


def inspect(path: PathLike) -> GearPlan | Profile:
    """Read and check the plan or profile at `path`; check a plan against its profile, if found."""
    place = Path(path)
    if place.is_dir():
        return read_profile(place)
    made = read_plan(place)
    if len(made.profiles) == 1 and (place.parent / made.profile.path).is_dir():
        plan_and_profile(place, None)
    return made


def diff(a: GearPlan | PathLike, b: GearPlan | PathLike) -> PlanDiff:
    """Return the differences between two plans or plan files."""
    return diff_plans(*(plan if isinstance(plan, GearPlan) else read_plan(Path(plan)) for plan in (a, b)))
