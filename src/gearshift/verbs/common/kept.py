"""Profiles that are written when all is measured; until then what was answered is kept beside them."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice

Made = TypeVar("Made")


def measured_into(
    out: PathLike | None,
    measure: Callable[[Path | None], Made],
    *,
    require_replaceable: Callable[[Path], None],
    write: Callable[[Made, Path], Made],
    notice: Notice,
) -> Made:
    """Measure, write the profile to `out` if that is given, and delete what was kept; after an error name it."""
    from gearshift.measuring.partial import forget, kept_files, partial_folder

    if out is None:
        return measure(None)
    folder = Path(out)
    require_replaceable(folder)
    try:
        made = write(measure(folder), folder)
    except BaseException:
        if kept_files(folder):
            notice(f"what was answered is kept in {partial_folder(folder)}; the same command goes on from there")
        raise
    forget(folder)
    return made
