"""`gearshift status`."""

from typing import Any

import click

from gearshift.cli.common.operating import server_options, show_status
from gearshift.cli.common.output import Output, verb
from gearshift.serving.operate.control_client import Operator


@click.command("status")
@server_options
@verb
def command(output: Output, url: str, **access: Any) -> None:
    """Say what the server at --url is doing: load, gear, plan, replicas, and what it holds."""
    show_status(output, url, Operator(url, **access).status())
