"""`gearshift query`."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gearshift.cli.common.option_table import PATH
from gearshift.cli.common.output import Output, table, verb
from gearshift.errors import InvalidInput, require
from gearshift.model import LABEL
from gearshift.serving.door.keys import first_key
from gearshift.support.files import read_text

if TYPE_CHECKING:
    import pyarrow as pa

    from gearshift.bulk.choice import Choice
    from gearshift.sql import Registered

SHOWN_ROWS = 40
SECONDS_A_LINE = 5.0
"""How often progress is told where it is lines of text."""


@click.command("query")
@click.argument("file", type=PATH)
@click.option("--plan", type=PATH, help="Run the models of this plan, in processes of this command.")
@click.option("--url", help="Ask the server at this URL instead.")
@click.option("--database", type=PATH, help="A DuckDB database to open.  [default: one in memory]")
@click.option("--out", type=PATH, help="Write the result to this file; .csv, .parquet or .jsonl.")
@click.option("--pipeline", help="Only this pipeline is a function.  [default: all]")
@click.option("--name", help="The name of the function, for a single pipeline.  [default: the pipeline's]")
@click.option("--label", default=LABEL, show_default=True, help="The output that is the label.")
@click.option("--accuracy", type=float, help="Take the cheapest cascade with this.  [default: as the plan's objective]")
@click.option("--confidence", type=float, help="Certify the accuracy with this confidence.")
@click.option("--gear", type=click.IntRange(min=0), help="Take the cascade of this gear instead.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes for models.  [default: as many as fit]")
@click.option("--profile", type=PATH, help="The plan's profile, where it has moved.")
@click.option("--project", type=PATH, help="The gearshift.toml with the models, where it has moved.")
@click.option("--key-file", type=PATH, envvar="GEARSHIFT_KEY_FILE", help="Send the first API key in this file.")
@click.option("--ca-file", type=PATH, help="Certificates to trust.")
@verb
def command(
    output: Output,
    file: Path,
    plan: Path | None,
    url: str | None,
    database: Path | None,
    out: Path | None,
    key_file: Path | None,
    **options: Any,
) -> None:
    """Run the SQL in FILE on DuckDB, where each pipeline is a function of its inputs.

    NAME(input, ...) is a struct of label, certainty and outcome, NAME_label(input, ...) the label
    alone. The result of the last statement is printed, or written to --out.
    """
    import duckdb

    from gearshift.sql import register
    from gearshift.sql.script import FORMATS, require_format, run_script

    require((plan is None) != (url is None), "needs one of --plan and --url")
    text = read_text(file, remedy="write a query into it")
    if out is not None:
        require_format(out)
    api_key = None if key_file is None else first_key(key_file)
    result = Result(output, out is None and output.json_alone)
    try:
        connection = duckdb.connect(":memory:" if database is None else os.fspath(database))
    except duckdb.Error as error:
        raise InvalidInput(str(error), where=str(database), remedy="name another database") from None
    with connection, output.progress() as tell:
        tell("loading models" if url is None else "asking the server", 0.0)
        with register(connection, url or plan or "", api_key=api_key, **options) as registered:
            take = result.show if out is None else lambda reader: result.written(FORMATS[out.suffix](reader, out))
            every_s = 0.1 if sys.stderr.isatty() else SECONDS_A_LINE
            run_script(connection, registered, text, where=str(file), take=take, told=tell, told_every_s=every_s)
            result.tell(registered, out)


class Result:
    """The result of the last statement, printed or counted."""

    def __init__(self, output: Output, keeps: bool) -> None:
        self._output, self._keeps = output, keeps
        self._columns: list[str] = []
        self._kept: list[dict[str, Any]] = []
        self._rows = 0

    def show(self, reader: "pa.RecordBatchReader") -> None:
        self._columns = reader.schema.names
        for batch in reader:
            left = batch.num_rows if self._keeps else max(0, SHOWN_ROWS - len(self._kept))
            self._kept += batch.slice(0, left).to_pylist()
            self._rows += batch.num_rows

    def written(self, rows: int) -> None:
        self._rows = rows

    def tell(self, registered: "Registered", out: Path | None) -> None:
        choices = {name: function.operator.choice for name, function in registered.functions.items()}
        self._output.json(
            {
                "rows": self._rows,
                "rows_answered": registered.rows,
                "pipelines": {
                    name: None
                    if choice is None
                    else {"cascades": choice.cascades, "accuracy": choice.accuracy, "at_least": choice.at_least}
                    for name, choice in choices.items()
                },
                **({"out": str(out)} if out is not None else {"columns": self._columns, "data": self._kept}),
            }
        )
        if out is None and self._columns:
            shown = table("Result", *self._columns)
            for row in self._kept[:SHOWN_ROWS]:
                shown.add_row(*("NULL" if value is None else str(value) for value in row.values()))
            self._output.show(shown)
        for name, choice in choices.items():
            if choice is not None:
                self._output.say(f"{name}: {_told(choice)}")
        more = f", {SHOWN_ROWS} shown" if out is None and self._rows > SHOWN_ROWS else ""
        place = "" if out is None else f" in {out}"
        self._output.say(f"{self._rows:,} rows{place}{more}; models answered {registered.rows:,}")


def _told(choice: "Choice") -> str:
    each = choice.cascades
    tuple_ = ", ".join(str(cascade) if len(each) == 1 else f"{node} {cascade}" for node, cascade in each.items())
    accuracy = "not recorded" if choice.accuracy is None else f"{100 * choice.accuracy:.1f} %"
    bound = "" if choice.at_least is None else f", certified {100 * choice.at_least:.1f} %"
    return f"{tuple_}; accuracy {accuracy}{bound}"
