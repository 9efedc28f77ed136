"""How a plan names the files that it was made from."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gearshift.gear import GearPlan, SourceFile
from gearshift.profiles.pipelines.profile_folder import Profiles
from gearshift.support.files import PathLike
from gearshift.workload import Trace


def source_file(source: object, out: PathLike | None, sha256: str) -> SourceFile:
    if not isinstance(source, (str, Path)):
        return SourceFile(path="", sha256=sha256)
    path = str(source) if out is None else os.path.relpath(Path(source).resolve(), Path(out).resolve().parent)
    return SourceFile(path=path, sha256=sha256)


def trace_file(source: object, out: PathLike | None, trace: Trace) -> SourceFile:
    named = source_file(source, out, trace.sha256)
    return msgspec.structs.replace(named, reading=trace.reading if named.path else None)


def moved(plan: GearPlan, path: object, out: PathLike | None) -> GearPlan:
    """The plan with the paths of its sources relative to `out`."""
    if not isinstance(path, (str, Path)):
        return plan

    def source(each: SourceFile) -> SourceFile:
        place = (Path(path).parent / each.path).resolve()
        base = Path.cwd() if out is None else Path(out).resolve().parent
        return msgspec.structs.replace(each, path=os.path.relpath(place, base) if each.path else "")

    return msgspec.structs.replace(
        plan,
        profiles={name: source(each) for name, each in plan.profiles.items()},
        traces={name: source(each) for name, each in plan.traces.items()},
    )


def profile_sources(paths: Sequence[Path], measured: Any, out: PathLike | None) -> Any:
    """The source of a profile, or those by operator of several profiles or of a folder of them."""
    if isinstance(measured, Profiles):
        places = {name: paths[0] / name if paths else None for name in measured.operators}
        return {name: source_file(places[name], out, one.sha256) for name, one in measured.operators.items()}
    if isinstance(measured, Mapping):
        return {n: source_file(path, out, one.sha256) for path, (n, one) in zip(paths, measured.items(), strict=True)}
    return source_file(paths[0], out, measured.sha256)


def trace_sources(paths: Any, traces: Any, out: PathLike | None) -> Any:
    """The source of a trace, or those by operator."""
    if isinstance(traces, Mapping):
        return {name: trace_file(paths[name], out, trace) for name, trace in traces.items()}
    return trace_file(paths, out, traces)
