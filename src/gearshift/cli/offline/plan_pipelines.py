"""`gearshift plan` for a pipeline of several nodes."""

import time
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET

from gearshift.cli.common.options import TRACE_OPTIONS, the_trace
from gearshift.cli.common.other_devices import what_if_by_count
from gearshift.cli.common.output import Output
from gearshift.cli.common.tables import devices_table, results_table, show_gears, tell_certificate
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.plans.prices import price_per_hour
from gearshift.reporting.cost import per_million
from gearshift.reporting.headline import closing_line, headline
from gearshift.support.files import require_writable
from gearshift.support.numbers import percent
from gearshift.verbs.plan_pipeline import plan_pipeline
from gearshift.verbs.plan_request import trace_file

OF_CLASS = "recall", "precision", "positive"
PASSED_ON = (
    "accuracy", "confidence", *OF_CLASS, "devices", "memory_bytes", "price_per_hour", "ranges", "max_qps",
    "least_margin", "budgets", "seed", "planner",
)  # fmt: skip
PROMISED = "accuracy", "confidence", *OF_CLASS
NOT_FOR_PIPELINES = "cores", "fewest", "frontier", "load", "budget_s"


def plan_graph(
    output: Output,
    profiles: Path,
    trace: Path,
    *,
    pipeline: str | None,
    latency_ms: float | None,
    percentile: float | None,
    what_if: bool,
    out: Path,
    options: dict[str, Any],
) -> None:
    for name in NOT_FOR_PIPELINES:
        flag = f"--{name.replace('_', '-').removesuffix('-s')}"
        require(
            not options.pop(name, None),
            f"{flag} is given, and a pipeline of several nodes is planned without",
            remedy=f"leave {flag} out",
        )
    if latency_ms is None:
        require(False, "no latency is given", remedy="give --p95-ms")
        return
    require_writable(out)
    reading = {name: options.pop(name) for name in TRACE_OPTIONS} | {"seed": options["seed"]}
    arrivals = the_trace(trace, **reading)
    began = time.perf_counter()
    given = {name: options[name] for name in PASSED_ON if options.get(name) is not None}
    planned = partial(
        plan_pipeline,
        profiles,
        arrivals,
        pipeline=pipeline,
        latency_s=latency_ms / 1e3,
        percentile=percentile or 0.95,
        replanning=not options["without_replanning"],
        trace_source=trace_file(trace, out, arrivals),
    )
    with output.progress() as tell:
        made = planned(out=out, progress=tell, **given)
    if what_if:
        for_latency = {name: value for name, value in given.items() if name not in PROMISED}
        made = what_if_by_count(
            output, made, lambda count: planned(**for_latency | {"devices": count}), out, budget_s=None
        )
    output.json(_facts(made, out, time.perf_counter() - began))
    if made.unfinished:
        output.say("the search was ended early: this is the best so far")
    output.say(headline(made))
    late = made.predictions[made.name].share_late
    if late > 1 - made.pipeline.objective.percentile:
        output.say(f"the baseline misses the objective: {percent(late)} are late")
    show_gears(output, made, made.name)
    output.show(results_table("Predicted for the trace", list(made.predictions.items())))
    if made.what_if is not UNSET:
        output.show(devices_table(made, None))
    tell_certificate(output, made.pipeline)
    output.say(closing_line(made, out, time.perf_counter() - began))


def _facts(made: GearPlan, out: Path, planning_s: float) -> dict[str, object]:
    return {
        "planner": made.planner,
        "planning_s": planning_s,
        "objective": made.pipeline.objective,
        "devices": len(made.hardware.devices),
        "price_per_hour": price_per_hour(made.hardware),
        "price_per_million": per_million(price_per_hour(made.hardware), *made.predictions.values()),
        "gears": len(made.pipeline.gears),
        "gears_that_choose": sum(gear.timed is not UNSET for gear in made.pipeline.gears),
        "what_if": None if made.what_if is UNSET else made.what_if,
        "predicted": made.predictions[made.name],
        "unfinished": made.unfinished,
        "certificate": None if made.pipeline.certificate is UNSET else made.pipeline.certificate,
        "plan": str(out),
    }
