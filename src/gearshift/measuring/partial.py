"""The folder beside a profile that is not finished: what was paid for or waited for is kept there."""

import hashlib
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

KEY_LETTERS = 24
_OURS = re.compile(
    rf"\.?(?:run|answers)-[0-9a-f]{{{KEY_LETTERS}}}-[0-9]{{6,}}\.(?:json|bin)(?:\..*)?|language-.*\.jsonl"
)


def partial_folder(profile_folder: Path) -> Path:
    return profile_folder.resolve().with_name(profile_folder.resolve().name + ".partial")


def kept_files(profile_folder: Path) -> list[Path]:
    folder = partial_folder(profile_folder)
    return sorted(path for path in folder.iterdir() if _OURS.fullmatch(path.name)) if folder.is_dir() else []


def forget(profile_folder: Path) -> None:
    """Delete only what was kept for a profile that is now written."""
    for path in kept_files(profile_folder):
        path.unlink(missing_ok=True)
    with suppress(OSError):  # missing, or it holds other files
        partial_folder(profile_folder).rmdir()


def key_of(content: Any) -> str:
    """A hash of what something that is kept depends on, for the name of its file."""
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:KEY_LETTERS]
