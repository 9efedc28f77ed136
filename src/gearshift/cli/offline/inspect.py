"""`gearshift inspect`."""

from pathlib import Path

import click
import msgspec

from gearshift.cli.common.option_table import PATH
from gearshift.cli.common.output import Output, verb
from gearshift.cli.common.tables import (
    profile_table,
    results_table,
    show_gears,
    tell_certificate,
    tell_overheads,
    tell_warnings,
)
from gearshift.cli.language.simulate import inspect_language_plan, inspect_language_profile
from gearshift.gear import GearPlan
from gearshift.plans.served import require_served
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.profile import overheads_of
from gearshift.reporting.headline import counted, headline, refinement_in_words
from gearshift.verbs.inspect import inspect, profile_beside
from gearshift.verbs.language.inputs import plans_language


@click.command("inspect")
@click.argument("path", type=PATH)
@verb
def command(output: Output, path: Path) -> None:
    """Print and check PATH, a plan file or the folder of a profile."""
    found = inspect(path)
    if isinstance(found, LanguageProfile):
        inspect_language_profile(output, found)
        return
    if isinstance(found, GearPlan) and plans_language(found):
        inspect_language_plan(output, found, profile_beside(found, path))
        return
    if not isinstance(found, GearPlan):
        output.json(
            {
                "operator": found.operator,
                "sha256": found.sha256,
                "models": found.models,
                "warnings": found.warnings,
                "overheads": overheads_of(found),
            }
        )
        output.show(profile_table(found))
        tell_overheads(output, overheads_of(found))
        tell_warnings(output, found.warnings)
        output.say(f"{len(found.predictions.part)} samples; certainty is {found.certainty}; sha256 {found.sha256[:12]}")
        return
    require_served(found)
    output.json(msgspec.to_builtins(found))
    output.say(headline(found))
    for sentence in refinement_in_words(found):
        output.say(sentence)
    for name in found.pipelines:
        show_gears(output, found, name)
        if name in found.predictions:
            output.show(results_table("Predicted", [(name, found.predictions[name])]))
        tell_certificate(output, found.pipelines[name])
    replicas, devices = len(found.placement.replicas), len(found.hardware.devices)
    output.say(f"{counted(replicas, 'replica')} on {counted(devices, 'device')}; made by planner {found.planner}")
    for name, source in found.profiles.items():
        of = f" of {name}" if len(found.profiles) > 1 else ""
        output.say(f"profile{of} {source.path or 'unknown'} {source.sha256[:12]}")
