"""`gearshift drain`."""

from typing import Any

import click

from gearshift.cli.common.operating import server_options, show_status
from gearshift.cli.common.output import Output, verb
from gearshift.serving.operate.control_client import Operator


@click.command("drain")
@click.option("--undo", is_flag=True, help="Let new requests in again.")
@server_options
@verb
def command(output: Output, undo: bool, url: str, **access: Any) -> None:
    """Make the server at --url refuse new requests, and answer those it has accepted.

    Its process continues, not ready, until a signal ends it or --undo lets requests in again.
    `gearshift status` shows how many requests are open.
    """
    show_status(output, url, Operator(url, **access).drain(undo=undo))
