"""The profiles that a plan was made from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.profiles.store import NAME_IT, read_profile


def profile_of_plan(
    plan: GearPlan,
    operator: str,
    folder: Path | None,
    given: Any = None,
    *,
    read: Callable[..., Any] = read_profile,
    where: str = "plan",
) -> tuple[Any, Path | None]:
    """The profile of an operator, and where it is: as given, or named by the plan, which is in `folder`.

    Raises `InvalidInput` where there is none, and for one that the plan was not made from.
    """
    source, several = plan.profiles[operator], len(plan.profiles) > 1
    if given is None:
        remedy = f"give profile{'s' * several}="
        require(
            folder is not None, f"a plan that was not read from a file needs its profile{'s' * several}", remedy=remedy
        )
        given = Path(str(folder)) / source.path
    place = Path(given) if isinstance(given, (str, Path)) else None
    profile = given if place is None else read(place, remedy=NAME_IT)
    require(
        profile.sha256 == source.sha256,
        "the plan was made from another profile" + (f" of operator {operator!r}" if several else ""),
        where=where,
        remedy="make the plan anew with `gearshift plan`, or name its profile",
    )
    return profile, place
