"""`gearshift report`."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.foretelling import seconds_for
from gearshift.cli.common.option_table import PATH, options_of
from gearshift.cli.common.options import plan_traces_options, take_trace, take_traces
from gearshift.cli.common.output import Output, verb
from gearshift.errors import require
from gearshift.plans.plan_file import read_plan
from gearshift.verbs.kinds.registry import kind_of_plan
from gearshift.verbs.report import report, report_pipelines
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
    made = read_plan(plan)
    if not made.is_plain:
        require(
            profile is None,
            "--profile is given, which plans of graphs or several pipelines do not have",
            remedy="leave --profile out",
        )
        require(
            replay is None,
            "a page about graphs or several pipelines shows no measured run",
            where="--replay",
            remedy="leave it out, and use `gearshift validate`, which shows what is predicted beside what is measured",
        )
        named = all(source.path for source in made.traces.values()) or bool(trace_arguments["trace"])
        traces = take_traces(output.say, made, plan, trace_arguments) if named else None
        if not named:
            output.say("the plan names no traces, so the page has no simulation; give them with --trace")
        with output.progress() as tell:
            path = report_pipelines(plan, out, traces=traces, simulated=named, progress=tell)
        output.json({"report": str(path)})
        output.say(f"wrote {path}")
        return
    trace = None
    if made.trace.path or trace_arguments["trace"]:
        trace = take_trace(output.say, made, plan, trace_arguments)
        kind = kind_of_plan(made).kind
        kept, left_out = kind.answerable(kind.inputs(plan, profile=profile).records, {made.name: trace}, plan=made)
        for sentence in left_out:
            output.say(sentence)
        trace = kept[made.name]
    else:
        output.say("the plan names no trace, so the page has no simulation; give one with --trace")
    simulated = partial(simulate, plan, profile=profile)
    about_s = 0.0 if trace is None else seconds_for({made.name: trace}, simulated)
    with output.waiting("simulating, and drawing the page", about_s):
        path = report(plan, out, trace=trace, profile=profile, replay=replay)
    output.json({"report": str(path)})
    output.say(f"wrote {path}")
