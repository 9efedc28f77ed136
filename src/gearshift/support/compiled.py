"""Compilation with Numba."""

import ctypes
import fcntl
import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numba
from numba.core import event
from numba.core.typing.ctypes_utils import to_ctypes

from gearshift.support.compiling.cache import Locator, folder_of
from gearshift.support.compiling.passes import Compiler

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

COMPILING = "compiling the simulator, once after an install or an update: 10 to 30 s of one processor"
_LARGE: set[Any] = set()
"""Functions that take long to compile."""
_TO_CTYPES: Callable[[Any], Any] = to_ctypes

_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False, "pipeline_class": Compiler}
"""No reference counts: with named tuples of arrays, inlined functions were 12 times slower."""
_CALLED_BY_COMPILED: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Only compiled code calls these; the wrappers for Python took a quarter of the compilation."""


def inlined(function: F) -> F:
    return numba.njit(forceinline=True, **_CALLED_BY_COMPILED)(function)  # type: ignore[no-any-return]


def apart(function: F) -> F:
    """Compile `function` without inlining: for rare calls, so that their callers stay small."""
    return numba.njit(**_CALLED_BY_COMPILED)(function)  # type: ignore[no-any-return]


def compiled(function: F) -> F:
    """Compile `function` at its first call, or load it from the cache."""
    return _Large(function)  # type: ignore[return-value]


class _Large:
    """A function that takes long to compile: one process does, while others wait, and then load it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.made: Any = _kept(lambda cache: numba.njit(cache=cache, nogil=True, **_OPTIONS)(function))
        self._ready: set[tuple[Any, ...]] = set()
        functools.update_wrapper(self, function)
        _LARGE.add(self.made)

    def __call__(self, *arguments: Any) -> Any:
        kinds = tuple(map(numba.typeof, arguments))
        if kinds not in self._ready:
            with _alone(self.made):
                self.made.compile(kinds)
            self._ready.add(kinds)
        return self.made(*arguments)


@contextmanager
def _alone(made: Any) -> Iterator[None]:
    """Keep other processes from compiling this function."""
    try:
        file = (folder_of(made) / "lock").open("wb")
    except (OSError, RuntimeError):  # nothing is kept, or there is no home folder
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning(COMPILING)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _Told(event.Listener):
    """Says why a first call is slow; silent where the cache has the function."""

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"] in _LARGE:
            log.warning(COMPILING)

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Told())  # type: ignore[no-untyped-call]


def called_by_address(signature: Any, **options: Any) -> Callable[[F], F]:
    """Compile a function now, or load it; it takes arrays as addresses, almost for free."""

    def compile_(function: F) -> F:
        made = _kept(lambda cache: numba.cfunc(signature, cache=cache, error_model="numpy", **options)(function))
        kinds = (signature.return_type, *signature.args)
        named = [ctypes.c_void_p if isinstance(kind, numba.types.CPointer) else _TO_CTYPES(kind) for kind in kinds]
        call: Any = ctypes.CFUNCTYPE(*named)(made.address)
        call.made = made  # the function at that address
        return call  # type: ignore[no-any-return]

    return compile_


def _kept(compile_: Callable[[bool], Any]) -> Any:
    """Compile with our cache; without a cache where that cannot be written."""
    settings: Any = numba.config
    before = settings.CACHE_LOCATOR_CLASSES
    try:
        settings.CACHE_LOCATOR_CLASSES = f"{Locator.__module__}.{Locator.__name__}"
        return compile_(True)
    except RuntimeError:  # no home folder, or one that cannot be written
        return compile_(False)
    finally:
        settings.CACHE_LOCATOR_CLASSES = before
