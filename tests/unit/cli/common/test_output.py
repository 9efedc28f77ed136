import io

import click
from click.testing import CliRunner
from rich.console import Console

from gearshift.cli.common.output import Output, _lines, table, verb
from gearshift.errors import InvalidInput

HOSTILE, SHOWN = "a\x1b[2J\u202eb", "a\\u001b[2J\\u202eb"


@click.command()
@click.argument("how")
@verb
def said(output: Output, how: str) -> None:
    if how == "error":
        raise InvalidInput(HOSTILE)
    if how == "table":
        made = table(HOSTILE, HOSTILE, "[bold]b")
        made.add_row(HOSTILE, "[red]:smile:[/red]")
        output.show(made)
        return
    output.say(f"first\n{HOSTILE}")


def test_what_a_server_says_does_nothing_to_a_terminal() -> None:
    assert CliRunner().invoke(said, ["line"]).output == f"first\n{SHOWN}\n"
    assert CliRunner().invoke(said, ["error"]).output == f"error: {SHOWN}\n"


def test_what_a_file_says_in_a_table_does_nothing_to_a_terminal() -> None:
    told = CliRunner().invoke(said, ["table"]).output
    assert told.split() == [SHOWN, SHOWN, "[bold]b", SHOWN, "[red]:smile:[/red]"]


def test_lines_of_progress_come_for_each_step_and_every_ten_seconds() -> None:
    now, written = [0.0], io.StringIO()
    tell = _lines(Console(file=written, width=100), lambda: now[0])
    for second in range(25):
        now[0] = float(second)
        tell("profiling", second / 50)
    assert written.getvalue().splitlines() == [
        "profiling",
        "profiling (about 40 s left)",
        "profiling (about 30 s left)",
    ]


def test_the_time_left_is_that_of_a_piece_of_work_which_begins_where_the_share_falls() -> None:
    now, written = [0.0], io.StringIO()
    tell = _lines(Console(file=written, width=100), lambda: now[0])
    for second, what, share in ((100.0, "measuring", 1.0), (101.0, "compiling", 0.0), (111.0, "compiling", 0.25)):
        now[0] = second
        tell(what, share)
    assert written.getvalue().splitlines()[-1] == "compiling (about 30 s left)"


def test_the_pace_counts_from_the_first_share_on() -> None:
    now, written = [0.0], io.StringIO()
    tell = _lines(Console(file=written, width=100), lambda: now[0])
    for second, what, share in ((0, "loading", 0.0), (60, "timing", 0.0), (61, "timing", 0.1), (66, "predicting", 0.6)):
        now[0] = float(second)
        tell(what, share)
    assert written.getvalue().splitlines() == ["loading", "timing", "predicting (about 4 s left)"]


def test_the_pace_begins_anew_where_the_share_falls() -> None:
    now, written = [0.0], io.StringIO()
    tell = _lines(Console(file=written, width=100), lambda: now[0])
    for second, what, share in ((0, "a", 0.1), (100, "a", 0.9), (101, "b", 0.1), (103, "c", 0.6)):
        now[0] = float(second)
        tell(what, share)
    assert written.getvalue().splitlines() == ["a", "a (about 12 s left)", "b", "c (about 2 s left)"]
