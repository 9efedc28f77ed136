import click
from click.testing import CliRunner

from gearshift.cli.common.output import Output, verb
from gearshift.errors import InvalidInput

HOSTILE, SHOWN = "a\x1b[2J\u202eb", "a\\u001b[2J\\u202eb"


@click.command()
@click.argument("how")
@verb
def said(output: Output, how: str) -> None:
    if how == "error":
        raise InvalidInput(HOSTILE)
    output.say(f"first\n{HOSTILE}")


def test_what_a_server_says_does_nothing_to_a_terminal() -> None:
    assert CliRunner().invoke(said, ["line"]).output == f"first\n{SHOWN}\n"
    assert CliRunner().invoke(said, ["error"]).output == f"error: {SHOWN}\n"
