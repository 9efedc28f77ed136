"""`gearshift inspect`."""

from pathlib import Path

import click

from gearshift.cli.common.option_table import PATH
from gearshift.cli.common.output import Output, verb
from gearshift.cli.views.shown import show
from gearshift.verbs.inspect import kind_at


@click.command("inspect")
@click.argument("path", type=PATH)
@verb
def command(output: Output, path: Path) -> None:
    """Print and check PATH, a plan file or the folder of a profile."""
    kind = kind_at(path)
    show(kind, "inspect:show", output, kind.inspect(path), path)
