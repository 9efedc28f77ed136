"""Write a page about a plan."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from gearshift.support.files import PathLike, write_atomically
from gearshift.verbs.common.inputs import Notice, Progress, noted, silent, traces_of
from gearshift.verbs.common.options import Option, ProfileOfPlan
from gearshift.verbs.kinds.registry import kind_of_plan
from gearshift.workload import Trace

UNKNOWN = "Without a trace nothing was simulated."
"""The note on a page of a plan whose trace is not known."""


def report(
    plan: PathLike,
    out: PathLike,
    *,
    trace: Trace | PathLike | Mapping[str, Trace | PathLike] | None = None,
    profile: ProfileOfPlan = None,
    replay: Annotated[
        PathLike | None,
        Option(
            "Also show this measurement, over time too: what `gearshift replay` wrote with --json, or the .csv of its "
            "--log. Not for graphs, several pipelines or language models."
        ),
    ] = None,
    progress: Progress = silent,
    notice: Notice = noted,
) -> Path:
    """Write a self-contained HTML page about a plan, with a simulation of its trace or of `trace`.

    For several pipelines `trace` is a mapping that replaces some of the plan's own. Where the trace of
    some pipeline is known neither way the page has no simulation. `replay` is a file with a measured
    run, which is shown beside what is predicted. `notice` is called where the plan's own trace may have
    changed, and for requests that no language model can hold.
    """
    from gearshift.reporting.drawing.page import html_page

    kind, shape, made = kind_of_plan(plan)
    kind.require_supported("report", shape, {"profile": profile, "replay": replay})
    known = trace is not None or all(source.path for source in made.traces.values())
    arrivals = traces_of(made, plan, trace, notice=notice) if known else {}
    sections = kind.sections(plan, made, arrivals, profile=profile, replay=replay, progress=progress, notice=notice)
    progress("drawing the page", 1.0)
    note = "" if known else UNKNOWN
    write_atomically(Path(out), html_page(f"Gear plan for {', '.join(made.pipelines)}", note, sections).encode())
    return Path(out)
