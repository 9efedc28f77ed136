"""`gearshift records`."""

from collections.abc import Sequence
from pathlib import Path

import click

from gearshift.cli.common.option_table import listed
from gearshift.cli.common.output import Output, verb
from gearshift.errors import require
from gearshift.verbs.records import records

EXAMPLES = """\b
gearshift records answers.csv --map certainty=score,label=y,prediction=y_hat
gearshift records small=small.jsonl large=large.jsonl --map certainty=score,label=y,seconds=latency:ms
"""


@click.command("records", epilog=EXAMPLES)
@click.argument("logs", nargs=-1, required=True, metavar="[MODEL=]LOG...")
@click.option("--map", "columns", metavar="NAME=COLUMN,...", default="", help="The log's column for each of records.")
@click.option(
    "--out", type=click.Path(path_type=Path), default="records", show_default=True, help="The folder to write."
)
@verb
def command(output: Output, logs: Sequence[str], columns: str, out: Path) -> None:
    """Make records of LOGs with a row for each answer: CSV, Parquet or JSON lines.

    The columns of records are sample, model, certainty, label, prediction or correct, and for run
    times batch_size and seconds, of which the unit can be named as in seconds=latency:ms. Columns
    that have these names already need no --map. MODEL= says whose log it is.
    """
    named = dict(_pair(one) for one in listed(columns))
    whose = [_whose(one) for one in logs]
    of_models = {model: path for model, path in whose if model}
    require(
        len(of_models) in (0, len(whose)),
        "some logs are given as MODEL=LOG, each once, and others are not",
        remedy="name the model of each, or of none",
    )
    with output.progress() as tell:
        made = records(of_models or [path for _, path in whose], out=out, columns=named, progress=tell)
    output.json({"records": str(out), "made": made})
    output.say(f"{made.predictions} answers of {', '.join(made.models)}")
    if made.left_out:
        output.say(f"left out: {', '.join(made.left_out)}")
    if made.run_times:
        output.say(f"wrote {out}; next: gearshift profile --from-records {out}")
    else:
        output.say(
            f"wrote {out} without run times: map batch_size and seconds, or write {out}/runtimes.csv with columns "
            "model, batch_size, seconds"
        )
        if (out / "runtimes.csv").exists():
            output.say(f"{out}/runtimes.csv was there before, and is kept: check that it is of these models")


def _pair(text: str) -> tuple[str, str]:
    name, equals, column = text.partition("=")
    require(bool(name and equals and column), f"--map has {text!r}", remedy="write NAME=COLUMN, with commas between")
    return name.strip(), column.strip()


def _whose(text: str) -> tuple[str, str]:
    model, equals, path = text.partition("=")
    return (model, path) if equals and not Path(text).exists() else ("", text)
