"""The command `gearshift`."""

from importlib import import_module

import click

import gearshift

VERBS = ("demo", "init", "profile", "plan", "simulate", "inspect", "report", "serve", "replay", "doctor")


class _Verbs(click.Group):
    """Verbs, each imported only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order in which they are used."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command, from the file of its name."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"gearshift.cli.{cmd_name}").command
        return command


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(gearshift.__version__)
def main_group() -> None:
    """Serve machine-learning models as cascades that shift gears with load."""


def main() -> None:
    """Run the command line."""
    main_group(prog_name="gearshift", auto_envvar_prefix="GEARSHIFT")
