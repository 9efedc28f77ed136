"""`gearshift validate`."""

from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.option_table import PATH, options_of
from gearshift.cli.common.options import plan_traces_options, require_supported, take_traces
from gearshift.cli.common.output import EXIT_NOT_WITHIN, Output, verb
from gearshift.cli.views.shown import show
from gearshift.errors import require
from gearshift.verbs.kinds.registry import kind_of_plan
from gearshift.verbs.validate import validate


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
    found = kind_of_plan(plan)
    require_supported(found, "validate")
    traces, several = take_traces(output.say, found.of, plan, options), len(found.of.pipelines) > 1
    with output.progress() as tell:
        run = validate(
            plan,
            traces if several else traces[found.of.name],
            progress=lambda done, total: tell("serving and replaying", done / total),
            notice=output.say,
            **options,
        )
    runs = run if isinstance(run, dict) else {found.of.name: run}
    told = {name: one.as_json() for name, one in runs.items()}
    output.json({"pipelines": told} if several else told[found.of.name])
    for name, one in runs.items():
        if several:
            output.say(f"{name}:")
        show(found.kind, "replay:show_validation", output, one)
    broken = [
        f"{name}: {sentence}" if several else sentence
        for name, one in runs.items()
        for sentence in one.broken(**bounds)
    ]
    for sentence in broken:
        output.say(f"not within: {sentence}")
    if broken:
        raise SystemExit(EXIT_NOT_WITHIN)


def _share(option: str, percent: str | float) -> float:
    try:
        share = float(percent) / 100
    except ValueError:
        share = -1.0
    require(0 < share < float("inf"), f"{option} is {percent!r}", remedy="give a positive number, in percent")
    return share
