"""`gearshift validate`."""

from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.option_table import PATH, options_of
from gearshift.cli.common.options import plan_traces_options, take_trace, take_traces
from gearshift.cli.common.output import EXIT_NOT_WITHIN, Output, verb
from gearshift.cli.common.tables import (
    ratios_told,
    runs_table,
    split_table,
    tell_generator,
    tell_overheads,
    validation_table,
)
from gearshift.cli.views.tokens.replay import validate_of_language
from gearshift.errors import require
from gearshift.plans.plan_file import read_plan
from gearshift.verbs.tokens.inputs import plans_language
from gearshift.verbs.validate import Validation, validate, validate_each


@click.command("validate")
@click.argument("plan", type=PATH)
@plan_traces_options
@options_of(validate, without=("binary", "priority", "ca_file"))
@click.option("--within", help="Exit with 5 where the predicted p95 is off by more than this, such as 5%.")
@click.option("--within-points", type=float, help="... where the share late, or accuracy, is off by more than this.")
@verb
def command(output: Output, plan: Path, within: str | None, within_points: float | None, **options: Any) -> None:
    """Serve PLAN, replay a trace against it, simulate the same, and report prediction errors.

    PLAN is served in a separate process. Errors are signed: positive if too much was predicted. All
    pipelines of a plan get their traces at once.
    """
    bounds = {
        "within": None if within is None else _share("--within", within.removesuffix("%")),
        "within_points": None if within_points is None else _share("--within-points", within_points),
    }
    made = read_plan(plan)
    if plans_language(made):
        validate_of_language(output, plan, take_trace(output.say, made, plan, options), bounds, options)
        return
    several = len(made.pipelines) > 1
    with output.progress() as tell:

        def sent(done: int, total: int) -> None:
            tell("serving and replaying", done / total)

        if several:
            options["profiles"] = options.pop("profile")
            traces = take_traces(output.say, made, plan, options)
            runs = validate_each(plan, traces, progress=sent, **options)
        else:
            trace = take_trace(output.say, made, plan, options)
            runs = {made.name: validate(plan, trace, progress=sent, **options)}
    told = {name: run.as_json() for name, run in runs.items()}
    output.json({"pipelines": told} if several else told[made.name])
    for name, run in runs.items():
        if several:
            output.say(f"{name}:")
        _show(output, run)
    broken = [
        f"{name}: {sentence}" if several else sentence
        for name, run in runs.items()
        for sentence in run.broken(**bounds)
    ]
    for sentence in broken:
        output.say(f"not within: {sentence}")
    if broken:
        raise SystemExit(EXIT_NOT_WITHIN)


def _show(output: Output, run: Validation) -> None:
    output.show(validation_table(run))
    output.show(split_table(run.split))
    output.say(ratios_told(run.split))
    output.show(runs_table(run))
    tell_overheads(output, run.overheads)
    tell_generator(output, run.replay)


def _share(option: str, percent: str | float) -> float:
    try:
        share = float(percent) / 100
    except ValueError:
        share = -1.0
    require(0 < share < float("inf"), f"{option} is {percent!r}", remedy="give a positive number, in percent")
    return share
