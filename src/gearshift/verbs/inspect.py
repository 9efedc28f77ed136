"""Read and check a plan or a profile, and say how two plans differ."""

from pathlib import Path

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.plans.plan_diff import PlanDiff
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.profile import Profile
from gearshift.support.files import PathLike
from gearshift.verbs.kinds.kind import Kind
from gearshift.verbs.kinds.registry import kind_of_plan, kind_of_profile


def inspect(path: PathLike) -> GearPlan | Profile | LanguageProfile:
    """Read and check the plan or profile at `path`; check a plan against its profile, if found."""
    found: GearPlan | Profile | LanguageProfile = kind_at(Path(path)).inspect(Path(path))
    return found


def kind_at(path: Path) -> Kind:
    """The kind of the profile in a folder, or of a plan file."""
    return kind_of_profile(path).kind if path.is_dir() else kind_of_plan(path).kind


def diff(a: GearPlan | PathLike, b: GearPlan | PathLike) -> PlanDiff | dict[str, PlanDiff | str]:
    """Return the differences between two plans or plan files.

    Where one has several pipelines, they are by name, with "a" or "b" for those that only one plan has.
    """
    plans = [plan if isinstance(plan, GearPlan) else read_plan(Path(plan)) for plan in (a, b)]
    first, second = (kind_of_plan(plan).kind for plan in plans)
    require(
        first is second,
        f"the first plan is of {first.name}, and the second of {second.name}",
        remedy="give two of one kind",
    )
    found: PlanDiff | dict[str, PlanDiff | str] = first.diff(*plans)
    return found
