"""`gearshift diff`."""

from pathlib import Path
from typing import Any

import click
import msgspec

from gearshift.cli.common.option_table import PATH
from gearshift.cli.common.output import Output, verb
from gearshift.cli.views.shown import show
from gearshift.plans.plan_diff import PlanDiff
from gearshift.plans.plan_file import read_plan
from gearshift.verbs.inspect import diff
from gearshift.verbs.kinds.registry import kind_of_plan


@click.command("diff")
@click.argument("a", type=PATH)
@click.argument("b", type=PATH)
@verb
def command(output: Output, a: Path, b: Path) -> None:
    """Say how plan files A and B differ: objective, devices, placement, gears and predictions."""
    plans = read_plan(a), read_plan(b)
    found = diff(*plans)
    if isinstance(found, dict):
        output.json({"pipelines": {n: one if isinstance(one, str) else _facts(one) for n, one in found.items()}})
    else:
        output.json(_facts(found))
    show(kind_of_plan(plans[0]).kind, "diff:show", output, found, plans, is_json=True)


def _facts(found: PlanDiff) -> dict[str, Any]:
    return {"same": found.same, **msgspec.to_builtins(found)}
