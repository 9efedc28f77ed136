"""Where compiled functions are kept, by what they are made of.

Numba's own cache looks only at the file of the compiled function: after a change of a policy in
another module it would silently use the old code. Here a function is kept by a hash of all code
and all constants that it reaches, so that a comment or a module that it does not use changes nothing,
and another installation of the same sources finds what one has compiled.
"""

import dis
import hashlib
import inspect
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
import platformdirs
from numba.core.dispatcher import Dispatcher

_KEPT = 16
_COMPILERS = sorted(Path(__file__).parent.glob("*.py"))
"""How we have it compiled."""
_HAS_CONSTANT = frozenset(dis.hasconst)


class Locator:
    """Tells Numba's cache where a function lies; its setting `CACHE_LOCATOR_CLASSES` names this class."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._folder = folder_of(function)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> "Locator | None":
        """None where nothing can be kept."""
        locator = cls(function)
        try:
            locator.ensure_cache_path()
        except OSError:
            return None
        return locator

    def ensure_cache_path(self) -> None:
        if not self._folder.exists():
            _forget_oldest(self._folder.parent)
            self._folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=self._folder).close()  # raises where it cannot be written

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._folder.name

    def get_disambiguator(self) -> str:
        return ""


def folder_of(function: Any) -> Path:
    module, _, rest = function.__module__.partition(".")
    name = "-".join((*(rest or module).split("."), function.__name__))
    return Path(platformdirs.user_cache_dir("gearshift")) / "compiled" / f"{name}-{key_of(function)}"


def _forget_oldest(root: Path) -> None:
    """Make room for one more."""
    kept = sorted(root.glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in kept[_KEPT - 1 :]:
        shutil.rmtree(old, ignore_errors=True)


def key_of(function: Any) -> str:
    """A hash of what `function` is compiled from: it, all that it calls, and constants, without docstrings."""
    digest = hashlib.sha256(numba.__version__.encode() + b"".join(map(Path.read_bytes, _COMPILERS)))
    for part in _Parts().of_function(inspect.unwrap(function)):
        digest.update(repr(part).encode())
    return digest.hexdigest()[:16]


class _Parts:
    """Goes once through each function and class that is reached."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def of_function(self, function: FunctionType) -> Iterator[object]:
        code, scope = function.__code__, function.__globals__
        yield function.__defaults__
        yield from _operations(code)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        read = {name: scope[name] for name in _names(code) if name in scope}
        read |= dict(zip(code.co_freevars, cells, strict=True))
        for module in [each for each in read.values() if isinstance(each, ModuleType)]:
            read |= {name: vars(module)[name] for name in _names(code) if name in vars(module)}
        for name, value in read.items():
            yield name
            yield from self.of_value(value)
        if id(scope) not in self._seen:
            self._seen.add(id(scope))
            for value in scope.values():  # what comes in these is found by the place of its field
                if isinstance(value, type) and issubclass(value, tuple):
                    yield value.__name__, getattr(value, "_fields", ())

    def of_value(self, value: Any) -> Iterator[object]:
        if isinstance(value, int | float | str | tuple | None):
            yield value
        elif isinstance(value, set):
            yield sorted(value)
        elif isinstance(value, np.ndarray):
            yield value.dtype, value.shape, value.tobytes()
        elif id(value) not in self._seen:
            self._seen.add(id(value))
            yield from self._of_object(value)

    def _of_object(self, value: Any) -> Iterator[object]:
        if isinstance(value, Dispatcher):
            for name, option in sorted(value.targetoptions.items()):
                yield name
                yield from self.of_value(option)
            yield from self.of_function(value.py_func)
        elif not getattr(value, "__module__", "").startswith("gearshift."):
            yield getattr(value, "__name__", type(value).__name__)
        elif isinstance(value, FunctionType):
            yield from self.of_function(value)
        elif isinstance(value, type):
            for name, member in vars(value).items():
                yield name
                if isinstance(member, FunctionType):
                    yield from self.of_function(member)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _operations(code: CodeType) -> Iterator[object]:
    """The bytecode, and the constants in the order of their use: their numbers change with a docstring."""
    operations, used = bytearray(code.co_code), []
    for at in range(0, len(operations), 2):
        if operations[at] in _HAS_CONSTANT:
            used.append(code.co_consts[operations[at + 1]])
            operations[at + 1] = 0
    yield code.co_argcount, code.co_names, bytes(operations)
    for constant in used:
        if isinstance(constant, CodeType):
            yield from _operations(constant)
        else:
            yield constant
