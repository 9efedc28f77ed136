"""Common to all verbs: `--json`, progress on standard error, and errors as one sentence.

A note on an error (`error.add_note`) is a command line to try instead.
"""

import functools
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from gearshift.cli.common.first_compile import compiled_meanwhile, compiling_told
from gearshift.cli.common.folding import folded
from gearshift.cli.common.option_table import as_keywords
from gearshift.cli.common.streams import forget_the_rest, interrupted_code, json_alone, told_if_full, write_result
from gearshift.errors import GearshiftError, InvalidInput
from gearshift.support.files import own_descriptor, write_atomically
from gearshift.support.numbers import MOST_SHARE, Pace
from gearshift.support.plain_text import plain

EXIT_NOT_VALID = 4
EXIT_NOT_WITHIN = 5
EXIT_BUG = 70
WIDTH_OF_FILES = 160
KEPT = "\n\t"
SHORT_S, LINES_EVERY_S = 2.0, 10.0

Tell = Callable[[str, float], None]


class Output:
    """Output of a verb: tables on standard output, or only JSON there with `--json -`."""

    def __init__(self, json_path: str | None) -> None:
        self.json_alone = json_path is not None and (json_path == "-" or own_descriptor(json_path) == 1)
        self._json_path = json_path
        file = sys.stderr if self.json_alone else sys.stdout
        self.terminal = Console(
            file=file,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
            width=None if file.isatty() else WIDTH_OF_FILES,
        )

    def json(self, data: object) -> None:
        if self._json_path is None:
            return
        encoded = msgspec.json.format(_encoded(data), indent=2) + b"\n"
        if self.json_alone:
            write_result(encoded)
        else:
            write_atomically(Path(self._json_path), encoded)

    def say(self, text: str) -> None:
        with told_if_full():
            self.terminal.print(plain(text, keep=KEPT))

    def show(self, table: Table) -> None:
        """Print a table, folded where it is wider than the terminal."""
        _escape(table)
        with told_if_full():
            for part in folded(self.terminal, table):
                self.terminal.print(part)

    @contextmanager
    def progress(self) -> Iterator[Tell]:
        """Show a bar on standard error, or lines if it is no terminal, with the time left; `tell` moves it."""
        console = Console(file=sys.stderr, highlight=False)
        if not console.is_terminal:
            with compiling_told(_lines(console)) as tell:
                yield tell
            return
        columns = (
            *(TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn()),
            *(TextColumn("left"), TimeRemainingColumn(compact=True)),
        )
        with Progress(*columns, console=console, transient=True) as bars, compiling_told(_on_bar(bars)) as tell:
            yield tell

    @contextmanager
    def waiting(self, what: str, about_s: float = 0.0) -> Iterator[None]:
        """Show that something runs which tells nothing of itself, with the time left where it is foretold as `about_s`.

        As with `progress` there is a bar on a terminal, and elsewhere a line after 2 s and then every 10 s.
        """
        with self.progress() as tell, Ticking(tell, what, about_s):
            yield


def verb(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command whose first argument is its `Output`; adds `--json` and reports errors.

    Options that `options_of` made arrive as the keywords of their verb.
    """

    @click.option("--json", metavar="FILE", help="Also write the result as JSON; - is standard output.")
    @functools.wraps(function)
    def run(json: str | None, **arguments: Any) -> None:
        output = Output(json)
        try:
            meanwhile = compiled_meanwhile(click.get_current_context().info_name)
            with json_alone() if output.json_alone else nullcontext(), meanwhile:
                function(output, **as_keywords(arguments))
            with told_if_full():
                sys.stdout.flush()
        except GearshiftError as error:
            notes = list(getattr(error, "__notes__", ()))
            write_error(output, error.facts() | ({"commands": notes} if notes else {}), said=str(error))
            notice(f"error: {error}")
            for line in notes:
                notice(f"try: {line}")
            raise SystemExit(error.exit_code) from None
        except KeyboardInterrupt as interrupt:
            write_error(output, {"kind": "interrupted", "message": "interrupted"}, said="")
            click.echo("interrupted", err=True)
            raise SystemExit(interrupted_code(interrupt)) from None
        except BrokenPipeError:
            forget_the_rest()
            raise SystemExit(1) from None
        except Exception as error:  # noqa: BLE001 - the process boundary
            told = f"a bug in gearshift ({type(error).__name__}: {error}); {_keep_traceback()}"
            write_error(output, {"kind": "bug", "message": told}, said="")
            notice(f"error: {told}")
            raise SystemExit(EXIT_BUG) from None

    return run


def notice(text: str) -> None:
    """Print a line on standard error."""
    click.echo(plain(text, keep=KEPT), err=True)


def _escape(table: Table) -> None:
    """Escape what a terminal would obey in names from files, in all cells of a table."""
    table.title = plain(table.title) if isinstance(table.title, str) else table.title
    for column in table.columns:
        column.header = plain(column.header) if isinstance(column.header, str) else column.header
        column._cells = [plain(cell) if isinstance(cell, str) else cell for cell in column.cells]


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i, column in enumerate(columns):
        made.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
    return made


class Ticking:
    """Tells in a thread of its own how long something has run, until it ends."""

    def __init__(self, tell: Tell, what: str, about_s: float, every_s: float = 0.5) -> None:
        self._tell, self._what, self._about_s = tell, what, about_s
        self._every_s, self._ended, self._thread = every_s, threading.Event(), threading.Thread(target=self._run)
        self._thread.daemon = True

    def __enter__(self) -> "Ticking":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        began_s = time.monotonic()
        if self._about_s < SHORT_S and self._ended.wait(SHORT_S):
            return
        while True:
            gone_s = time.monotonic() - began_s
            self._tell(self._what, min(MOST_SHARE, gone_s / self._about_s) if self._about_s else 0.0)
            if self._ended.wait(self._every_s):
                return


def _on_bar(bars: Progress) -> Tell:
    """Moves a bar; where the share falls, another piece of work begins, whose time left is its own."""
    bar, before = bars.add_task("", total=1.0), 0.0

    def tell(what: str, share: float) -> None:
        nonlocal before
        if share < before:
            bars.reset(bar)
        before = share
        bars.update(bar, description=plain(what), completed=share)

    return tell


def _lines(console: Console, now_s: Callable[[], float] = time.monotonic) -> Tell:
    """Print a line for each new step, and every 10 s at the latest, with the time left where that is known."""
    said, began_s, told_s, before, pace = "", now_s(), now_s(), 0.0, Pace()

    def tell(what: str, share: float) -> None:
        nonlocal said, began_s, told_s, before
        now = now_s()
        if share < before:  # another piece of work begins
            began_s = now
        before, left = share, pace.left_in_words(now, share)
        if what != said or now - told_s >= LINES_EVERY_S:
            line = plain(what) + (left if now - began_s >= SHORT_S else "")
            console.print(line, markup=False, emoji=False, soft_wrap=True)
            said, told_s = what, now

    return tell


def write_error(output: Output, facts: dict[str, object], *, said: str) -> None:
    """Write an error to the path of `--json`; report a failure unless it is `said` anyway."""
    try:
        output.json({"error": facts})
    except InvalidInput as second:
        if str(second) != said:
            notice(f"error: {second}")


def _keep_traceback() -> str:
    try:
        with tempfile.NamedTemporaryFile("w", prefix="gearshift-", suffix=".txt", delete=False) as file:
            traceback.print_exc(file=file)
            return f"see {file.name}"
    except OSError:
        return "set TMPDIR to a folder that can be written, where its traceback is kept then"


def _encoded(data: object) -> bytes:
    """Encode `data` as JSON; file names that are not UTF-8 have their invalid bytes replaced."""
    try:
        return msgspec.json.encode(data)
    except UnicodeEncodeError:
        return msgspec.json.encode(_replaced(msgspec.to_builtins(data)))


def _replaced(data: Any) -> Any:
    match data:
        case str():
            return data.encode("utf-8", "replace").decode()
        case dict():
            return {_replaced(key): _replaced(value) for key, value in data.items()}
        case list() | tuple():
            return [_replaced(value) for value in data]
    return data
