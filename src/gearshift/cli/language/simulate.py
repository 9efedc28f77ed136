"""`gearshift simulate` and `gearshift inspect` of language models."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from gearshift.cli.common.foretelling import seconds_for
from gearshift.cli.common.options import require_none, take_trace
from gearshift.cli.common.output import Output
from gearshift.cli.common.tables import percent
from gearshift.cli.language.contexts import answerable_and_told
from gearshift.cli.language.tables import (
    language_headline,
    language_results,
    placement_text,
    show_language_gears,
    show_language_profile,
)
from gearshift.gear import GearPlan
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.reporting.language.words import placed_sharing_in_words
from gearshift.verbs.language.inputs import plan_and_language_profile
from gearshift.verbs.simulate import simulate_language

if TYPE_CHECKING:
    from gearshift.simulator.engines.language_simulation import LanguageSimulation


def simulate_of_language(
    output: Output, plan: Path, profile: Path | None, refused: Mapping[str, object], trace_arguments: dict[str, Any]
) -> None:
    """Simulate and print; `refused` are flags that do not go with language models."""
    require_none(refused)
    made, measured = plan_and_language_profile(plan, profile)
    trace = take_trace(output.say, made, plan, trace_arguments)
    trace = answerable_and_told(output, trace, engine_tables(made, measured).engines)
    simulated = partial(simulate_language, made, profile=measured, seed=trace_arguments["seed"])
    with output.waiting(f"simulating {len(trace):,} requests", seconds_for(trace, simulated)):
        run = simulated(trace)
    result = run.result(measured, made.pipeline.objective)
    output.json(result)
    output.show(language_results("Predicted", [("gear plan", result)]))
    for line in run_lines(run):
        output.say(line)
    busy = ", ".join(f"{device} {100 * share:.0f} %" for device, share in result.utilisation.items())
    output.say(f"devices busy: {busy}")


def run_lines(run: "LanguageSimulation") -> list[str]:
    """Shifts and gears of a run, and what engines had to compute again."""
    counts = np.bincount(run.gear, minlength=1)
    shares = [f"{gear}: {percent(count / len(run.gear))}" for gear, count in enumerate(counts.tolist()) if count]
    lines = [f"gear shifts: {len(run.shifts)}; answers by gear: {', '.join(shares)}"]
    if preempted := int(np.count_nonzero(run.preempted)):
        lines.append(f"{preempted} requests lost their memory in an engine, and were computed again")
    return lines


def inspect_language_profile(output: Output, profile: LanguageProfile) -> None:
    output.json(
        {
            "operator": profile.operator,
            "sha256": profile.sha256,
            "models": profile.models,
            "certainty": profile.certainty,
            "ranks": profile.ranks,
            "ranks_at": profile.ranks_at,
            "prompts": len(profile.answers.part),
            "judged": profile.answers.judged,
            "engines": profile.engines,
            "sharing": profile.sharing,
            "warnings": profile.warnings,
        }
    )
    show_language_profile(output, profile)


def inspect_language_plan(output: Output, plan: GearPlan, profile: LanguageProfile | None) -> None:
    output.json(msgspec.to_builtins(plan))
    output.say(language_headline(plan))
    output.say(placement_text(plan))
    for told in [] if profile is None else placed_sharing_in_words(plan, profile):
        output.say(told)
    show_language_gears(output, plan)
    if plan.name in plan.predictions:
        output.show(language_results("Predicted", [(plan.name, plan.predictions[plan.name])]))
    output.say(f"made by planner {plan.planner}; profile {plan.profile.path or 'unknown'} {plan.profile.sha256[:12]}")
