"""Inputs of verbs: a plan with its profile, a trace, and the workload of both."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan, SourceFile
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.profile import PART_B, Profile
from gearshift.profiles.store import TUPLES_FILE
from gearshift.support.files import PathLike
from gearshift.traces.read import read_as_for
from gearshift.workload import Trace, Workload, draw_workload

if TYPE_CHECKING:
    from gearshift.profiles.pipelines.profile_folder import Profiles
    from gearshift.profiles.tuples import JointRecords

Progress = Callable[[str, float], None]
Notice = Callable[[str], None]

log = logging.getLogger(__name__)
noted: Notice = log.warning


def silent(what: str, share: float) -> None:
    """Report no progress."""


def plan_and_profiles(
    plan: GearPlan | PathLike, profiles: Mapping[str, Profile | PathLike] | None = None
) -> tuple[GearPlan, dict[str, Profile]]:
    """The plan and the profiles of its operators; `profiles` replace the paths in its file."""
    from gearshift.profiles.pipelines.of_plan import profile_of_plan

    made, given = plan if isinstance(plan, GearPlan) else read_plan(Path(plan)), profiles or {}
    unknown = sorted(given.keys() - made.profiles.keys())
    require(not unknown, f"the plan has no operators {unknown}", remedy=f"name some of {sorted(made.profiles)}")
    folder, where = (None, "plan") if isinstance(plan, GearPlan) else (Path(plan).parent, str(plan))
    measured = {name: profile_of_plan(made, name, folder, given.get(name), where=where)[0] for name in made.profiles}
    return made, measured


def plan_and_records(
    plan: GearPlan | PathLike,
    profiles: Mapping[str, Profile | PathLike] | None = None,
    joint: "Mapping[str, JointRecords] | None" = None,
) -> "tuple[GearPlan, dict[str, Profile], dict[str, JointRecords]]":
    """The plan, the profiles of its operators, and the joint records of its graphs.

    Those that `joint` lacks are read from the folder that holds the profile of the output's
    operator.
    """
    from gearshift.profiles.pipelines.profile_folder import read_tuples

    made, measured = plan_and_profiles(plan, profiles)
    found = dict(joint or {})
    for name, pipeline in made.pipelines.items():
        if not pipeline.is_graph or name in found:
            continue
        operator = pipeline.nodes[pipeline.output].operator
        place = (profiles or {}).get(operator)
        if place is None and not isinstance(plan, GearPlan):
            place = Path(plan).parent / made.profiles[operator].path
        if place is None or isinstance(place, Profile):
            raise InvalidInput(f"there are no joint records of pipeline {name!r}", remedy="give joint=")
        folder = Path(place).parent / name
        require(
            (folder / TUPLES_FILE).is_file(),
            f"pipeline {name!r} has no joint records, without which nobody knows how its operators err together",
            where=str(folder),
            remedy="profile it with samples of its requests, or write tuples.csv",
        )
        found[name] = read_tuples(folder, pipeline.nodes, pipeline.edges, measured)
    return made, measured, found


def traces_of(
    plan: GearPlan,
    path: GearPlan | PathLike,
    trace: Trace | PathLike | Mapping[str, Trace | PathLike | None] | None = None,
    *,
    only: str | None = None,
    seed: int | None = None,
    notice: Notice = noted,
) -> dict[str, Trace]:
    """The trace of each pipeline, or of `only` one; one without a name is that of the only pipeline."""
    given = dict(trace) if isinstance(trace, Mapping) else {"": trace}
    unnamed = given.pop("", None)
    if unnamed is not None:
        several = only is None and len(plan.pipelines) > 1
        require(not several, "one trace is given", remedy="give a mapping by pipeline")
        given[only or plan.name] = unnamed
    return traces_for(plan, path, given, only=only, seed=seed, notice=notice)


def traces_for(
    plan: GearPlan,
    path: GearPlan | PathLike,
    traces: Mapping[str, Trace | PathLike | None] | None = None,
    *,
    only: str | None = None,
    notice: Notice = noted,
    **given: Any,
) -> dict[str, Trace]:
    """The trace of each pipeline, or of `only` one, as `trace_for` reads that of the only one."""
    named = {*(traces or {}), *([] if only is None else [only])}
    unknown = sorted(named - plan.pipelines.keys())
    require(not unknown, f"the plan has no pipelines {unknown}", remedy=f"name some of {sorted(plan.pipelines)}")
    return {
        name: _trace_for(source, path, (traces or {}).get(name), notice=notice, **given)
        for name, source in plan.traces.items()
        if only in (None, name)
    }


def trace_for(
    plan: GearPlan | None,
    path: GearPlan | PathLike,
    trace: Trace | PathLike | None = None,
    *,
    notice: Notice = noted,
    **given: Any,
) -> Trace:
    """Read the plan's own trace as it was read for the plan, except for options in `given`.

    A `trace` that is the same file is read in the same way; a different one by the defaults.
    `path` is the plan file; where it is a URL, `plan` is None. `notice` is called where the plan's
    own trace may have changed. Raises `InvalidInput` where no trace is named.
    """
    if isinstance(trace, Trace):
        return trace
    if plan is None:
        remedy = "give one with --trace: a URL names none"
        require(trace is not None, "no trace is given", where=str(path), remedy=remedy)
        return read_as_for(None, Path(trace), the_same=False, **given)  # type: ignore[arg-type]
    return _trace_for(plan.trace, path, trace, notice=notice, **given)


def _trace_for(
    source: SourceFile, path: GearPlan | PathLike, trace: Trace | PathLike | None, *, notice: Notice, **given: Any
) -> Trace:
    if isinstance(trace, Trace):
        return trace
    place = None if isinstance(path, GearPlan) else Path(path).parent / source.path
    if trace is not None:
        made = read_as_for(source.reading, Path(trace), the_same=False, **given)
        own = place is not None and place.resolve() == Path(trace).resolve()
    elif place is None:
        raise InvalidInput("a plan that was not read from a file needs its trace", remedy="give trace=")
    else:
        require(bool(source.path), "the plan names no trace", where=str(path), remedy="give one with --trace")
        remedy = "name the plan's trace with --trace"
        made, own = read_as_for(source.reading, place, the_same=True, remedy=remedy, **given), True
    as_it_is = all(value is None for name, value in given.items() if name != "seed")
    if own and (doubt := _doubt_of(source, made, as_it_is=as_it_is)):
        notice(doubt)
    return made


def _doubt_of(source: SourceFile, made: Trace, *, as_it_is: bool) -> str | None:
    if source.reading is None:
        if as_it_is and made.sha256 != source.sha256:
            return (
                f"the plan does not say how {source.path} was read for it, and it is read as it is now, which is not "
                "what the plan was made from: give what was given to `gearshift plan` of --rate-scale, --start-s, "
                "--duration-s, --arrivals and --seed (from Python, the trace that `read_trace` makes with them)"
            )
    elif made.reading is not None and made.reading.file_sha256 != source.reading.file_sha256:
        return f"{source.path} has changed since the plan was made from it"
    return None


def workload_of(recorded: "Profile | JointRecords", trace: Trace, *, seed: int | None = None) -> Workload:
    """Attach to the trace the samples, or tuples, on which accuracy is reported (part B).

    `simulate` and `replay` both serve this workload. Samples are drawn by `seed`, by default the
    seed the trace was read with. The trace's deadlines are kept; planners ignore them.
    """
    records = recorded.predictions if isinstance(recorded, Profile) else recorded
    return workload_on(records.indices(PART_B), trace, seed=seed)


def workload_on(records: NDArray[np.int32], trace: Trace, *, seed: int | None = None) -> Workload:
    """As `workload_of`, with the numbers of recorded samples, or tuples."""
    if seed is None:
        seed = 0 if trace.reading is None else trace.reading.seed
    return replace(draw_workload(trace, records, seed=seed), deadline_ns=trace.deadline_ns)


def pipeline_of(measured: "Profiles", name: str | None) -> str:
    """The pipeline of that name, or the only one; raises `InvalidInput` where it was not recorded."""
    if name is None:
        require(
            len(measured.pipelines) == 1,
            f"the profile has pipelines {sorted(measured.pipelines)}",
            remedy="name one with --pipeline",
        )
        name = next(iter(measured.pipelines))
    if name not in measured.pipelines:
        raise InvalidInput(
            f"the profile has no pipeline {name!r}", remedy=f"name one of {', '.join(sorted(measured.pipelines))}"
        )
    require(
        name in measured.tuples,
        f"pipeline {name!r} has no joint records, without which nobody knows how its operators err together",
        remedy="profile it with samples of its requests, or write tuples.csv",
    )
    return name
