"""`gearshift compare`."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from gearshift.cli.common.option_table import PATH, listed, options_of, require_positive
from gearshift.cli.common.option_table import devices as devices_of
from gearshift.cli.common.options import TRACE_OPTIONS, require_one_latency, the_trace, trace_options
from gearshift.cli.common.output import Output, table, verb
from gearshift.cli.common.tables import NO_LABELS, THIS_TRACE_ALONE, milliseconds, percent
from gearshift.errors import require
from gearshift.planner import planners as registry
from gearshift.planner.compare import COCKTAIL, Comparison, comparable
from gearshift.profiles.store import read_profile
from gearshift.reporting.comparison_columns import COLUMNS, IN_TABLES, Kind, csv_row, planned_in, why_not
from gearshift.reporting.comparison_page import cell_text, comparison_page
from gearshift.support.files import require_writable, write_atomically
from gearshift.verbs.compare import compare

GRID_COLUMNS = ("planner", "accuracy", "latency_s", "devices", "saving", "saving_at_least")

FORMATS: dict[Kind, Callable[[Any], str]] = {"text": str, "share": percent, "seconds": milliseconds}

T = TypeVar("T", int, float)


@click.command("compare")
@click.argument("profile", type=PATH)
@trace_options
@click.option(
    "--planners",
    type=listed,
    metavar="NAMES",
    help=f"Planners, between commas, of {', '.join(registry.MODULES)}, {COCKTAIL} [default: all; {COCKTAIL} where"
    " predictions are recorded].",
)
@click.option(
    "--devices",
    type=listed,
    metavar="NUMBERS|FILES",
    default="1",
    show_default=True,
    help="Numbers of devices like the profiled one, or JSON or TOML files that list devices.",
)
@click.option("--p95-ms", type=listed, metavar="NUMBERS", help="Latency objectives in milliseconds.")
@click.option("--latency-ms", type=listed, metavar="NUMBERS", help="As --p95-ms, for another --percentile.")
@click.option("--percentile", type=float, help="The share of requests that must be within --latency-ms.")
@click.option("--accuracies", type=listed, metavar="NUMBERS", help="Rows of the grid [default: five even steps].")
@options_of(compare)
@click.option("--csv", "csv_path", type=PATH, help="Also write the runs as CSV.")
@click.option("--grid-csv", type=PATH, help="Also write the grid of fewest devices as CSV.")
@click.option("--out", type=PATH, help="Also write a page with charts.")
@verb
def command(
    output: Output,
    profile: Path,
    planners: list[str] | None,
    devices: list[str],
    p95_ms: list[str] | None,
    latency_ms: list[str] | None,
    percentile: float | None,
    accuracies: list[str] | None,
    csv_path: Path | None,
    grid_csv: Path | None,
    out: Path | None,
    **options: Any,
) -> None:
    """Plan from PROFILE and a trace with every planner, number of devices and objective.

    A run that fails is a row with the reason.
    """
    latencies_s = _latencies_s(p95_ms, latency_ms, percentile)
    measured = read_profile(profile)
    of_trace = {name: options.pop(name) for name in ("trace", *TRACE_OPTIONS)}
    arrivals = the_trace(**of_trace, seed=options["seed"])
    paths = [path for path in (csv_path, grid_csv, out) if path is not None]
    for path in paths:
        require_writable(path)
    with output.progress() as tell:
        found = compare(
            measured,
            arrivals,
            planners=comparable(measured) if planners is None else planners,
            devices=[devices_of(each) for each in devices],
            latencies_s=latencies_s,
            percentile=0.95 if percentile is None else percentile,
            accuracies=None if accuracies is None else numbers("--accuracies", accuracies, float),
            progress=tell,
            **options,
        )
    if csv_path is not None:
        write_atomically(csv_path, as_csv(found).encode())
    if grid_csv is not None:
        write_atomically(grid_csv, grid_as_csv(found).encode())
    if out is not None:
        note = f"Profile {profile}, trace {of_trace['trace']}."
        if not measured.predictions.labelled:
            note += f" {NO_LABELS.capitalize()}."
        write_atomically(out, comparison_page(found, title=f"Planners for {measured.operator}", note=note).encode())
    output.json(found)
    show(output, found)
    if options["scope"] == "trace":
        output.say(THIS_TRACE_ALONE)
    if not measured.predictions.labelled:
        output.say(NO_LABELS)
    for path in paths:
        output.say(f"wrote {path}")


def _latencies_s(p95_ms: list[str] | None, latency_ms: list[str] | None, percentile: float | None) -> list[float]:
    require_one_latency(p95_ms, latency_ms, percentile)
    flag, given = ("--latency-ms", latency_ms) if p95_ms is None else ("--p95-ms", p95_ms)
    require(given is not None, "no latency is given", remedy="give --p95-ms")
    latencies_ms = numbers(flag, given or [], float)
    for ms in latencies_ms:
        require_positive(flag, ms, "milliseconds")
    return [ms / 1e3 for ms in latencies_ms]


def numbers(option: str, parts: list[str], kind: Callable[[str], T]) -> list[T]:
    try:
        found = [kind(part) for part in parts]
    except ValueError:
        found = []
    require(bool(found), f"{option} is {','.join(parts)!r}", remedy="give numbers between commas")
    return found


def show(output: Output, found: Comparison) -> None:
    rows = table("Plans as predicted", *(column.title for column in IN_TABLES), "planned in")
    planned = [run for run in found.runs if run.planner in found.planners]
    for run in planned:
        outcome = planned_in(run) if run.error is None else str(run.error["kind"])
        rows.add_row(*(column.cell(run, FORMATS) for column in IN_TABLES), outcome)
    output.show(rows)
    for run in planned:
        if run.error is not None:
            output.say(f"{run.planner}, {run.devices}, {milliseconds(run.latency_objective_s)}: {why_not(run)}")
    output.say("")
    slo = f"p{found.percentile * 100:g}"
    grid = table("Fewest devices (saving)" if found.baselines else "Fewest devices", "accuracy", slo, *found.columns)
    for start in range(0, len(found.grid), len(found.columns)):
        cells = found.grid[start : start + len(found.columns)]
        grid.add_row(percent(cells[0].accuracy), milliseconds(cells[0].latency_s), *map(cell_text, cells))
    output.show(grid)
    output.say("")
    volumes = table("Hypervolume", "devices", *found.planners)
    for count in found.device_counts:
        volumes.add_row(str(count), *(f"{v.hypervolume:.4g}" for v in found.hypervolumes if v.devices == count))
    output.show(volumes)


def as_csv(found: Comparison) -> str:
    return _csv([column.name for column in COLUMNS], map(csv_row, found.runs))


def grid_as_csv(found: Comparison) -> str:
    return _csv(GRID_COLUMNS, [[getattr(cell, name) for name in GRID_COLUMNS] for cell in found.grid])


def _csv(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return file.getvalue()
