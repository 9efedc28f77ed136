"""`gearshift plan`."""

import time
from pathlib import Path
from typing import Any

import click

from gearshift import api
from gearshift.cli.options import PATH, require_positive, the_trace, trace_options
from gearshift.cli.output import Output, verb
from gearshift.cli.tables import gears_table, results_table
from gearshift.errors import require
from gearshift.hardware import GIB
from gearshift.plan_file import write_plan
from gearshift.profiles.store import read_profile


@click.command("plan", short_help="Search for the best gear plan within a latency objective.")
@click.argument("profile", type=PATH)
@trace_options
@click.option("--devices", type=int, default=1, show_default=True, help="How many devices like the profiled one.")
@click.option("--p95-ms", type=float, help="95 % of requests must be answered within this many milliseconds.")
@click.option("--latency-ms", type=float, help="As --p95-ms, for another --percentile.")
@click.option("--percentile", type=float, help="The share of requests that must be within --latency-ms.")
@click.option(
    "--scope",
    type=click.Choice(["every-range", "trace"]),
    default="every-range",
    show_default=True,
    help="Where the objective must hold: in every load range and on the trace, or on the trace alone.",
)
@click.option("--ranges", type=int, default=20, show_default=True, help="How many load ranges.")
@click.option("--max-qps", type=float, help="The top of the load ranges, in requests per second.")
@click.option(
    "--least-margin",
    type=float,
    help="Plan every range for at least so many times its load [default: 1.15; 0.5 with --scope trace].",
)
@click.option("--memory-gib", type=float, help="Memory of each device; by default enough for every model.")
@click.option("--out", type=PATH, default="plan.json", show_default=True, help="The plan file to write.")
@verb
def command(
    output: Output,
    profile: Path,
    devices: int,
    p95_ms: float | None,
    latency_ms: float | None,
    percentile: float | None,
    scope: Any,
    ranges: int,
    max_qps: float | None,
    least_margin: float | None,
    memory_gib: float | None,
    out: Path,
    **trace_arguments: Any,
) -> None:
    """Search for the gear plan with the best accuracy that keeps a latency percentile, from PROFILE and a trace."""
    limit_ms = p95_ms if p95_ms is not None else latency_ms
    require(limit_ms is not None, "no objective is given", remedy="give --p95-ms")
    require(p95_ms is None or latency_ms is None, "--p95-ms and --latency-ms are both given", remedy="give one of them")
    require(
        p95_ms is None or percentile is None,
        "--p95-ms and --percentile are both given",
        remedy="give --latency-ms instead",
    )
    require_positive("--p95-ms", p95_ms, "milliseconds")
    require_positive("--latency-ms", latency_ms, "milliseconds")
    require_positive("--memory-gib", memory_gib, "GiB")
    measured = read_profile(profile)
    trace = the_trace(**trace_arguments)
    memory_bytes = None if memory_gib is None else int(memory_gib * GIB)
    began = time.perf_counter()
    with output.progress() as tell:
        made = api.plan(
            measured,
            trace,
            devices=api.profiled_devices(measured, devices, memory_bytes=memory_bytes),
            latency_s=(limit_ms or 0.0) / 1e3,
            percentile=0.95 if percentile is None else percentile,
            scope=scope,
            ranges=ranges,
            max_qps=max_qps,
            least_margin=least_margin,
            seed=trace_arguments["seed"],
            profile_source=api.source_file(profile, out, measured.sha256),
            trace_source=api.source_file(trace_arguments["trace"], out, trace.sha256),
            progress=tell,
        )
    planning_s = time.perf_counter() - began
    write_plan(made, out)
    predicted = made.predictions[measured.operator]
    output.json(
        {
            "planner": made.planner,
            "planning_s": planning_s,
            "objective": made.operators[measured.operator].objective,
            "devices": devices,
            "predicted": predicted,
            "plan": str(out),
        }
    )
    output.show(gears_table(made, measured.operator))
    output.show(results_table("Predicted for the trace", [("gear plan", predicted)]))
    output.say(f"wrote {out} after {planning_s:.1f} s")
