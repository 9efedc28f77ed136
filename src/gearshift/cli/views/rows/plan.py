"""Plans of rows, as tables and sentences: of one operator, of several, and of pipelines of several nodes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET

from gearshift.cli.common.output import Output
from gearshift.cli.common.tables import (
    NO_LABELS,
    THIS_TRACE_ALONE,
    devices_table,
    results_table,
    show_gears,
    tell_certificate,
    tell_overheads,
    tell_warnings,
)
from gearshift.cli.common.view import Planned
from gearshift.errors import GearshiftError
from gearshift.gear import GearPlan
from gearshift.models.loaded_from import changes
from gearshift.plans.plan_folder import plan_name
from gearshift.plans.prices import price_per_hour
from gearshift.profiles.profile import Profile, overheads_of
from gearshift.reporting.cost import per_million
from gearshift.reporting.headline import closing_line, headline, refinement_in_words
from gearshift.support.numbers import percent
from gearshift.traces.read import doubts_about_trace
from gearshift.verbs.plan import largest_alone

if TYPE_CHECKING:
    from gearshift.planner.largest_alone import LargestAlone

ENDED_EARLY = "the search was ended early: this is the best so far"


def show(output: Output, found: GearPlan | list[GearPlan], planned: Planned) -> None:
    if isinstance(found, list):
        _show_frontier(output, found, planned)
    elif isinstance(planned.profile, Profile):
        _show_one(output, found, planned)
    elif isinstance(planned.profile, Mapping):
        _show_several(output, found, planned)
    else:
        _show_graph(output, found, planned)


# One operator -------------------------------------------------------------------------------------


def _show_one(output: Output, found: GearPlan, planned: Planned) -> None:
    measured = planned.profile
    overheads, warnings = overheads_of(measured), _warnings(planned)
    largest = _largest_alone(output, found, planned)
    output.json(
        facts(found, planned.out, planned.planning_s)
        | {
            "largest_alone": largest,
            "warnings": (*warnings, *doubts_about_trace(planned.traces)),
            "overheads": overheads,
        }
    )
    output.say(headline(found, largest))
    for sentence in refinement_in_words(found):
        output.say(sentence)
    _say_notes(output, planned, *_reasons([found]), unfinished=found.unfinished)
    show_gears(output, found, measured.operator)
    output.show(results_table("Predicted for the trace", [("gear plan", found.predictions[found.name])]))
    if found.what_if is not UNSET:
        output.show(devices_table(found, largest))
    tell_overheads(output, overheads)
    output.say(closing_line(found, planned.out, planned.planning_s))


def _show_frontier(output: Output, found: list[GearPlan], planned: Planned) -> None:
    measured, out, planning_s = planned.profile, planned.out, planned.planning_s
    overheads, warnings = overheads_of(measured), _warnings(planned)
    paths = [out / plan_name(i) for i in range(len(found))]
    plans = [facts(plan, path, planning_s) for plan, path in zip(found, paths, strict=True)]
    told = (*warnings, *doubts_about_trace(planned.traces))
    output.json({"plans": plans, "warnings": told, "overheads": overheads})
    refining = f"{sum(plan.pipeline.refines for plan in found)} of {len(found)} plans refine rows while there is time"
    reasons = () if planned.asked["policy"] == "gears" else (refining,)
    _say_notes(output, planned, *reasons, unfinished=any(plan.unfinished for plan in found))
    rows = [(path.name, plan.predictions[plan.name]) for plan, path in zip(found, paths, strict=True)]
    output.show(results_table("Frontier", rows))
    tell_overheads(output, overheads)
    output.say(f"wrote {len(found)} plans into {out} after {planning_s:.1f} s")


def _say_notes(output: Output, planned: Planned, *reasons: str, unfinished: bool) -> None:
    if unfinished:
        output.say(ENDED_EARLY)
    if planned.asked["scope"] == "trace":
        output.say(THIS_TRACE_ALONE)
    if not planned.profile.predictions.labelled:
        output.say(NO_LABELS)
    if planned.traces.left_ns is not None:
        output.say("planning keeps the objective and ignores the deadlines of the trace: simulate with them")
    for sentence in reasons:
        output.say(sentence)
    tell_warnings(output, _warnings(planned))


def _warnings(planned: Planned) -> tuple[str, ...]:
    measured = planned.profile
    project = None if measured.project is None else planned.paths[0] / measured.project
    return (*measured.warnings, *([] if project is None else changes(measured.loaded_from, project)))


def _largest_alone(output: Output, found: GearPlan, planned: Planned) -> "LargestAlone | None":
    """Return None after Ctrl-C or a failure, because the plan is already written."""
    try:
        with output.progress() as tell:
            tell("simulating the largest model alone", 0.99)
            return largest_alone(found, planned.profile, planned.traces)
    except (KeyboardInterrupt, GearshiftError):
        return None


def facts(plan: GearPlan, path: Path, planning_s: float) -> dict[str, object]:
    pipeline, predicted = plan.pipeline, plan.predictions[plan.name]
    return {
        "planner": plan.planner,
        "planning_s": planning_s,
        "asked": pipeline.asked.objective if pipeline.asked else pipeline.objective,
        "objective": pipeline.objective,
        "refines": pipeline.refines,
        "chosen_because": next(_reasons([plan]), None),
        "devices": len(plan.hardware.devices),
        "price_per_hour": price_per_hour(plan.hardware),
        "price_per_million": per_million(price_per_hour(plan.hardware), predicted),
        "what_if": None if plan.what_if is UNSET else plan.what_if,
        "pool_cores": plan.hardware.pool_cores,
        "predicted": predicted,
        "unfinished": plan.unfinished,
        "plan": str(path),
    }


def _reasons(plans: list[GearPlan]) -> Iterator[str]:
    """Why the policy gave these plans, each reason once."""
    asked = [pipeline.asked for plan in plans for pipeline in plan.pipelines.values()]
    yield from dict.fromkeys(one.chosen_because for one in asked if one is not None and one.chosen_because)


# Several operators --------------------------------------------------------------------------------


def _show_several(output: Output, made: GearPlan, planned: Planned) -> None:
    out, planning_s = planned.out, planned.planning_s
    measured: Mapping[str, Profile] = planned.profile
    warnings = [f"{name}: {sentence}" for name, profile in measured.items() for sentence in profile.warnings]
    output.json(facts_of_several(made, out, planning_s) | {"warnings": warnings})
    output.say(headline(made))
    for sentence in (*refinement_in_words(made), *_reasons([made])):
        output.say(sentence)
    if made.unfinished:
        output.say(ENDED_EARLY)
    if planned.asked["scope"] == "trace":
        output.say(THIS_TRACE_ALONE)
    tell_warnings(output, warnings)
    for name in made.pipelines:
        show_gears(output, made, name)
    output.show(results_table("Predicted for the traces, all at once", list(made.predictions.items())))
    for name, profile in measured.items():
        if not profile.predictions.labelled:
            output.say(f"{name}: {NO_LABELS}")
        tell_overheads(output, overheads_of(profile))
    output.say(closing_line(made, out, planning_s))


def facts_of_several(plan: GearPlan, path: Path, planning_s: float) -> dict[str, object]:
    return {
        "planner": plan.planner,
        "planning_s": planning_s,
        "refines": any(pipeline.refines for pipeline in plan.pipelines.values()),
        "chosen_because": next(_reasons([plan]), None),
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


# Pipelines of several nodes -----------------------------------------------------------------------


def _show_graph(output: Output, made: GearPlan, planned: Planned) -> None:
    planning_s = planned.planning_s
    output.json(_facts_of_graph(made, planned.out, planning_s))
    if made.unfinished:
        output.say(ENDED_EARLY)
    output.say(headline(made))
    late = made.predictions[made.name].share_late
    if late > 1 - made.pipeline.objective.percentile:
        output.say(f"the baseline misses the objective: {percent(late)} are late")
    show_gears(output, made, made.name)
    output.show(results_table("Predicted for the trace", list(made.predictions.items())))
    if made.what_if is not UNSET:
        output.show(devices_table(made, None))
    tell_certificate(output, made.pipeline)
    output.say(closing_line(made, planned.out, planning_s))


def _facts_of_graph(made: GearPlan, out: Path, planning_s: float) -> dict[str, object]:
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
