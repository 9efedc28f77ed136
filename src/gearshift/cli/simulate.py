"""`gearshift simulate`."""

from pathlib import Path
from typing import Any

import click

from gearshift import api
from gearshift.cli.options import PATH, the_trace, trace_options
from gearshift.cli.output import Output, verb
from gearshift.cli.tables import results_table
from gearshift.plan_tables import only_operator


@click.command("simulate", short_help="Predict what serving a trace by a plan comes to.")
@click.argument("plan", type=PATH)
@trace_options
@click.option("--profile", type=PATH, help="The plan's profile, where it has moved.")
@verb
def command(output: Output, plan: Path, profile: Path | None, **trace_arguments: Any) -> None:
    """Predict percentiles, accuracy and utilisation of serving a trace by PLAN."""
    made, measured = api.plan_and_profile(plan, profile)
    trace = the_trace(**trace_arguments)
    run = api.simulate(made, trace, profile=measured, seed=trace_arguments["seed"])
    objective = made.operators[only_operator(made)].objective
    result = run.result(measured, latency_objective_s=objective.latency_s)
    output.json(result)
    output.show(results_table("Predicted", [("gear plan", result)]))
    busy = ", ".join(f"{device} {100 * share:.0f} %" for device, share in list(result.utilisation.items())[:8])
    output.say(f"devices busy: {busy}{', ...' if len(result.utilisation) > 8 else ''}")
    output.say(f"gear shifts: {len(run.shifts)}")
