"""`gearshift report`."""

from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.options import PATH, plan_trace_options, take_trace
from gearshift.cli.common.output import Output, verb
from gearshift.plans.plan_file import read_plan
from gearshift.verbs import plan_request as api


@click.command("report", short_help="Write a self-contained HTML page about a plan.")
@click.argument("plan", type=PATH)
@plan_trace_options
@click.option("--profile", type=PATH, help="The plan's profile, where it has moved.")
@click.option("--out", type=PATH, default="report.html", show_default=True, help="The page to write.")
@verb
def command(output: Output, plan: Path, profile: Path | None, out: Path, **trace_arguments: Any) -> None:
    """Write a page with charts about PLAN and a simulation of its trace, or another."""
    made = read_plan(plan)
    trace = None
    if made.trace.path or trace_arguments["trace"] is not None:
        trace = take_trace(output.say, made, plan, trace_arguments)
    else:
        output.say("the plan names no trace, so that the page has no simulation; give one with --trace")
    path = api.report(plan, out, trace=trace, profile=profile)
    output.json({"report": str(path)})
    output.say(f"wrote {path}")
