"""`gearshift report`."""

from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.foretelling import seconds_for
from gearshift.cli.common.option_table import PATH, options_of
from gearshift.cli.common.options import plan_traces_options, require_supported, take_traces
from gearshift.cli.common.output import Output, verb
from gearshift.verbs.kinds.kind import Traces
from gearshift.verbs.kinds.registry import kind_of_plan
from gearshift.verbs.report import report
from gearshift.verbs.simulate import simulate


@click.command("report")
@click.argument("plan", type=PATH)
@plan_traces_options
@options_of(report)
@click.option("--out", type=PATH, default="report.html", show_default=True, help="The page to write.")
@verb
def command(
    output: Output, plan: Path, profile: Path | None, replay: Path | None, out: Path, **trace_arguments: Any
) -> None:
    """Write a page with charts about PLAN and a simulation of its trace, or another."""
    found = kind_of_plan(plan)
    require_supported(found, "report")
    made = found.of
    about_s, traces = 0.0, None
    if all(source.path for source in made.traces.values()) or trace_arguments["trace"]:
        traces = take_traces(output.say, made, plan, trace_arguments)

        def simulated(given: Traces) -> Any:
            return simulate(plan, given, profile=profile)

        about_s = seconds_for(traces, simulated)
    else:
        what, them = ("trace", "one") if len(made.pipelines) == 1 else ("traces", "them")
        output.say(f"the plan names no {what}, so the page has no simulation; give {them} with --trace")
    how: dict[str, Any] = {"trace": traces, "profile": profile, "replay": replay, "notice": output.say}
    if about_s:
        with output.waiting("simulating, and drawing the page", about_s):
            path = report(plan, out, **how)
    else:
        with output.progress() as tell:
            path = report(plan, out, progress=tell, **how)
    output.json({"report": str(path)})
    output.say(f"wrote {path}")
