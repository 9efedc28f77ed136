"""The folder in which models without a plan get one, and the journal that a later plan takes its traffic from."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

from gearshift.errors import require
from gearshift.support.files import PathLike

JOURNAL = "journal.jsonl"
PLAN = "plan.json"


@contextmanager
def folder_of(keep: PathLike | None) -> Iterator[Path]:
    """The folder for project, profile and plan: `keep`, or one that is removed when the block ends.

    `keep` is left as it was found where the block fails before it has a plan.
    """
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="gearshift-") as folder:
            yield Path(folder)
        return
    path = Path(keep)
    there = path.exists() and (not path.is_dir() or any(path.iterdir()))
    require(not there, "is there already", where=str(path), remedy="name a new or empty folder for --keep")
    made = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    finally:
        if not (path / PLAN).exists():
            _empty(path, remove=made)


def _empty(folder: Path, *, remove: bool) -> None:
    for entry in list(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            rmtree(entry)
        else:
            entry.unlink()
    if remove:
        folder.rmdir()


def journal_kept(options: dict[str, Any], keep: PathLike | None) -> dict[str, Any]:
    """The options of a server, which writes a journal into the folder `keep` unless another is named."""
    if keep is None or options.get("journal_path") is not None:
        return options
    return options | {"journal_path": Path(keep) / JOURNAL}
