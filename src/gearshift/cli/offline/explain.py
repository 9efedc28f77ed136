"""`gearshift explain`."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.option_table import PATH, options_of
from gearshift.cli.common.options import plan_traces_options, require_supported, take_traces
from gearshift.cli.common.output import Output, verb
from gearshift.cli.views.shown import show
from gearshift.verbs.explain import explain
from gearshift.verbs.kinds.registry import kind_of_plan


@click.command("explain")
@click.argument("plan", type=PATH)
@plan_traces_options
@options_of(explain)
@verb
def command(output: Output, plan: Path, profile: Path | None, devices_too: bool, **trace_arguments: Any) -> None:
    """Say for each load range of PLAN why its cascade serves there.

    Also say what the next more accurate cascade would break.
    """
    found = kind_of_plan(plan)
    require_supported(found, "explain")
    inputs = found.kind.inputs(plan, profile=profile)
    traces = take_traces(
        output.say,
        inputs.plan,
        plan,
        trace_arguments,
        answerable=partial(found.kind.answerable, inputs.records, plan=inputs.plan),
    )
    with output.progress() as tell:
        explained = found.kind.explain(inputs, traces, devices_too=devices_too, progress=tell)
    output.json(explained)
    show(found.kind, "explain:show", output, explained, inputs, is_json=True)
