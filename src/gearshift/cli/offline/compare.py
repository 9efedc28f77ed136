"""`gearshift compare`."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.named import Named, NamedList, Repeated, numbers_of, require_only, the_last
from gearshift.cli.common.option_table import PATH, listed, options_of, require_positive
from gearshift.cli.common.option_table import devices as devices_of
from gearshift.cli.common.options import (
    TRACE_OPTIONS,
    require_none,
    require_one_latency,
    the_only_trace,
    the_trace,
    traces_options,
)
from gearshift.cli.common.output import Output, table, verb
from gearshift.cli.common.tables import NO_LABELS, THIS_TRACE_ALONE, milliseconds, percent
from gearshift.cli.language.compare import Time, compare_of_language, require_none_of_language
from gearshift.cli.pipelines.compare_graph import Compared, compare_one_graph, seconds_of_all
from gearshift.cli.pipelines.compare_several import compare_operators
from gearshift.errors import require
from gearshift.planner import planners as registry
from gearshift.planner.compare import COCKTAIL, Comparison, comparable, count_interrupted
from gearshift.profiles.engines.store import is_language_profile
from gearshift.profiles.pipelines.profile_folder import holds_profiles
from gearshift.profiles.store import REMEDY as PROFILE_FIRST
from gearshift.profiles.store import read_profile
from gearshift.reporting.comparison_columns import Kind, cells, csv_rows, csv_titles, planned_in, titles, why_not
from gearshift.reporting.comparison_page import cell_text, comparison_page
from gearshift.support.files import require_writable, write_atomically
from gearshift.support.numbers import digits, money
from gearshift.verbs.compare import compare

GRID_COLUMNS = ("planner", "accuracy", "latency_s", "devices", "saving", "saving_at_least")

FORMATS: dict[Kind, Callable[[Any], str]] = {"text": str, "share": percent, "seconds": milliseconds, "money": money}


@click.command("compare")
@click.argument("profiles", type=PATH, nargs=-1, required=True, metavar="PROFILE...")
@traces_options
@click.option(
    "--planners",
    type=listed,
    metavar="NAMES",
    help=f"Planners, between commas, of {', '.join(registry.for_())}, {COCKTAIL} [default: all; {COCKTAIL} where"
    f" predictions are recorded]; of several operators, of {', '.join(registry.for_('rows', 'several'))}; of a pipeline"
    f" of several nodes, of {', '.join(registry.for_('rows', 'graph'))}.",
)
@click.option(
    "--devices",
    type=listed,
    metavar="NUMBERS|FILES",
    default="1",
    show_default=True,
    help="Numbers of devices like the profiled one, or JSON or TOML files that list devices.",
)
@click.option("--p95-ms", cls=Repeated, type=NamedList(), help="Latency objectives in milliseconds.")
@click.option(
    "--ttft-p95-ms",
    type=listed,
    metavar="NUMBERS",
    help="For language models: times to the first token.",
)
@click.option("--per-token-p95-ms", type=listed, metavar="NUMBERS", help="As --ttft-p95-ms, between tokens.")
@click.option("--total-p95-ms", type=listed, metavar="NUMBERS", help="As --ttft-p95-ms, to the last token.")
@click.option("--latency-ms", cls=Repeated, type=NamedList(), help="As --p95-ms, for another --percentile.")
@click.option("--percentile", type=float, help="The share of requests that must be within --latency-ms.")
@click.option("--accuracies", type=listed, metavar="NUMBERS", help="Rows of the grid [default: five even steps].")
@options_of(compare)
@click.option("--pipeline", help="The pipeline to compare plans of, of a profile that has several.")
@click.option("--csv", "csv_path", type=PATH, help="Also write the runs as CSV.")
@click.option("--grid-csv", type=PATH, help="Also write the grid of fewest devices as CSV.")
@click.option("--out", type=PATH, help="Also write a page with charts.")
@verb
def command(
    output: Output,
    profiles: tuple[Path, ...],
    trace: tuple[str, ...],
    planners: list[str] | None,
    devices: list[str],
    p95_ms: tuple[Named[list[str]], ...],
    ttft_p95_ms: list[str] | None,
    per_token_p95_ms: list[str] | None,
    total_p95_ms: list[str] | None,
    latency_ms: tuple[Named[list[str]], ...],
    percentile: float | None,
    accuracies: list[str] | None,
    pipeline: str | None,
    csv_path: Path | None,
    grid_csv: Path | None,
    out: Path | None,
    **options: Any,
) -> None:
    """Plan from PROFILE and a trace with every planner, number of devices and objective.

    A run that fails is a row with the reason. For a pipeline of several nodes, the joint plan is
    compared with greedy steps and with nodes that are planned apart. Several profiles are of
    operators that share the devices: --trace and --p95-ms are then given for each, by its name.
    """
    limits_ms: dict[Time, list[str] | None] = {
        "ttft_s": ttft_p95_ms,
        "per_token_s": per_token_p95_ms,
        "total_s": total_p95_ms,
    }
    require(profiles[0].exists(), "there is no such profile folder", where=str(profiles[0]), remedy=PROFILE_FIRST)
    if is_language_profile(profiles[0]):
        refused: dict[str, object] = {
            "--p95-ms": p95_ms,
            "--latency-ms": latency_ms,
            "--percentile": percentile,
            "--accuracies": accuracies,
            "--grid-csv": grid_csv,
            "--pipeline": pipeline,
        }
        require_none({flag: given or None for flag, given in refused.items()})
        options |= {"planners": planners, "devices": [devices_of(each) for each in devices]}
        compare_of_language(output, profiles[0], trace, limits_ms, csv_path=csv_path, page=out, options=options)
        return
    require_none_of_language(limits_ms, remedy="give --p95-ms")
    options |= {
        "planners": planners,
        "devices": [devices_of(each) for each in devices],
        "percentile": 0.95 if percentile is None else percentile,
        "accuracies": None if accuracies is None else numbers_of("--accuracies", accuracies),
    }
    paths = [path for path in (csv_path, grid_csv, out) if path is not None]
    latencies_ms = _latencies_ms(p95_ms, latency_ms, percentile)
    if holds_profiles(profiles[0]):
        require(len(profiles) == 1, "a pipeline is planned alone", remedy="give its profile alone")
        done = compare_one_graph(output, profiles[0], trace, latencies_ms, paths, pipeline=pipeline, options=options)
    else:
        require(pipeline is None, "--pipeline is given, and the profile is of one operator", remedy="leave it out")
        if len(profiles) > 1:
            done = compare_operators(output, profiles, trace, latencies_ms, paths, options)
        else:
            done = _compare_operator(output, profiles[0], trace, latencies_ms, paths, options)
    found = done.found
    if csv_path is not None:
        write_atomically(csv_path, as_csv(found).encode())
    if grid_csv is not None:
        write_atomically(grid_csv, grid_as_csv(found).encode())
    if out is not None:
        notes = [done.note, *(f"{sentence.capitalize()}." for sentence in done.doubts)]
        write_atomically(out, comparison_page(found, title=done.title, note=" ".join(notes)).encode())
    output.json(found)
    show(output, found)
    if options["scope"] == "trace":
        output.say(THIS_TRACE_ALONE)
    if left := count_interrupted(found.runs):
        output.say(f"interrupted: {left} of {len(found.runs)} runs had not ended, and the table is of the others")
    for sentence in done.doubts:
        output.say(sentence)
    for path in paths:
        output.say(f"wrote {path}")


def _compare_operator(
    output: Output,
    profile: Path,
    trace: Sequence[str],
    latencies_ms: Sequence[Named[list[float]]],
    paths: Sequence[Path],
    options: dict[str, Any],
) -> Compared:
    measured = read_profile(profile)
    require_only("--p95-ms", latencies_ms, measured.operator)
    path = the_only_trace(tuple(trace), measured.operator)
    assert path is not None
    arrivals = the_trace(path, seed=options["seed"], **{name: options.pop(name) for name in TRACE_OPTIONS})
    for each in paths:
        require_writable(each)
    if options["planners"] is None:
        options["planners"] = comparable(measured)
    with output.progress() as tell:
        latencies_s = seconds_of_all(the_last(latencies_ms) or [])
        found = compare(measured, arrivals, latencies_s=latencies_s, progress=tell, **options)
    doubts = () if measured.predictions.labelled else (NO_LABELS,)
    return Compared(found, f"Planners for {measured.operator}", f"Profile {profile}, trace {path}.", doubts)


def _latencies_ms(
    p95_ms: tuple[Named[list[str]], ...], latency_ms: tuple[Named[list[str]], ...], percentile: float | None
) -> tuple[Named[list[float]], ...]:
    require_one_latency(p95_ms or None, latency_ms or None, percentile)
    flag, given = ("--latency-ms", latency_ms) if not p95_ms else ("--p95-ms", p95_ms)
    require(bool(given), "no latency is given", remedy="give --p95-ms")
    numbers = tuple(Named(each.name, numbers_of(flag, each.value)) for each in given)
    for ms in (ms for each in numbers for ms in each.value):
        require_positive(flag, ms, "milliseconds")
    return numbers


def show(output: Output, found: Comparison) -> None:
    planned = [run for run in found.runs if run.planner in found.planners]
    rows = table("Plans as predicted", *titles(planned), "planned in")
    for run, shown in cells(planned, FORMATS):
        rows.add_row(*shown, planned_in(run) if run.error is None else str(run.error["kind"]))
    output.show(rows)
    for run in planned:
        if run.error is not None:
            output.say(f"{run.planner}, {run.devices}, {milliseconds(run.latency_objective_s)}: {why_not(run)}")
    output.say("")
    slo = f"p{found.percentile * 100:g}"
    grid = table("Fewest devices (saving)" if found.baselines else "Fewest devices", "accuracy", slo, *found.columns)
    for start in range(0, len(found.grid), len(found.columns)):
        row = found.grid[start : start + len(found.columns)]
        grid.add_row(percent(row[0].accuracy), milliseconds(row[0].latency_s), *map(cell_text, row))
    output.show(grid)
    output.say("")
    volumes = table("Hypervolume", "devices", *found.planners)
    for count in found.device_counts:
        volumes.add_row(str(count), *(digits(v.hypervolume) for v in found.hypervolumes if v.devices == count))
    output.show(volumes)


def as_csv(found: Comparison) -> str:
    return _csv(csv_titles(found.runs), csv_rows(found.runs))


def grid_as_csv(found: Comparison) -> str:
    return _csv(GRID_COLUMNS, [[getattr(cell, name) for name in GRID_COLUMNS] for cell in found.grid])


def _csv(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return file.getvalue()
