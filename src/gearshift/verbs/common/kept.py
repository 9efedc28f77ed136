"""Profiles that are written when all is measured; until then what was answered is kept beside them."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice

Made = TypeVar("Made")


class Kept(Protocol):
    """What is kept next to the folder of a profile."""

    def partial_folder(self, profile_folder: Path, /) -> Path: ...

    def kept_files(self, profile_folder: Path, /) -> list[Path]: ...

    def forget(self, profile_folder: Path, /) -> None: ...


def measured_into(
    out: PathLike | None,
    measure: Callable[[Path | None], Made],
    *,
    require_replaceable: Callable[[Path], None],
    write: Callable[[Made, Path], Made],
    kept: Kept,
    notice: Notice,
) -> Made:
    """Measure, write the profile to `out` if that is given, and forget what was kept; after an error say that it is."""
    if out is None:
        return measure(None)
    folder = Path(out)
    require_replaceable(folder)
    try:
        made = write(measure(folder), folder)
    except BaseException:
        if kept.kept_files(folder):
            notice(f"what was answered is kept in {kept.partial_folder(folder)}; the same command goes on from there")
        raise
    kept.forget(folder)
    return made
