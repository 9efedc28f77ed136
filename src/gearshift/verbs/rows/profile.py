"""Measure models of rows, or import records of them."""

from pathlib import Path
from typing import Any

from gearshift.models.config import read_project
from gearshift.profiles.pipelines.profile_folder import Profiles, require_folder_replaceable, write_profiles
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import require_replaceable, write_profile
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice
from gearshift.verbs.common.kept import measured_into


def has_several(project: Path) -> bool:
    """Whether a project file has several operators, or pipelines."""
    declared = read_project(project) if project.is_file() else None
    return declared is not None and (bool(declared.pipelines) or len(declared.operators) > 1)


def profile(project: Path, *, out: PathLike | None, notice: Notice, timed: Any, **how: Any) -> Profile | Profiles:
    """As `gearshift.profile`; what endpoints answered is kept."""
    from gearshift.measuring.front_end_time import front_end_beside
    from gearshift.measuring.profile_pipelines import profile_pipelines

    if not has_several(project):
        return profile_one(project, out=out, notice=notice, timed=timed, **how)
    how |= {"front_end": front_end_beside, "notice": notice}
    return measured_into(
        out,
        lambda folder: profile_pipelines(project, folder=folder, **how),
        require_replaceable=require_folder_replaceable,
        write=write_profiles,
        notice=notice,
    )


def profile_one(project: Path, *, out: PathLike | None, notice: Notice, **how: Any) -> Profile:
    """The same for a project of one operator; `how` is as of `profile_project`."""
    from gearshift.measuring.front_end_time import front_end_beside
    from gearshift.measuring.profile_project import profile_project

    how |= {"front_end": front_end_beside, "notice": notice}
    return measured_into(
        out,
        lambda folder: profile_project(project, folder=folder, **how),
        require_replaceable=require_replaceable,
        write=write_profile,
        notice=notice,
    )


def profile_from_records(folder: Path, *, out: PathLike | None, certainty: str | None = None, **how: Any) -> Profile:
    """As `gearshift.profile_from_records`."""
    from gearshift.profiles import records

    if out is not None:
        require_replaceable(Path(out))
    made = records.profile_from_records(folder, **how)
    return made if out is None else write_profile(made, Path(out))
