"""Compilation with Numba: policies as they are, and a cache that notices when any compiled source changes.

Numba's cache on disk looks only at the file of the compiled function itself: a policy changed in another module
would silently keep its old form.  So the cache lies in a folder named after a hash of every source compiled in.
"""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import platformdirs

import gearshift

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(gearshift.__file__).parent
_COMPILED_SOURCES = ("policies", "simulator", "gear.py", "decisions.py")
_KEPT_CACHES = 3
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
"""No reference counts: counting the arrays of every named tuple passed to an inlined function cost a factor of 12."""
_CALLED_BY_COMPILED: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""What only compiled code calls needs no way in from Python: making those was a quarter of the compilation."""


def inlined(function: F) -> F:
    """`function` compiled, and inlined wherever compiled code calls it."""
    return numba.njit(forceinline=True, **_CALLED_BY_COMPILED)(function)  # type: ignore[no-any-return]


def apart(function: F) -> F:
    """`function` compiled once and called, for what runs seldom: the code around it stays small."""
    return numba.njit(**_CALLED_BY_COMPILED)(function)  # type: ignore[no-any-return]


def compiled(function: F) -> F:
    """`function` compiled at its first call, or loaded from the cache."""
    settings: Any = numba.config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(cache_folder())
    try:
        return numba.njit(cache=True, nogil=True, **_OPTIONS)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # nowhere to write: compile anew in each process
        return numba.njit(nogil=True, **_OPTIONS)(function)  # type: ignore[no-any-return]
    finally:
        settings.CACHE_DIR = before


def cache_folder() -> Path:
    """Where compiled code of just these sources is kept; older folders are thrown away."""
    root = Path(platformdirs.user_cache_dir("gearshift")) / "compiled"
    folder = root / sources_hash(_PACKAGE)
    if not folder.exists():
        others = sorted(root.glob("*"), key=lambda p: p.stat().st_mtime, reverse=True) if root.exists() else []
        for old in others[_KEPT_CACHES - 1 :]:
            shutil.rmtree(old, ignore_errors=True)
    return folder


def sources_hash(package: Path) -> str:
    """A hash of every source that is compiled in."""
    digest = hashlib.sha256(numba.__version__.encode())
    for name in _COMPILED_SOURCES:
        path = package / name
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
