"""What the table of a profile's models says of how good they are."""

import dataclasses
import io

from rich.console import Console

from gearshift.cli.common.tables import profile_table
from gearshift.profiles.profile import Profile
from tests.little_task import little_profile


def shown(profile: Profile) -> str:
    written = io.StringIO()
    Console(width=200, file=written).print(profile_table(profile))
    return written.getvalue()


def unlabelled(profile: Profile) -> Profile:
    return dataclasses.replace(
        profile, predictions=dataclasses.replace(profile.predictions, labelled=False, label=None)
    )


def test_without_labels_it_is_agreement_and_no_accuracy() -> None:
    assert "accuracy" in shown(little_profile())
    assert "accuracy" not in shown(unlabelled(little_profile()))


def test_an_only_model_without_labels_is_not_judged() -> None:
    whole = unlabelled(little_profile())
    records = whole.predictions
    only = dataclasses.replace(
        whole,
        curves=tuple(curve for curve in whole.curves if curve.model == "small"),
        predictions=dataclasses.replace(
            records, models=("small",), quality=records.quality[:1], certainty=records.certainty[:1], prediction=None
        ),
    )
    assert "%" not in shown(only)
