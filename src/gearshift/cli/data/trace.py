"""`gearshift trace`."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from gearshift.cli.common.output import Output, verb
from gearshift.errors import InvalidInput, require
from gearshift.support.files import write_atomically
from gearshift.support.numbers import digits
from gearshift.traces.logs.journal import read_journal
from gearshift.traces.logs.read_log import LogRead, read_log

BLOCKS = " ▁▂▃▄▅▆▇█"
COLUMNS = 60
ROWS = 6
MOST_PATHS_SHOWN = 5


EXAMPLES = """\b
gearshift trace /var/log/nginx/access.log --path /predict --method POST
gearshift trace requests.jsonl --time received_at --where model=fraud
gearshift trace --from-journal journal.jsonl
curl -s "$PROMETHEUS/api/v1/query_range?query=sum(rate(requests_total[1m]))&..." | gearshift trace -
"""


@click.command("trace", epilog=EXAMPLES)
@click.argument("log", type=str)
@click.option("--out", type=click.Path(path_type=Path), default="trace.csv", show_default=True, help="The trace file.")
@click.option("--time", "time_field", metavar="FIELD", help="The field or column of times, in JSON lines and CSV.")
@click.option("--path", "path_prefix", metavar="PREFIX", help="Only requests whose path begins so.")
@click.option("--method", help="Only requests of this method.")
@click.option("--status", metavar="CODE", help="Only requests with this status; 2xx for all that begin with 2.")
@click.option("--where", multiple=True, metavar="FIELD=VALUE", help="Only requests with this value; may be repeated.")
@click.option("--from-journal", is_flag=True, help="LOG is the journal of a server, running or ended.")
@click.option("--whole-seconds", is_flag=True, help="Write the number of requests in each second, not their times.")
@verb
def command(
    output: Output,
    log: str,
    out: Path,
    time_field: str | None,
    path_prefix: str | None,
    method: str | None,
    status: str | None,
    where: Sequence[str],
    from_journal: bool,
    whole_seconds: bool,
) -> None:
    """Make a trace of LOG: an access log, JSON lines, CSV, or a range of Prometheus; - is standard input.

    With --from-journal, LOG is what `gearshift serve --journal` wrote; with several pipelines,
    --where pipeline=NAME chooses one.
    """
    fields = dict(_pair(one) for one in where)
    if from_journal:
        given = {"--time": time_field, "--path": path_prefix, "--method": method, "--status": status}
        flags = [flag for flag, value in given.items() if value is not None]
        others = flags + [f"--where {name}" for name in fields if name != "pipeline"]
        require(not others, f"--from-journal and {', '.join(others)} are given", remedy="leave one of them out")
        read = read_journal(log, pipeline=fields.get("pipeline"))
    else:
        with output.progress() as tell:
            read = read_log(
                log,
                time_field=time_field,
                path_prefix=path_prefix,
                method=method,
                status=status,
                where=fields,
                whole_seconds=whole_seconds,
                progress=tell,
            )
    require(str(out) != log, "the trace would take the place of the log", remedy="give another file with --out")
    write_atomically(out, read.csv())
    seconds, peak = len(read.counts), int(read.counts.max())
    output.json(
        {
            "kind": read.kind,
            "requests": read.requests,
            "seconds": seconds,
            "mean_qps": read.requests / seconds,
            "peak_qps": peak,
            "times": "counts" if read.arrivals_ns is None else "arrivals",
            "skipped": read.skipped,
            "left_out": read.left_out,
            "trace": str(out),
        }
    )
    for line in chart(read.counts):
        output.say(line)
    output.say(
        f"{read.requests} requests in {_duration(seconds)}: {digits(read.requests / seconds)}/s in the mean, "
        f"{peak}/s in the busiest second"
    )
    for note in notes(read):
        output.say(note)
    output.say(f"wrote {out}; next: gearshift plan PROFILE --trace {out} --p95-ms 200")


def chart(counts: NDArray[np.int64]) -> list[str]:
    """Lines of blocks: the mean rate over time, from 0 to the highest."""
    columns = min(COLUMNS, len(counts))
    edges = np.linspace(0, len(counts), columns + 1).astype(int)
    rates = np.array([counts[a:b].mean() for a, b in pairwise(edges)])
    top = float(rates.max())
    eighths = np.rint(rates / top * ROWS * 8).astype(int) if top > 0 else np.zeros(columns, dtype=int)
    lines = []
    for row in reversed(range(ROWS)):
        label = f"{digits(top)}/s" if row == ROWS - 1 else "0" if row == 0 else ""
        blocks = "".join(BLOCKS[min(8, max(0, eighth - row * 8))] for eighth in eighths)
        lines.append(f"{label:>8} │{blocks}".rstrip())
    return lines


def notes(read: LogRead) -> list[str]:
    said = []
    if read.counted_by:
        step = f"{read.step_s:g} s" if read.step_s < 60 else _duration(round(read.step_s))
        said.append(
            f"{read.counted_by!r} has the requests from each time to the next, {step} on: they are spread evenly"
        )
    if read.uncounted:
        said.append(f"{read.uncounted}: each row is taken as one request")
    if read.gap_s:
        said.append(f"values are missing for {_duration(round(read.gap_s))}, which are taken as without requests")
    if not read.counted_by and read.arrivals_ns is None and read.kind != "a journal":
        said.append("times are in whole seconds, so the trace has the number of requests in each second")
    if read.stamped_at_end:
        said.append("an access log has the times of answers: arrivals were earlier by as long as answers took")
    if read.skipped:
        lines = (
            "1 line was no request and was" if read.skipped == 1 else f"{read.skipped} lines were no requests and were"
        )
        said.append(f"{lines} skipped, the first: {read.first_skipped!r}")
    if read.left_out:
        said.append(f"{read.left_out} requests were left out, as they were not asked for")
    elif len(read.paths) > 1:
        most = sorted(read.paths.items(), key=lambda pair: -pair[1])[:MOST_PATHS_SHOWN]
        said.append(f"the paths, of which --path chooses: {', '.join(f'{path} ({count})' for path, count in most)}")
    return said


def _pair(text: str) -> tuple[str, str]:
    field, equals, value = text.partition("=")
    if not equals or not field:
        raise InvalidInput(f"--where is {text!r}", remedy="give FIELD=VALUE")
    return field, value


def _duration(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    parts = (f"{hours} h", hours), (f"{minutes} min", minutes), (f"{left} s", left)
    return " ".join(text for text, number in parts if number) or "0 s"
