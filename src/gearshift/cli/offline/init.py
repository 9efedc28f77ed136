"""`gearshift init`."""

from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.option_table import PATH, options_of
from gearshift.cli.common.output import Output, verb
from gearshift.verbs.init.write_project import init


@click.command("init")
@click.argument("folder", type=PATH, default=".")
@options_of(init)
@verb
def command(output: Output, folder: Path, **options: Any) -> None:
    """Write gearshift.toml and models.py, a working example for your own models, into FOLDER."""
    paths = init(folder, **options)
    output.json({"files": [str(path) for path in paths]})
    for path in paths:
        output.say(f"wrote {path}")
    output.say(f"next: put your own models into {paths[1]}, then run `gearshift profile {paths[0]}`")
