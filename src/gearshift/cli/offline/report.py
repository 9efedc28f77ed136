"""`gearshift report`."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.foretelling import seconds_for
from gearshift.cli.common.option_table import PATH, options_of
from gearshift.cli.common.options import plan_traces_options, take_trace, take_traces
from gearshift.cli.common.output import Output, verb
from gearshift.gear import GearPlan
from gearshift.plans.plan_file import read_plan
from gearshift.verbs.language.inputs import plans_language
from gearshift.verbs.report import report
from gearshift.verbs.simulate import simulate, simulate_language
from gearshift.workload import Trace


def simulate_plan(made: GearPlan, path: Path, profile: Path | None, trace: Trace) -> None:
    if plans_language(made):
        simulate_language(path, trace, profile=profile)
    else:
        simulate(path, trace, profile=profile)


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
    made, about_s, traces = read_plan(plan), 0.0, dict[str, Trace]()
    if all(source.path for source in made.traces.values()) or trace_arguments["trace"]:
        if made.is_plain:
            traces = {made.name: take_trace(output.say, made, plan, trace_arguments)}
            about_s = seconds_for(traces[made.name], partial(simulate_plan, made, plan, profile))
        else:
            traces = take_traces(output.say, made, plan, trace_arguments)
    else:
        what, them = ("trace", "one") if made.is_plain else ("traces", "them")
        output.say(f"the plan names no {what}, so the page has no simulation; give {them} with --trace")
    how: dict[str, Any] = {"trace": traces or None, "profile": profile, "replay": replay, "notice": output.say}
    if about_s:
        with output.waiting("simulating, and drawing the page", about_s):
            path = report(plan, out, **how)
    else:
        with output.progress() as tell:
            path = report(plan, out, progress=tell, **how)
    output.json({"report": str(path)})
    output.say(f"wrote {path}")
