"""`gearshift serve`."""

from pathlib import Path
from typing import Any

import click

from gearshift import api
from gearshift.cli.options import PATH, settings_options
from gearshift.cli.output import Output, verb
from gearshift.serving.settings import ServerSettings


@click.command("serve", short_help="Serve a plan over HTTP.")
@click.argument("plan", type=PATH)
@click.option(
    "--backend",
    type=click.Choice(["local", "emulated"]),
    default="local",
    show_default=True,
    help="Real models in worker processes, or devices that sleep for the profiled time.",
)
@click.option("--profile", type=PATH, help="The plan's profile, where it has moved.")
@click.option("--project", type=PATH, help="The gearshift.toml with the models, where it has moved.")
@click.option("--journal", type=PATH, help="Write gear shifts and faults as JSON lines.")
@settings_options(ServerSettings)
@verb
def command(
    output: Output, plan: Path, profile: Path | None, project: Path | None, journal: Path | None, **options: Any
) -> None:
    """Serve PLAN until Ctrl-C or SIGTERM; then answer all that was accepted, and end."""
    code = api.serve(plan, profile_path=profile, project_path=project, journal_path=journal, **options)
    output.json({"exit_code": code})
    if code:
        raise SystemExit(code)
