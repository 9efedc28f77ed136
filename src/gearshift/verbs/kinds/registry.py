"""The kinds of engines. The first that knows a plan, a profile or a project has it; rows have the rest."""

from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from gearshift.gear import GearPlan
from gearshift.planner.space.request import Shape
from gearshift.plans.plan_file import read_plan
from gearshift.support.files import PathLike
from gearshift.verbs.kinds.kind import Kind

HERE = "gearshift.verbs.kinds"
PLACES = (
    f"{HERE}.tokens:Tokens",
    f"{HERE}.rows:Rows",
)
"""The module and class of each kind."""
KINDS: tuple[Kind, ...] = tuple(resolve_name(place)() for place in PLACES)


class Found(NamedTuple):
    """A kind, the shape of what was asked about, and what it was, read."""

    kind: Kind
    shape: Shape
    of: Any


def kind_of_plan(plan: GearPlan | PathLike) -> Found:
    made = plan if isinstance(plan, GearPlan) else read_plan(Path(plan))
    kind = next(kind for kind in KINDS if kind.has_plan(made))
    return Found(kind, kind.shape_of(made), made)


def kind_of_profile(profile: object, *, beside: object = None) -> Found:
    """Of a profile, the folder of one, or several of these; `beside` is a plan that they are added to."""
    kind = next(kind for kind in KINDS if kind.has_profile(profile))
    return Found(kind, kind.shape_of(profile, beside=beside), profile)


def kind_of_project(project: Path) -> Kind:
    return next(kind for kind in KINDS if kind.has_project(project))


def kind_of_records(folder: Path) -> Kind:
    return next(kind for kind in KINDS if kind.has_records(folder))
