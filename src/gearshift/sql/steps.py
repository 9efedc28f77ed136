"""The operators of a query, and the records from which their implementations are judged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.bulk.measured import named_pipeline, profile_of
from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput, require
from gearshift.hardware import Device
from gearshift.models.classes import class_name
from gearshift.planner.space.cascade_search import pareto_cascades, work_per_request_s
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.profile import Profile
from gearshift.support.files import PathLike

MOST_CASCADES = 64

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a query: a filter that keeps rows of some labels, or a map.

    `plan` is a plan file; `columns` names the column of each input. The answers of a map are the
    columns `label`, `certainty` and `outcome` after its `prefix`, by default the pipeline's name
    and "_". A filter leaves no columns.
    """

    plan: PathLike
    pipeline: str | None = None
    keep: tuple[str | int, ...] | None = None
    columns: dict[str, str] = {}
    label: str = "label"
    prefix: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StepRecords:
    """The implementations of a step on recorded rows: arrays (implementations, rows), by rising work.

    `truth` (rows,) and `passes` tell which rows a filter ought to keep, and does; of a map all.
    `quality` is that of a map's answers, 1 for a filter, whose errors are what it keeps. `part`
    (rows,) parts the rows for choosing from those for testing.
    """

    name: str
    is_filter: bool
    cascades: tuple[Cascade, ...]
    truth: Bools
    passes: Bools
    quality: Floats
    work_s: Floats
    part: NDArray[np.int8]

    def on(self, rows: NDArray[np.int32], part: NDArray[np.int8]) -> "StepRecords":
        """The records of these rows, in this order, which are of these parts."""
        return replace(
            self,
            truth=self.truth[rows],
            passes=self.passes[:, rows],
            quality=self.quality[:, rows],
            work_s=self.work_s[:, rows],
            part=part,
        )


class Recorded(NamedTuple):
    """The records of a step, its operator, and the folder of the operator's profile."""

    records: StepRecords
    operator: str
    folder: Path | None


def recorded(step: Step) -> Recorded:
    """Read the plan and the profile of a step, and take the cascades of the profile's front."""
    plan = read_plan(Path(step.plan))
    name = named_pipeline(plan, step.pipeline)
    profile, folder = profile_of(plan, name, Path(step.plan).parent)
    return Recorded(step_records(name, profile, plan.hardware.devices[0], step.keep), profile.operator, folder)


def step_records(
    name: str,
    profile: Profile,
    device: Device,
    keep: Sequence[str | int] | None = None,
    cascades: Sequence[Cascade] | None = None,
) -> StepRecords:
    """Raises `InvalidInput` for a filter whose profile has no labels and predictions."""
    model_s = work_per_request_s(profile, device)
    if cascades is None:
        cascades = [one.cascade for one in pareto_cascades(profile, model_s, most=MOST_CASCADES)]
    records, rows = profile.predictions, len(profile.predictions.part)
    answered = [_answered_by(cascade, profile) for cascade in cascades]
    work_s = np.array(
        [
            np.cumsum([model_s[model] for model in cascade.models])[stages]
            for cascade, stages in zip(cascades, answered, strict=True)
        ]
    )
    columns = np.arange(rows)
    by = [records.rows(cascade.models)[stages] for cascade, stages in zip(cascades, answered, strict=True)]
    everything = np.ones((len(cascades), rows), dtype=bool)
    if keep is None:
        quality = np.array([records.quality[models, columns] for models in by])
        truth, passes = everything[0], everything
    else:
        if records.label is None or records.prediction is None:
            raise InvalidInput(
                f"the profile of pipeline {name!r} has no labels or no predictions, so nothing is known of what a "
                "filter on them keeps",
                remedy="profile it with labels, or bring `label` and `prediction` in its records",
            )
        kept = {class_name(value) for value in keep}
        known = set(records.label.tolist()) | set(records.prediction.ravel().tolist())
        unknown = sorted(kept - known)
        require(
            not unknown,
            f"the filter keeps {unknown[0]!r}, which no model of pipeline {name!r} has answered" if unknown else "",
            remedy=f"use some of {', '.join(sorted(known)[:8])}",
        )
        truth = np.isin(records.label, list(kept))
        passes = np.isin(np.array([records.prediction[models, columns] for models in by]), list(kept))
        quality = everything.astype(np.float64)
    return StepRecords(name, keep is not None, tuple(cascades), truth, passes, quality, work_s, records.part)


def _answered_by(cascade: Cascade, profile: Profile) -> NDArray[np.int64]:
    """The stage that answers each recorded row."""
    records = profile.predictions
    rows = records.rows(cascade.models)
    stages = np.full(len(records.part), len(rows) - 1)
    for stage in range(len(rows) - 2, -1, -1):
        stages[records.certainty[rows[stage]] >= cascade.thresholds[stage]] = stage
    return stages
