"""A plan or a profile of rows, as tables and sentences."""

from pathlib import Path

import msgspec

from gearshift.cli.common.output import Output
from gearshift.cli.common.tables import (
    profile_table,
    results_table,
    show_gears,
    tell_certificate,
    tell_overheads,
    tell_warnings,
)
from gearshift.gear import GearPlan
from gearshift.profiles.profile import Profile, overheads_of
from gearshift.reporting.headline import counted, headline, refinement_in_words


def show(output: Output, found: GearPlan | Profile, _: Path) -> None:
    if isinstance(found, Profile):
        _show_profile(output, found)
        return
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


def _show_profile(output: Output, found: Profile) -> None:
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
