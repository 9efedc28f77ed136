"""`gearshift dashboard`."""

from pathlib import Path

import click

from gearshift.cli.common.operating import URL
from gearshift.cli.common.option_table import PATH
from gearshift.cli.common.output import Output, verb
from gearshift.serving.dashboard import show_dashboard


@click.command("dashboard")
@click.argument("url", default=URL, envvar="GEARSHIFT_URL")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Of the page here; 0: any."
)
@click.option("--key-file", type=PATH, envvar="GEARSHIFT_KEY_FILE", help="A file whose first key reads what is shown.")
@click.option("--ca-file", type=PATH, help="A PEM file of certificates to trust, in addition to the system's.")
@verb
def command(output: Output, url: str, port: int, key_file: Path | None, ca_file: Path | None) -> None:
    """Show the live page of the server at URL on a port of this machine, until Ctrl-C.

    The server itself shows it at /dashboard. Steering needs a key of administration, typed into the page.
    """
    show_dashboard(url, key_file=key_file, ca_file=ca_file, port=port, say=output.say)
    output.json({"url": url})
