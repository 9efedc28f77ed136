"""`gearshift init`."""

from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.option_table import PATH, options_of
from gearshift.cli.common.output import Output, verb
from gearshift.verbs.init.endpoints import NOT_SAID
from gearshift.verbs.init.write_project import init


@click.command("init")
@click.argument("folder", type=PATH, default=".")
@options_of(init)
@click.option(
    "--command",
    "commands",
    multiple=True,
    metavar="COMMAND",
    help="With --llm: what starts an engine of your own, with {port} in it; once for each, from the smallest model on.",
)
@verb
def command(output: Output, folder: Path, **options: Any) -> None:
    """Write a working example for your own models into FOLDER: gearshift.toml, and the files that it names."""
    paths = init(folder, **options)
    output.json({"files": [str(path) for path in paths]})
    for path in paths:
        output.say(f"wrote {path}")
    if options["urls"] or options["commands"]:
        if (guesses := paths[0].read_text(encoding="utf-8").count(NOT_SAID)) > 0:
            output.say(
                f"guessed values, as an endpoint did not say them: {guesses}; look for {NOT_SAID!r} in {paths[0]}"
            )
        own = f"check {paths[0]}" + ("" if options["prompts"] else f", put your prompts into {paths[2]}")
    elif options["llm"]:
        own = f"name your own engines in {paths[0]}, or install the example's (pip install 'gearshift[llm-demo]')"
    else:
        own = f"put your own models into {paths[1]}"
    output.say(f"next: {own}, then run `gearshift profile {paths[0]}`")
