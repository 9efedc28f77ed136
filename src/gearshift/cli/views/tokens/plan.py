"""`gearshift plan` of language models."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET

from gearshift.cli.common.option_table import flag_of
from gearshift.cli.common.options import TRACE_OPTIONS, the_trace
from gearshift.cli.common.other_devices import what_if_by_count
from gearshift.cli.common.output import Output
from gearshift.cli.common.tables import THIS_TRACE_ALONE, devices_table
from gearshift.cli.views.tokens.contexts import answerable_and_told
from gearshift.cli.views.tokens.tables import language_headline, language_results, placement_text, show_language_gears
from gearshift.errors import Infeasible, require
from gearshift.gear import GearPlan
from gearshift.plans.plan_folder import plan_name, require_plans_replaceable
from gearshift.plans.prices import price_per_hour
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import read_language_profile
from gearshift.reporting.cost import per_million
from gearshift.reporting.headline import closing_line
from gearshift.reporting.language.words import ended_early_text, placed_sharing_in_words
from gearshift.support.files import require_writable
from gearshift.verbs.language.plan import TIMES, plan_language, plan_language_frontier
from gearshift.verbs.plan_request import source_file, trace_file

FLAGS = {"ttft_s": "--ttft-p95-ms", "per_token_s": "--per-token-p95-ms", "total_s": "--total-p95-ms"}
OF_WHOLE_ANSWERS = "--p95-ms", "--latency-ms"


def plan_of_language(
    output: Output,
    profile: Path,
    trace: Path,
    *,
    refused: Mapping[str, object],
    frontier: bool,
    what_if: bool,
    out: Path | None,
    options: dict[str, Any],
) -> None:
    """Plan and print; `options` are keywords of `plan`, with those of the trace, `refused` other flags."""
    for flag, given in refused.items():
        remedy = f"give {', '.join(FLAGS.values())} in its place" if flag in OF_WHOLE_ANSWERS else "leave it out"
        require(not given, f"{flag} is given, and the profile is of language models", remedy=remedy)
    times = [FLAGS[name] for name in TIMES if options[name] is not None]
    require(
        frontier or bool(times) or options["accuracy"] is not None,
        "no objective is given",
        remedy="give --ttft-p95-ms, --per-token-p95-ms, --total-p95-ms, --accuracy or --frontier",
    )
    out = out or Path("plans" if frontier else "plan.json")
    (require_plans_replaceable if frontier else require_writable)(out)
    measured = read_language_profile(profile)
    arrivals = the_trace(**{name: options.pop(name) for name in TRACE_OPTIONS}, trace=trace, seed=options["seed"])
    arrivals = answerable_and_told(output, arrivals, measured.engines)
    first = out / plan_name(0) if frontier else out
    options["profile_source"] = source_file(profile, first, measured.sha256)
    options["trace_source"] = trace_file(trace, first, arrivals)
    two = bool(times) and options["accuracy"] is not None and options["devices"] is None
    began = time.perf_counter()
    with output.progress() as tell:
        try:
            if frontier:
                found = plan_language_frontier(measured, arrivals, out=out, progress=tell, **options)
            else:
                made = plan_language(measured, arrivals, fewest=two, out=out, progress=tell, **options)
        except Infeasible as error:
            if error.nearest_latency_s is not None and times:
                error.add_note(f"feasible: {times[0]} {error.nearest_latency_s * 1e3:.6g}")
            raise
    planning_s = time.perf_counter() - began
    if frontier:
        _show_frontier(output, found, out, planning_s)
    else:
        if what_if:
            others = options | ({"accuracy": None} if times else {})
            made = what_if_by_count(
                output,
                made,
                lambda count: plan_language(measured, arrivals, **others | {"devices": count}),
                out,
                budget_s=options["budget_s"],
            )
        _show(output, made, measured, out, planning_s)
    if options["scope"] == "trace":
        output.say(THIS_TRACE_ALONE)


def require_no_language(given: Mapping[str, object]) -> None:
    """Refuse options of language models; keys are keywords of `plan`."""
    for name, value in given.items():
        flag = FLAGS.get(name, flag_of(name))
        require(value is None, f"{flag} is given, which is for language models", remedy="leave it out")


def _show(output: Output, made: GearPlan, measured: LanguageProfile, out: Path, planning_s: float) -> None:
    output.json(facts(made, out, planning_s))
    if made.unfinished:
        output.say(ended_early_text(made))
    output.say(language_headline(made))
    output.say(placement_text(made))
    for told in placed_sharing_in_words(made, measured):
        output.say(told)
    show_language_gears(output, made)
    output.show(language_results("Predicted for the trace", [("gear plan", made.predictions[made.name])]))
    if made.what_if is not UNSET:
        output.show(devices_table(made, None))
    output.say(closing_line(made, out, planning_s))


def _show_frontier(output: Output, found: list[GearPlan], out: Path, planning_s: float) -> None:
    paths = [out / plan_name(i) for i in range(len(found))]
    output.json({"plans": [facts(plan, path, planning_s) for plan, path in zip(found, paths, strict=True)]})
    rows = [(path.name, plan.predictions[plan.name]) for plan, path in zip(found, paths, strict=True)]
    if any(plan.unfinished for plan in found):
        output.say("the search was ended early: a longer one may find more plans, and better ones")
    output.show(language_results("Frontier", rows))
    output.say(f"wrote {len(found)} plans into {out} after {planning_s:.1f} s")


def facts(made: GearPlan, path: Path, planning_s: float) -> dict[str, object]:
    pipeline = made.pipeline
    return {
        "planner": made.planner,
        "planning_s": planning_s,
        "asked": pipeline.asked.objective if pipeline.asked else pipeline.objective,
        "objective": pipeline.objective,
        "load_unit": pipeline.load_unit,
        "devices": len(made.hardware.devices),
        "price_per_hour": price_per_hour(made.hardware),
        "price_per_million": per_million(price_per_hour(made.hardware), made.predictions[made.name]),
        "what_if": None if made.what_if is UNSET else made.what_if,
        "predicted": made.predictions[made.name],
        "unfinished": made.unfinished,
        "plan": str(path),
    }
