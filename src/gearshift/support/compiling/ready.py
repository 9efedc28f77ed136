"""What has been compiled since the sources last changed, told without importing Numba.

It is a hint: where it says yes wrongly, the first call compiles.
"""

import hashlib
import importlib.metadata
import sys
from contextlib import suppress
from pathlib import Path
from typing import Literal

import platformdirs

Kernel = Literal["gears", "refinement"]

_PACKAGE = Path(__file__).parents[2]


def is_ready(kernel: Kernel) -> bool:
    """Yes, too, where nothing can be kept: what another process compiled would be of no use."""
    try:
        return _mark(kernel).exists()
    except (OSError, RuntimeError):  # no home folder, or one that cannot be read
        return True


def note_ready(kernel: Kernel) -> None:
    with suppress(OSError, RuntimeError):  # no home folder, or one that cannot be written
        mark = _mark(kernel)
        mark.parent.mkdir(parents=True, exist_ok=True)
        for old in mark.parent.glob(f"{kernel}-*"):
            old.unlink(missing_ok=True)
        mark.touch()


def _mark(kernel: Kernel) -> Path:
    digest = hashlib.sha256(f"{sys.version} {importlib.metadata.version('numba')}".encode())
    for folder in ("policies", "simulator", "support/compiling"):
        for file in sorted((_PACKAGE / folder).rglob("*.py")):
            digest.update(f"{file} {file.stat().st_mtime_ns} {file.stat().st_size}\n".encode())
    return Path(platformdirs.user_cache_dir("gearshift")) / "ready" / f"{kernel}-{digest.hexdigest()[:16]}"
