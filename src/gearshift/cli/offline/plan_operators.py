"""`gearshift plan` for several operators that share devices."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gearshift.cli.common.named import Named, by_operator, named_paths
from gearshift.cli.common.option_table import require_positive
from gearshift.cli.common.options import TRACE_OPTIONS, require_one_latency, the_trace
from gearshift.cli.common.output import Output
from gearshift.cli.common.tables import (
    NO_LABELS,
    THIS_TRACE_ALONE,
    results_table,
    show_gears,
    tell_overheads,
    tell_warnings,
)
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.planner.planners import require_planner
from gearshift.plans.prices import price_per_hour
from gearshift.profiles.profile import Profile, overheads_of
from gearshift.reporting.cost import per_million
from gearshift.reporting.headline import closing_line, headline, refinement_in_words
from gearshift.support.files import require_writable
from gearshift.verbs.plan import plan_together
from gearshift.verbs.plan_request import named_profiles, source_file, trace_file

FOR_ONE = "frontier", "cores", "confidence"
"""Options that are for one operator."""


def plan_operators(
    output: Output,
    profiles: Sequence[Path],
    traces: Sequence[str],
    named: Mapping[str, Sequence[Named[float]]],
    *,
    beside: Path | None,
    out: Path,
    options: dict[str, Any],
) -> None:
    """Plan and show; `named` has the options with a value for each operator, by flag."""
    _require_for_several(options)
    flag = _latency_flag(named, options["percentile"])
    require_writable(out)
    measured = named_profiles(profiles)
    if len(measured) == 1 and len(traces) == 1 and "=" not in traces[0]:
        traces = [f"{next(iter(measured))}={traces[0]}"]
    reading = {name: options.pop(name) for name in TRACE_OPTIONS} | {"seed": options["seed"]}
    paths = named_paths("--trace", traces, measured)
    arrivals = {name: the_trace(path, **reading) for name, path in paths.items()}
    began = time.perf_counter()
    with output.progress() as tell:
        made = plan_together(
            list(measured.values()),
            arrivals,
            latency_s={name: ms / 1e3 for name, ms in by_operator(flag, named[flag], measured).items()},
            accuracy=by_operator("--accuracy", named["--accuracy"], measured),
            worth=by_operator("--worth", named["--worth"], measured),
            beside=beside,
            profile_sources={
                name: source_file(path, out, profile.sha256)
                for path, (name, profile) in zip(profiles, measured.items(), strict=True)
            },
            trace_sources={name: trace_file(paths[name], out, trace) for name, trace in arrivals.items()},
            out=out,
            progress=tell,
            **options,
        )
    _show(output, made, measured, out, time.perf_counter() - began, options)


def _require_for_several(options: dict[str, Any]) -> None:
    for name in FOR_ONE:
        require(
            not options.pop(name),
            f"--{name} is given, and it is for one operator",
            remedy=f"leave --{name} out, or plan each operator for itself",
        )
    require_planner(options["planner"], "rows", "several")


def _latency_flag(named: Mapping[str, Sequence[Named[float]]], percentile: float | None) -> str:
    given = {flag: named[flag] or None for flag in ("--p95-ms", "--latency-ms")}
    require_one_latency(given["--p95-ms"], given["--latency-ms"], percentile)
    flag = "--p95-ms" if given["--latency-ms"] is None else "--latency-ms"
    require(bool(named[flag]), "no latency is given", remedy="give each operator one, as in --p95-ms NAME=100")
    for each in named[flag]:
        require_positive(flag, each.value, "milliseconds")
    return flag


def _show(
    output: Output,
    made: GearPlan,
    measured: Mapping[str, Profile],
    out: Path,
    planning_s: float,
    options: Mapping[str, Any],
) -> None:
    output.json(facts_of_several(made, out, planning_s) | {"warnings": _warnings(measured)})
    output.say(headline(made))
    for sentence in (*refinement_in_words(made), *_chosen_because(made)):
        output.say(sentence)
    if made.unfinished:
        output.say("the search was ended early: this is the best so far")
    if options["scope"] == "trace":
        output.say(THIS_TRACE_ALONE)
    tell_warnings(output, _warnings(measured))
    for name in made.pipelines:
        show_gears(output, made, name)
    output.show(results_table("Predicted for the traces, all at once", list(made.predictions.items())))
    for name, profile in measured.items():
        if not profile.predictions.labelled:
            output.say(f"{name}: {NO_LABELS}")
        tell_overheads(output, overheads_of(profile))
    output.say(closing_line(made, out, planning_s))


def _chosen_because(made: GearPlan) -> list[str]:
    """Why the policy gave this plan, once."""
    asked = [pipeline.asked for pipeline in made.pipelines.values()]
    return list(dict.fromkeys(one.chosen_because for one in asked if one is not None and one.chosen_because))


def _warnings(measured: Mapping[str, Profile]) -> list[str]:
    return [f"{name}: {sentence}" for name, profile in measured.items() for sentence in profile.warnings]


def facts_of_several(plan: GearPlan, path: Path, planning_s: float) -> dict[str, object]:
    return {
        "planner": plan.planner,
        "planning_s": planning_s,
        "refines": any(pipeline.refines for pipeline in plan.pipelines.values()),
        "chosen_because": next(iter(_chosen_because(plan)), None),
        "devices": len(plan.hardware.devices),
        "price_per_hour": price_per_hour(plan.hardware),
        "price_per_million": per_million(price_per_hour(plan.hardware), *plan.predictions.values()),
        "pipelines": {
            name: {
                "asked": pipeline.asked.objective if pipeline.asked else pipeline.objective,
                "objective": pipeline.objective,
                "predicted": plan.predictions[name],
            }
            for name, pipeline in plan.pipelines.items()
        },
        "unfinished": plan.unfinished,
        "plan": str(path),
    }
