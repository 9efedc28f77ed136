"""`gearshift report`."""

from pathlib import Path
from typing import Any

import click

from gearshift import api
from gearshift.cli.options import PATH, the_trace, trace_options
from gearshift.cli.output import Output, verb


@click.command("report", short_help="Write a self-contained HTML page about a plan.")
@click.argument("plan", type=PATH)
@trace_options
@click.option("--profile", type=PATH, help="The plan's profile, where it has moved.")
@click.option("--out", type=PATH, default="report.html", show_default=True, help="The page to write.")
@verb
def command(output: Output, plan: Path, profile: Path | None, out: Path, **trace_arguments: Any) -> None:
    """Write a page with charts about PLAN and a simulation of the trace."""
    trace = the_trace(**trace_arguments)
    path = api.report(plan, out, trace=trace, profile=profile)
    output.json({"report": str(path)})
    output.say(f"wrote {path}")
