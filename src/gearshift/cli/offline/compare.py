"""`gearshift compare`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.named import Named, NamedList, Repeated, by_operator, numbers_of, require_only, the_last
from gearshift.cli.common.option_table import PATH, TableOption, listed, options_of, require_positive
from gearshift.cli.common.option_table import devices as devices_of
from gearshift.cli.common.options import (
    TRACE_OPTIONS,
    given_options,
    read_traces,
    require_apart,
    require_one_latency,
    require_supported,
    traces_options,
)
from gearshift.cli.common.output import Output, verb
from gearshift.cli.common.tables import THIS_TRACE_ALONE
from gearshift.cli.common.view import Compared
from gearshift.cli.views.shown import show, view_of
from gearshift.errors import require
from gearshift.planner import planners as registry
from gearshift.planner.compare import COCKTAIL
from gearshift.profiles.store import REMEDY as PROFILE_FIRST
from gearshift.support.files import require_writable, write_atomically
from gearshift.verbs.compare import compare
from gearshift.verbs.kinds.registry import kind_of_profile


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
    cls=TableOption,
    keyword="ttft_s",
    unit=None,
    type=listed,
    metavar="NUMBERS",
    help="For language models: times to the first token.",
)
@click.option(
    "--per-token-p95-ms",
    cls=TableOption,
    keyword="per_token_s",
    unit=None,
    type=listed,
    metavar="NUMBERS",
    help="As --ttft-p95-ms, between tokens.",
)
@click.option(
    "--total-p95-ms",
    cls=TableOption,
    keyword="total_s",
    unit=None,
    type=listed,
    metavar="NUMBERS",
    help="As --ttft-p95-ms, to the last token.",
)
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
    devices: list[str],
    p95_ms: tuple[Named[list[str]], ...],
    latency_ms: tuple[Named[list[str]], ...],
    accuracies: list[str] | None,
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
    require(profiles[0].exists(), "there is no such profile folder", where=str(profiles[0]), remedy=PROFILE_FIRST)
    found = kind_of_profile(profiles if len(profiles) > 1 else profiles[0])
    kind, shape = found.kind, found.shape
    require_supported(found, "compare")
    require_apart(kind.apart.get(shape, {}))
    times = [name for name in kind.needs[shape].any_of if name not in ("latency_s", "accuracy")]
    if "latency_s" in kind.needs[shape].any_of:
        require_one_latency(p95_ms or None, latency_ms or None, options["percentile"])
        require(bool(p95_ms or latency_ms), "no latency is given", remedy="give --p95-ms")
    measured = kind.read_profile(shape, profiles)
    options["latencies_s"] = _latencies_s("--p95-ms" if p95_ms else "--latency-ms", p95_ms or latency_ms, measured)
    for name in times:
        if options[name] is not None:
            options[name] = _seconds(given_options()[name].flag, options[name])
    options["devices"] = [devices_of(each) for each in devices]
    options["accuracies"] = None if accuracies is None else numbers_of("--accuracies", accuracies)
    reading = {name: options.pop(name) for name in TRACE_OPTIONS} | {"seed": options["seed"]}
    paths, arrivals = read_traces(output.say, kind, measured, trace, reading, only=True)
    written = [path for path in (csv_path, grid_csv, out) if path is not None]
    for each in written:
        require_writable(each)
    asked = kind.without_lacking("compare", shape, {name: one for name, one in options.items() if one is not None})
    with output.progress() as tell:
        result = compare(measured, arrivals, progress=tell, **asked)
    compared = Compared(profiles, measured, paths, options)
    for path, function in ((csv_path, "as_csv"), (grid_csv, "grid_as_csv")):
        if path is not None:
            write_atomically(path, view_of(kind, f"compare:{function}")(result).encode())
    if out is not None:
        from gearshift.reporting.drawing.page import html_page

        write_atomically(out, html_page(*view_of(kind, "compare:page")(result, compared)).encode())
    output.json(result)
    show(kind, "compare:show", output, result, compared, is_json=True)
    if options["scope"] == "trace" and "scope" in asked:
        output.say(THIS_TRACE_ALONE)
    for each in written:
        output.say(f"wrote {each}")


def _latencies_s(flag: str, given: Sequence[Named[list[str]]], measured: Any) -> Any:
    """The latencies, or those of each operator."""
    seconds = [Named(each.name, _seconds(flag, each.value)) for each in given]
    if isinstance(measured, Mapping):
        return by_operator(flag, seconds, measured)
    if operator := getattr(measured, "operator", None):
        require_only(flag, seconds, operator)
    return the_last(seconds) or ()


def _seconds(flag: str, given: Sequence[str]) -> list[float]:
    numbers = numbers_of(flag, given)
    for ms in numbers:
        require_positive(flag, ms, "milliseconds")
    return [ms / 1e3 for ms in numbers]
