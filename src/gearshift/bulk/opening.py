"""The options by which a pipeline is opened, shared by all that run relations."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict, Unpack

from gearshift.bulk.operator import Operator, open_operator
from gearshift.cascade import Cascade
from gearshift.gear import GearPlan
from gearshift.profiles.profile import Profile
from gearshift.support.files import PathLike


class Opening(TypedDict, total=False):
    """Keywords of `gearshift.bulk.operator.open_operator`."""

    accuracy: float | None
    confidence: float | None
    gear: int | None
    cascade: Cascade | None
    label: str
    workers: int | None
    profile: Profile | PathLike | None
    project: PathLike | None
    api_key: str | None
    ca_file: PathLike | None


@contextmanager
def opened(
    plan: GearPlan | PathLike | Operator, pipeline: str | None, **options: Unpack[Opening]
) -> Iterator[Operator]:
    """The operator itself, or one that is closed in the end."""
    if isinstance(plan, Operator):
        yield plan
        return
    with open_operator(plan, pipeline, **options) as operator:
        yield operator
