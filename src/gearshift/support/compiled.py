"""Compilation with Numba, and a cache that notices when any compiled source changes.

Numba's cache on disk looks only at the file of the compiled function itself: after a change of a
policy in another module it would silently use the old code. So the cache lies in a folder named
after a hash of all compiled sources. Numba would also name a folder after where the package is
installed; without that, another installation of the same sources finds what one has compiled.
"""

import ctypes
import hashlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import platformdirs
from numba.core import event, ir, types
from numba.core.caching import _CacheLocator
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import get_definition, guard
from numba.core.typed_passes import NopythonTypeInference
from numba.core.typing.ctypes_utils import to_ctypes
from numba.core.untyped_passes import InlineClosureLikes

import gearshift

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(gearshift.__file__).parent
_COMPILED_SOURCES = (
    "policies",
    "simulator",
    "gear.py",
    "decisions.py",
    "clock.py",
    "request.py",
    "support/compiled.py",
    "caches/running/kernel.py",
)
_KEPT_CACHES = 3
_LARGE: set[Any] = set()
"""Functions that take long to compile."""
_TO_CTYPES: Callable[[Any], Any] = to_ctypes


@register_pass(mutates_CFG=False, analysis_only=False)  # type: ignore[no-untyped-call]
class _IndicesFromZero(FunctionPass):
    """Types the indices of arrays as unsigned, for which no code is made that counts from the end.

    That code took a third of the simulator's time at batches of one.
    """

    _name = "gearshift_indices_from_zero"

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            sets = [each for each in block.body if isinstance(each, ir.SetItem)]
            for used in [*sets, *block.find_exprs("getitem")]:
                signature = state.calltypes[used]
                target, index, *value = signature.args
                if isinstance(target, types.Array):
                    del state.calltypes[used]
                    state.calltypes[used] = signature.replace(args=(target, _unsigned(index), *value))
        return True


@register_pass(mutates_CFG=False, analysis_only=False)  # type: ignore[no-untyped-call]
class _AbsentFields(FunctionPass):
    """Replaces fields of named tuples that are None by type with None, so that Numba prunes branches on them.

    It prunes branches on arguments alone, and would compile all code of what a plan does not have.
    """

    _name = "gearshift_absent_fields"

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            for assign in block.find_insts(ir.Assign):
                if _is_absent(assign.value, state.func_ir, state.args):
                    assign.value = ir.Const(None, assign.loc)  # type: ignore[no-untyped-call]
                    state.func_ir._definitions[assign.target.name] = [assign.value]
        return True


def _is_absent(value: Any, func_ir: Any, arguments: Any) -> bool:
    if not isinstance(value, ir.Expr) or value.op != "getattr":
        return False
    source = guard(get_definition, func_ir, value.value)  # type: ignore[no-untyped-call]
    kind = arguments[source.index] if isinstance(source, ir.Arg) else None
    named_tuples: Any = types.BaseNamedTuple
    if not isinstance(kind, named_tuples) or value.attr not in kind.fields:
        return False
    return isinstance(kind[kind.fields.index(value.attr)], types.NoneType)


def _unsigned(index: Any) -> Any:
    tuples: Any = types.BaseTuple
    if isinstance(index, types.Integer):
        return types.uintp
    if isinstance(index, tuples):
        return tuples.from_types([_unsigned(each) for each in index])
    return index


class _Compiler(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        passes: Any = DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        passes.add_pass_after(_AbsentFields, InlineClosureLikes)
        passes.add_pass_after(_IndicesFromZero, NopythonTypeInference)
        passes.finalize()
        return [passes]


_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False, "pipeline_class": _Compiler}
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
    made = _kept(lambda cache: numba.njit(cache=cache, nogil=True, **_OPTIONS)(function))
    _LARGE.add(made)
    return made  # type: ignore[no-any-return]


class _Told(event.Listener):
    """Says why a first call is slow; silent where the cache has the function."""

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"] in _LARGE:
            log.warning("compiling the simulator, once after an install or an update: 20 to 60 s of one processor")

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
    """Compile with our cache folder; without a cache where that folder cannot be written."""
    settings: Any = numba.config
    locator: Any = _CacheLocator
    before, by_path = settings.CACHE_DIR, locator.get_suitable_cache_subpath
    try:
        settings.CACHE_DIR = str(cache_folder())
        locator.get_suitable_cache_subpath = staticmethod(_subfolder)
        return compile_(True)
    except (OSError, RuntimeError):  # no home folder, or one that cannot be written
        return compile_(False)
    finally:
        settings.CACHE_DIR, locator.get_suitable_cache_subpath = before, by_path


def _subfolder(file: str) -> str:
    """A name for each module of the package, as functions of two may have one name at one line."""
    path = Path(file)
    if path.is_relative_to(_PACKAGE):
        return "-".join(path.relative_to(_PACKAGE).with_suffix("").parts)
    return path.parent.name


def cache_folder() -> Path:
    root = Path(platformdirs.user_cache_dir("gearshift")) / "compiled"
    folder = root / sources_hash(_PACKAGE)
    if not folder.exists():
        others = sorted(root.glob("*"), key=lambda p: p.stat().st_mtime, reverse=True) if root.exists() else []
        for old in others[_KEPT_CACHES - 1 :]:
            shutil.rmtree(old, ignore_errors=True)
    return folder


def sources_hash(package: Path) -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for name in _COMPILED_SOURCES:
        path = package / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
