"""The profiles of several operators, read as one by what looks models up by their names."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.profiles.profile import PredictionRecords, Profile

Profiles = Profile | Mapping[str, Profile]
"""The profile of the only operator, or those of several by operator."""


def as_one(profiles: Profiles) -> Profile:
    """One profile with the models of all operators.

    Records of an operator that has fewer samples than another are repeated; the parts are those of
    the operator with most. The front end takes the longest of its times. Raises `InvalidInput`
    where two operators have a model of one name.
    """
    if isinstance(profiles, Profile):
        return profiles
    require(len(profiles) > 0, "there are no profiles")
    if len(profiles) == 1:
        return next(iter(profiles.values()))
    _require_different_models(profiles)
    each = tuple(profiles.values())
    part = max((profile.predictions.part for profile in each), key=len)
    samples = len(part)
    return Profile(
        operator="several",
        curves=tuple(curve for profile in each for curve in profile.curves),
        predictions=PredictionRecords(
            models=tuple(model for profile in each for model in profile.models),
            quality=np.concatenate([_repeated(profile.predictions.quality, samples) for profile in each]),
            certainty=np.concatenate([_repeated(profile.predictions.certainty, samples) for profile in each]),
            part=part,
            exit_segment=_exits(each, samples),
        ),
        performance=tuple(model for profile in each for model in profile.performance),
        front_end_s=max(profile.front_end_s for profile in each),
        router_s=max(profile.router_s for profile in each),
    )


def profile_of(operator: str, profiles: Profiles) -> Profile:
    """Raises `InvalidInput` where there is none."""
    if isinstance(profiles, Profile):
        return profiles
    require(operator in profiles, f"there is no profile of operator {operator!r}", remedy="profile it")
    return profiles[operator]


def _require_different_models(profiles: Mapping[str, Profile]) -> None:
    operator_of: dict[str, str] = {}
    for operator, profile in profiles.items():
        for model in profile.models:
            require(
                model not in operator_of,
                f"operators {operator_of.get(model)!r} and {operator!r} both have a model {model!r}",
                remedy="give one of the models another name",
            )
            operator_of[model] = operator


def _repeated(of_records: NDArray[np.float64], samples: int) -> NDArray[np.float64]:
    return of_records[:, np.arange(samples) % of_records.shape[1]]


def _exits(profiles: tuple[Profile, ...], samples: int) -> NDArray[np.int64] | None:
    if all(profile.predictions.exit_segment is None for profile in profiles):
        return None
    rows = []
    for profile in profiles:
        exits = profile.predictions.exit_segment
        if exits is None:
            last = [max(c.segment for c in profile.curves if c.model == model) for model in profile.models]
            exits = np.repeat(np.array(last)[:, None], len(profile.predictions.part), axis=1)
        rows.append(exits[:, np.arange(samples) % exits.shape[1]])
    return np.concatenate(rows)
