"""A user's Python code: functions named `file.py:function`, and what goes wrong in them."""

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from gearshift.errors import GearshiftError, InvalidInput, ModelFailed, require
from gearshift.models.config import PROJECT_FILE
from gearshift.support.files import open_to_read

_USER_MODULE = "gearshift_user_"
_SHA256_BY_MODULE: dict[str, str] = {}
_LONGEST_MESSAGE = 500


def call_reference(reference: str, *, where: str) -> Any:
    """Call the function named by `file.py:function`; `where` says where that name was written.

    Raises `InvalidInput` where the function is missing or raises it, `ModelFailed` where it raises
    anything else.
    """
    file, colon, name = reference.rpartition(":")
    usable = bool(colon) and file.endswith(".py") and name.isidentifier()
    require(usable, f"is {reference!r}", where=where, remedy="write it as file.py:function")
    path = Path(file)
    return call_in_folder(f"{path.name}:{name}", path.parent, field=where, where=where)


def call_in_folder(reference: str, directory: Path, *, field: str, where: str = "") -> Any:
    function = function_in_folder(reference, directory, field=field, where=where or f"{PROJECT_FILE}, field {field}")
    try:
        return function()
    except InvalidInput as error:
        where = ", ".join(filter(None, (reference, error.where)))
        raise InvalidInput(error.what, where=where, remedy=error.remedy) from error
    except GearshiftError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelFailed(f"{reference} raised {said_in_one_line(error)}") from error


def function_in_folder(reference: str, directory: Path, *, field: str, where: str) -> Callable[..., Any]:
    file, _, name = reference.rpartition(":")
    path = directory / file
    if Path(file).is_absolute():
        directory = path.parent
    require(path.is_file(), f"there is no file {path}", where=where, remedy="write it as file.py:function")
    try:
        module = _imported(path.resolve(), directory.resolve())
    except (Exception, SystemExit) as error:
        raise ModelFailed(f"{path} raised {said_in_one_line(error)} when it was imported for {field}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidInput(
            f"{path} has no function {name!r}", where=where, remedy="write the function or mend the name"
        )
    return function  # type: ignore[no-any-return]


def source_sha256(reference: str, directory: Path) -> str:
    """The SHA-256 of the file of `file.py:function`, as it was when `function_in_folder` imported it."""
    return _SHA256_BY_MODULE[_module_name((directory / reference.rpartition(":")[0]).resolve())]


def _module_name(path: Path) -> str:
    return f"{_USER_MODULE}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


def _imported(path: Path, directory: Path) -> ModuleType:
    """Import a file once, under a unique module name; its folder joins `sys.path`."""
    name = _module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    with open_to_read(path) as file:
        _SHA256_BY_MODULE[name] = hashlib.sha256(file.readall()).hexdigest()
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def said_in_one_line(error: BaseException) -> str:
    """One line about an exception: type, message, and the line in the user's file."""
    text = " ".join(str(error).split())
    if len(text) > _LONGEST_MESSAGE:
        text = text[:_LONGEST_MESSAGE] + "..."
    place, step = "", error.__traceback__
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__", "")).startswith(_USER_MODULE):
            place = f" ({Path(step.tb_frame.f_code.co_filename).name}, line {step.tb_lineno})"
        step = step.tb_next
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"
