"""`gearshift gear`."""

from typing import Any

import click

from gearshift.cli.common.operating import server_options, show_status
from gearshift.cli.common.output import Output, verb
from gearshift.errors import require
from gearshift.serving.operate.control_client import Operator


@click.command("gear")
@click.argument("what", type=click.Choice(["pin", "free"]))
@click.argument("number", type=int, required=False)
@click.option("--model", help="The pipeline that is meant, where the server has several.")
@server_options
@verb
def command(output: Output, what: str, number: int | None, model: str | None, url: str, **access: Any) -> None:
    """Keep the server at --url in gear NUMBER (`pin NUMBER`), or let the load choose (`free`).

    Gear 0 is for the lowest loads. A pinned gear stays whatever the load, until it is freed or the
    server ends. Where the server has several pipelines, each has its own gears; --model names one.
    """
    require((what == "pin") == (number is not None), "pin needs the number of a gear, and free none", where="gear")
    show_status(output, url, Operator(url, **access).pin(number, model))
