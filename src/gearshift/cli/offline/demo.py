"""`gearshift demo`."""

from pathlib import Path

import click

from gearshift.cli.common.option_table import PATH, require_positive
from gearshift.cli.common.output import Output, table, verb
from gearshift.cli.common.tables import figures, ratios_told, split_table
from gearshift.demo.run import DemoResult, run_demo


@click.command("demo")
@click.option("--folder", type=PATH, default="gearshift-demo", show_default=True, help="Where everything is written.")
@click.option("--p95-ms", type=float, default=150.0, show_default=True, help="The latency objective.")
@click.option("--seconds", type=click.FloatRange(10, 600), default=12.0, show_default=True, help="Length of the trace.")
@verb
def command(output: Output, folder: Path, p95_ms: float, seconds: float) -> None:
    """Train four models, profile them, plan, simulate, serve a bursty trace over HTTP, and compare.

    The same trace is then served with only the largest model, and with only the smallest.
    """
    require_positive("--p95-ms", p95_ms, "milliseconds")
    with output.progress() as tell:
        made = run_demo(folder, latency_s=p95_ms / 1e3, trace_s=seconds, tell=tell)
    output.json(
        {
            "slo": {"p95_s": p95_ms / 1e3},
            "simulated": made.gears.predicted,
            "served": made.gears.measured,
            "baselines": {"largest": made.largest.measured, "smallest": made.smallest.measured},
            "split": made.gears.split,
            "valid": made.valid,
            "lateness_p99_s": [one.replay.lateness.p99_s for one in (made.gears, made.largest, made.smallest)],
            "report": str(made.report),
        }
    )
    _show(output, made, p95_ms)


def _show(output: Output, made: DemoResult, p95_ms: float) -> None:
    output.say(
        f"{made.requests} requests, up to {made.peak_qps:.0f}/s, where the largest model alone carries "
        f"{made.largest_capacity_qps:.0f}/s; objective: p95 within {p95_ms:.4g} ms"
    )
    shown = table("", "", "accuracy", "p50", "p95", "p99", "late", "goodput")
    for name, system in (
        ("gear plan", made.gears),
        ("largest alone", made.largest),
        ("smallest alone", made.smallest),
    ):
        for kind, result, style in (("predicted", system.predicted, "dim"), ("measured", system.measured, None)):
            shown.add_row(f"{name}, {kind}", *figures(result), f"{result.goodput_qps:.0f}/s", style=style)
    output.show(shown)
    output.show(split_table(made.gears.split))
    output.say(ratios_told(made.gears.split))
    if not made.valid:
        output.say("the load generator could not keep its schedule on this machine: read measured latencies with care")
    output.say(f"report: {made.report}")
