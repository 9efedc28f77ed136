"""`gearshift plan`."""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from gearshift.cli.common.options import (
    PATH,
    TRACE_OPTIONS,
    command_line,
    require_one_latency,
    require_positive,
    scope_option,
    the_trace,
    trace_options,
)
from gearshift.cli.common.options import devices as devices_of
from gearshift.cli.common.output import Output, verb
from gearshift.cli.common.tables import (
    NO_LABELS,
    THIS_TRACE_ALONE,
    results_table,
    show_gears,
    tell_overheads,
    tell_warnings,
)
from gearshift.errors import GearshiftError, Infeasible, require
from gearshift.gear import GearPlan
from gearshift.hardware import GIB
from gearshift.models.loaded_from import changes
from gearshift.objective import Scope
from gearshift.planner import planners
from gearshift.plans.plan_folder import plan_name, require_plans_replaceable
from gearshift.plans.plan_tables import only_pipeline
from gearshift.profiles.overheads import overheads_of
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile
from gearshift.reporting.headline import headline
from gearshift.result import ServingResult
from gearshift.support.files import require_writable
from gearshift.traces.doubts import doubts_about_trace
from gearshift.traces.read import read_trace
from gearshift.verbs import plan_request as api
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.largest_alone import LargestAlone

STEADY, LEAST_GAPS = 0.2, 10
"""A trace is steady if the standard deviation of its gaps is at most this share of their mean."""


@click.command("plan", short_help="Search for the best gear plan within an objective.")
@click.argument("profile", type=PATH)
@trace_options
@click.option(
    "--devices",
    type=devices_of,
    metavar="NUMBER|FILE",
    help="How many devices like the profiled one, or a JSON or TOML file that lists devices [default: 1; the fewest"
    " that do where both a latency and an accuracy are given].",
)
@click.option(
    "--cores",
    type=int,
    help="In place of devices, a host of so many cores, which every load range splits among its models: the fewest"
    " core-seconds that keep both a latency and an accuracy.",
)
@click.option("--p95-ms", type=float, help="95 % of requests must be answered within this many milliseconds.")
@click.option("--latency-ms", type=float, help="As --p95-ms, for another --percentile.")
@click.option("--percentile", type=float, help="The share of requests that must be within --latency-ms.")
@click.option("--accuracy", type=float, help="The accuracy that must be reached, from 0 to 1.")
@click.option("--confidence", type=float, help="How sure the accuracy must be: its lower bound must reach it.")
@click.option("--frontier", is_flag=True, help="All undominated plans, as a folder of plan files; takes no objective.")
@click.option(
    "--planner",
    type=click.Choice(list(planners.MODULES)),
    default=planners.DEFAULT,
    show_default=True,
    help="Who searches.",
)
@scope_option
@click.option(
    "--load",
    type=click.Choice(["trace", "zipf"]),
    help="How often load ranges are taken to be visited [default: the planner's choice].",
)
@click.option("--budget-s", type=float, help="End the search after about so many seconds, with the best plan so far.")
@click.option("--ranges", type=int, default=20, show_default=True, help="How many load ranges.")
@click.option("--max-qps", type=float, help="The top of the load ranges, in requests per second.")
@click.option(
    "--least-margin",
    type=float,
    help="Plan every range for at least so many times its load [default: 1.15; 0.5 with --scope trace].",
)
@click.option("--memory-gib", type=float, help="Memory of each device; by default enough for every model.")
@click.option("--out", type=PATH, help="The plan file to write, or the folder [default: plan.json, or plans].")
@verb
def command(
    output: Output,
    profile: Path,
    devices: int | Path | None,
    cores: int | None,
    p95_ms: float | None,
    latency_ms: float | None,
    percentile: float | None,
    frontier: bool,
    memory_gib: float | None,
    out: Path | None,
    seed: int,
    trace: Path,
    **options: Any,
) -> None:
    """Search for the gear plan that is best for an objective, from PROFILE and a trace.

    With --p95-ms, find the most accurate plan within it; with --accuracy, the fastest that reaches
    it; with both and without --devices, the plan on the fewest devices that meets both; with
    --frontier, all plans that no other beats. With --cores, find the plan for one host whose cores
    move between models as load changes; PROFILE must have several core counts.
    """
    limit_ms = p95_ms if p95_ms is not None else latency_ms
    require(
        frontier or limit_ms is not None or options["accuracy"] is not None,
        "no objective is given",
        remedy="give --p95-ms, --accuracy or --frontier",
    )
    require_one_latency(p95_ms, latency_ms, percentile)
    if cores is not None:
        _require_alone(devices=devices, memory_gib=memory_gib, frontier=frontier, planner=options["planner"])
    if frontier:
        _require_no_objective(
            p95_ms=p95_ms, latency_ms=latency_ms, accuracy=options["accuracy"], confidence=options["confidence"]
        )
    require(
        options["confidence"] is None or options["accuracy"] is not None,
        "--confidence is given without --accuracy",
        remedy="give both",
    )
    require_positive("--p95-ms", p95_ms, "milliseconds")
    require_positive("--latency-ms", latency_ms, "milliseconds")
    require_positive("--memory-gib", memory_gib, "GiB")
    require_positive("--budget-s", options["budget_s"], "seconds")
    out = out or Path("plans" if frontier else "plan.json")
    (require_plans_replaceable if frontier else require_writable)(out)
    beside = out / plan_name(0) if frontier else out
    measured = read_profile(profile)
    of_trace: dict[str, Any] = {"trace": trace, "seed": seed} | {name: options.pop(name) for name in TRACE_OPTIONS}
    arrivals = the_trace(**of_trace)
    memory_bytes = None if memory_gib is None else int(memory_gib * GIB)
    on: dict[str, Any] = {"cores": cores}
    if cores is None:
        on = {"devices": api.hardware_of(1 if devices is None else devices, measured, memory_bytes=memory_bytes)}
    fewest = (
        devices is None and cores is None and limit_ms is not None and options["accuracy"] is not None and not frontier
    )
    began = time.perf_counter()
    search: Callable[..., GearPlan | list[GearPlan]] = api.plan_frontier if frontier else api.plan
    try:
        with output.progress() as tell:
            found = search(
                measured,
                arrivals,
                **on,
                latency_s=None if limit_ms is None else limit_ms / 1e3,
                percentile=0.95 if percentile is None else percentile,
                seed=seed,
                out=out,
                profile_source=api.source_file(profile, beside, measured.sha256),
                trace_source=api.trace_file(trace, beside, arrivals),
                progress=tell,
                **({"fewest": True} if fewest else {}),
                **options,
            )
    except Infeasible as error:
        limit = "p95_ms" if latency_ms is None else "latency_ms"
        for line in nearest_commands(error, limit=limit, counted=cores is None and not isinstance(devices, Path)):
            error.add_note(line)
        if error.by_load and (hint := steady_hint(arrivals, of_trace, options["scope"])):
            output.say(hint)
        raise
    planning_s = time.perf_counter() - began
    replaced = [] if measured.project is None else changes(measured.loaded_from, profile / measured.project)
    warnings = [*measured.warnings, *replaced, *doubts_about_trace(arrivals)]
    overheads = overheads_of(measured)
    if isinstance(found, GearPlan):
        largest = _largest_alone(output, found, measured, arrivals)
        output.json(
            facts(found, out, planning_s) | {"largest_alone": largest, "warnings": warnings, "overheads": overheads}
        )
        output.say(headline(found, largest))
    if any(plan.unfinished for plan in (found if isinstance(found, list) else [found])):
        output.say("the search was ended early: this is the best so far")
    if options["scope"] == "trace":
        output.say(THIS_TRACE_ALONE)
    if not measured.predictions.labelled:
        output.say(NO_LABELS)
    if arrivals.left_ns is not None:
        output.say("the deadlines of the trace play no part in planning, which keeps the objective: simulate with them")
    tell_warnings(output, [*measured.warnings, *replaced])
    if isinstance(found, list):
        paths = [out / plan_name(i) for i in range(len(found))]
        plans = [facts(*pair, planning_s) for pair in zip(found, paths, strict=True)]
        output.json({"plans": plans, "warnings": warnings, "overheads": overheads})
        output.show(results_table("Frontier", [(p.name, result_of(f)) for f, p in zip(found, paths, strict=True)]))
        tell_overheads(output, overheads)
        output.say(f"wrote {len(found)} plans into {out} after {planning_s:.1f} s")
        return
    show_gears(output, found, measured.operator)
    output.show(results_table("Predicted for the trace", [("gear plan", result_of(found))]))
    tell_overheads(output, overheads)
    output.say(f"wrote {out} after {planning_s:.1f} s")


def _largest_alone(output: Output, found: GearPlan, measured: Profile, arrivals: Trace) -> "LargestAlone | None":
    """Return None after Ctrl-C or a failure, because the plan is already written."""
    try:
        with output.progress() as tell:
            tell("simulating the largest model alone", 0.99)
            return api.largest_alone(found, measured, arrivals)
    except (KeyboardInterrupt, GearshiftError):
        return None


def _require_alone(*, devices: object, memory_gib: object, frontier: bool, planner: str) -> None:
    beside = {
        "--devices": devices is not None,
        "--memory-gib": memory_gib is not None,
        "--frontier": frontier,
        "--planner": planner != planners.DEFAULT,
    }
    given = next((name for name, there in beside.items() if there), "")
    require(not given, f"{given} is given beside --cores", remedy="give one of them")


def _require_no_objective(**given: float | None) -> None:
    name = next((f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None), "")
    require(
        not name,
        f"{name} is given beside --frontier, which has plans for every latency and accuracy",
        remedy=f"leave {name} out, or --frontier to plan for it",
    )


def facts(plan: GearPlan, path: Path, planning_s: float) -> dict[str, object]:
    operator = plan.pipelines[only_pipeline(plan)]
    return {
        "planner": plan.planner,
        "planning_s": planning_s,
        "asked": operator.asked.objective if operator.asked else operator.objective,
        "objective": operator.objective,
        "devices": len(plan.hardware.devices),
        "price_per_hour": sum(device.price_per_hour for device in plan.hardware.devices),
        "pool_cores": plan.hardware.pool_cores,
        "predicted": result_of(plan),
        "unfinished": plan.unfinished,
        "plan": str(path),
    }


def result_of(plan: GearPlan) -> ServingResult:
    return plan.predictions[only_pipeline(plan)]


def steady_hint(trace: Trace, of_trace: dict[str, Any], scope: Scope) -> str:
    evenly = trace
    if trace.of_counts and of_trace["arrivals"] != "uniform":
        path, changed_how = of_trace["trace"], {"seed": of_trace["seed"], "arrivals": "uniform"}
        if not path.is_file():  # a pipe cannot be read again
            return ""
        evenly = read_trace(path, **{name: of_trace[name] for name in TRACE_OPTIONS} | changed_how)
    gaps_ns = np.diff(evenly.arrivals_ns)
    if len(gaps_ns) < LEAST_GAPS or gaps_ns.std() > STEADY * gaps_ns.mean():
        return ""
    drawn = trace.sha256 != evenly.sha256
    changed = ("--arrivals uniform",) * drawn + ("--scope trace",) * (scope != "trace")
    if not changed:
        return ""
    at_random = f", and drawn at random it has up to {trace.peak_qps:.0f} in a second" * drawn
    ranges = "; every range is to hold arrivals at random too" * (scope != "trace")
    return (
        f"the trace is a steady {evenly.mean_qps:.4g}/s{at_random}{ranges}: "
        f"if requests come evenly, plan with {' '.join(changed)}"
    )


def nearest_commands(error: Infeasible, *, limit: str, counted: bool) -> Iterator[str]:
    """Yield the command with each nearest feasible objective, rounded to the feasible side."""
    changed: list[dict[str, object]] = []
    if error.nearest_latency_s is not None:
        changed.append({limit: math.ceil(error.nearest_latency_s * 1e6 - 1e-6) / 1e3})
    if error.nearest_accuracy is not None:
        changed.append({"accuracy": math.floor(error.nearest_accuracy * 1e4 + 1e-9) / 1e4})
    if error.together:
        changed = [{name: value for each in changed for name, value in each.items()}]
    if error.nearest_devices is not None and counted:
        changed.append({"devices": error.nearest_devices})
    for options in changed:
        yield command_line(**options)
