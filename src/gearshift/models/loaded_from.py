"""Hashes of the files and settings that models were loaded from, to notice a replaced model.

These are the files of the project's own code, the files that were read while a model was loaded,
and its settings in `gearshift.toml`.
"""

import builtins
import hashlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gearshift.errors import InvalidInput
from gearshift.support.files import open_to_read

if TYPE_CHECKING:
    from gearshift.models.config import Project

MIB = 1 << 20
WHOLE_BYTES = 64 * MIB
"""Larger files are hashed only up to this many bytes: weights trained anew differ everywhere."""
NOT_OF_ANSWERS = frozenset({"memory_mib", "environment", "remote"})
OF_ADAPTATION = ("state.json", "versions")
"""Files next to the manifest of learned caches that serving itself changes."""
CACHES_MANIFEST = "manifest.json"
BESIDE_ONNX = (".data", "_data")
REMEDY = "what was measured may not hold; profile again"

_opened: set[str] | None = None


class LoadedFrom(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hashes of a model's settings, and of its files by path relative to the project."""

    model: str
    settings: str
    files: dict[str, str] = {}


@contextmanager
def files_read() -> Iterator[set[str]]:
    """Collect the files that Python code opens in the block, and those named to `note_read`."""
    global _opened  # noqa: PLW0603
    seen: set[str] = set()
    really = io.open

    def noting(file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if isinstance(file, str | bytes | os.PathLike) and not set(mode) & set("wax+"):
            seen.add(os.fsdecode(file))
        return really(file, mode, *arguments, **named)

    _opened = seen
    builtins.open = io.open = noting
    try:
        yield seen
    finally:
        builtins.open = io.open = really
        _opened = None


def note_read(path: Path | str) -> None:
    """Count among `files_read` a file that code other than Python is about to read."""
    if _opened is not None:
        _opened.add(str(path))


def files_of(project: "Project", directory: Path, model: str, opened: Sequence[str]) -> dict[str, str]:
    """Hash the files of a model just loaded: the project's own code, and the `opened` ones."""
    directory = directory.resolve()
    code = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    found = {Path(file).resolve() for file in code if file}
    loader, colon, _ = project.models[model].load.rpartition(":")
    own = directory if not colon or project.models[model].registry else (directory / loader).resolve().parent
    found = {path for path in found if path.is_relative_to(directory) or path.is_relative_to(own)}
    found |= {Path(os.path.abspath(file)).resolve() for file in opened}
    settings = project.models[model]
    if settings.is_onnx_file:
        file = (directory / settings.load).resolve()
        found |= {file, *(file.with_name(file.name + suffix) for suffix in BESIDE_ONNX)}
    return {_name(path, directory): fingerprint(path) for path in sorted(found) if _counts(path)}


def settings_of(project: "Project", model: str) -> str:
    """Hash the settings that a model's answers depend on, except for defaults."""
    from gearshift.models.remote_settings import OF_ASKING, OF_REACHING

    settings = project.models[model]
    given = _given(settings, NOT_OF_ANSWERS)
    remote = {} if settings.remote is None else _given(settings.remote, frozenset(OF_ASKING + OF_REACHING))
    return _hash(msgspec.json.encode([project.operator_with(model).certainty, given, remote], order="deterministic"))


def fingerprint(path: Path) -> str:
    """Hash a file's content, of a large file only parts; empty if unreadable."""
    try:
        with open_to_read(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= WHOLE_BYTES:
                return _hash(file.readall())
            digest = hashlib.sha256(str(size).encode())
            parts = WHOLE_BYTES // MIB
            for part in range(parts):
                file.seek(part * (size - MIB) // (parts - 1))
                digest.update(file.read(MIB))
            return digest.hexdigest()
    except (OSError, InvalidInput):
        return ""


def changes(loaded_from: Sequence[LoadedFrom], project_path: Path) -> list[str]:
    """Describe why models may differ from the profiled ones, one sentence per set of causes.

    Missing files outside of the project are ignored: profile and project may have moved to another
    machine.
    """
    try:
        from gearshift.models.config import read_project

        project = read_project(project_path)
    except InvalidInput:
        return []  # reported where the project is needed
    directory = project_path.resolve().parent
    now: dict[str, str] = {}
    causes: dict[tuple[str, ...], list[str]] = {}
    for one in loaded_from:
        if one.model not in project.models:
            continue
        changed = []
        if settings_of(project, one.model) != one.settings:
            changed.append(f"its settings in {project_path.name}")
        for name, before in one.files.items():
            path = directory / name
            if path.is_file() or not Path(name).is_absolute():
                now.setdefault(name, fingerprint(path))
                if now[name] != before:
                    changed.append(name)
        if changed:
            causes.setdefault(tuple(changed), []).append(one.model)
    return [
        f"model{'s' if len(models) > 1 else ''} {', '.join(map(repr, models))} may have been replaced since profiling: "
        f"{_listed(changed)} changed; {REMEDY}"
        for changed, models in causes.items()
    ]


def _listed(changed: Sequence[str], most: int = 4) -> str:
    more = f" and {len(changed) - most} more" if len(changed) > most else ""
    return ", ".join(changed[:most]) + more


def _given(settings: Any, without: frozenset[str]) -> dict[str, Any]:
    fields = {field.name: getattr(settings, field.name) for field in msgspec.structs.fields(settings)}
    defaults = {field.name: field.default for field in msgspec.structs.fields(settings)}
    return {name: value for name, value in fields.items() if name not in without and value and value != defaults[name]}


def _name(path: Path, directory: Path) -> str:
    return os.path.relpath(path, directory) if path.is_relative_to(directory) else str(path)


def _counts(path: Path) -> bool:
    """Whether a file belongs to a model: not part of the system or a library, nor adapted."""
    libraries = (*map(Path, {sys.prefix, sys.base_prefix}), Path("/proc"), Path("/sys"), Path("/dev"), Path("/etc"))
    in_library = any(path.is_relative_to(library) for library in libraries) or "site-packages" in path.parts
    adapted = any(
        (folder / CACHES_MANIFEST).exists() and path.relative_to(folder).parts[0] in OF_ADAPTATION
        for folder in path.parents
    )
    return path.is_file() and path.suffix != ".pyc" and not in_library and not adapted


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
