"""Plans of language models, as tables and sentences."""

from pathlib import Path

from msgspec import UNSET

from gearshift.cli.common.output import Output
from gearshift.cli.common.tables import THIS_TRACE_ALONE, devices_table
from gearshift.cli.common.view import Planned
from gearshift.cli.views.tokens.tables import (
    language_headline,
    language_results,
    placement_text,
    show_language_gears,
)
from gearshift.gear import GearPlan
from gearshift.plans.plan_folder import plan_name
from gearshift.plans.prices import price_per_hour
from gearshift.reporting.cost import per_million
from gearshift.reporting.headline import closing_line
from gearshift.reporting.language.words import ended_early_text, placed_sharing_in_words


def show(output: Output, made: GearPlan | list[GearPlan], planned: Planned) -> None:
    if isinstance(made, list):
        _show_frontier(output, made, planned)
        return
    output.json(facts(made, planned.out, planned.planning_s))
    if made.unfinished:
        output.say(ended_early_text(made))
    output.say(language_headline(made))
    output.say(placement_text(made))
    for told in placed_sharing_in_words(made, planned.profile):
        output.say(told)
    show_language_gears(output, made)
    output.show(language_results("Predicted for the trace", [("gear plan", made.predictions[made.name])]))
    if made.what_if is not UNSET:
        output.show(devices_table(made, None))
    output.say(closing_line(made, planned.out, planned.planning_s))
    if planned.asked["scope"] == "trace":
        output.say(THIS_TRACE_ALONE)


def _show_frontier(output: Output, found: list[GearPlan], planned: Planned) -> None:
    out, planning_s = planned.out, planned.planning_s
    paths = [out / plan_name(i) for i in range(len(found))]
    output.json({"plans": [facts(plan, path, planning_s) for plan, path in zip(found, paths, strict=True)]})
    rows = [(path.name, plan.predictions[plan.name]) for plan, path in zip(found, paths, strict=True)]
    if any(plan.unfinished for plan in found):
        output.say("the search was ended early: a longer one may find more plans, and better ones")
    output.show(language_results("Frontier", rows))
    output.say(f"wrote {len(found)} plans into {out} after {planning_s:.1f} s")
    if planned.asked["scope"] == "trace":
        output.say(THIS_TRACE_ALONE)


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
