"""A plan or a profile of language models, as tables and sentences."""

from pathlib import Path

import msgspec

from gearshift.cli.common.output import Output
from gearshift.cli.views.tokens.tables import (
    language_headline,
    language_results,
    placement_text,
    show_language_gears,
    show_language_profile,
)
from gearshift.gear import GearPlan
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import read_language_profile
from gearshift.reporting.language.words import placed_sharing_in_words


def show(output: Output, found: GearPlan | LanguageProfile, path: Path) -> None:
    if isinstance(found, LanguageProfile):
        _show_profile(output, found)
        return
    beside = path.parent / found.profile.path
    _show_plan(output, found, read_language_profile(beside) if beside.is_dir() else None)


def _show_profile(output: Output, profile: LanguageProfile) -> None:
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


def _show_plan(output: Output, plan: GearPlan, profile: LanguageProfile | None) -> None:
    output.json(msgspec.to_builtins(plan))
    output.say(language_headline(plan))
    output.say(placement_text(plan))
    for told in [] if profile is None else placed_sharing_in_words(plan, profile):
        output.say(told)
    show_language_gears(output, plan)
    if plan.name in plan.predictions:
        output.show(language_results("Predicted", [(plan.name, plan.predictions[plan.name])]))
    output.say(f"made by planner {plan.planner}; profile {plan.profile.path or 'unknown'} {plan.profile.sha256[:12]}")
