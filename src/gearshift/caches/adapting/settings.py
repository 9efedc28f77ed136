"""Settings, counts and events of the adaptation and audit of learned caches."""

from collections.abc import Mapping
from typing import Annotated, Any, Protocol

import msgspec

from gearshift.errors import InvalidInput

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Time = Annotated[float, msgspec.Meta(gt=0)]


class Adaptation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How learned caches are adapted; the defaults are Gati's (section 7.2).

    The share `audit_share` of all answers is audited and `learn_share` learnt from, never both.
    Times are in the unit of the times that the adapter is given: seconds, or samples. A sample
    counts half as much after `half_life_s`. Of the training samples, `recent_share` are recent,
    the others are from the build, of which `most_validation` are used. Without `adapt`, caches are
    only audited. If the hit rate falls by the share `hit_rate_fall` since the last retraining, the
    next one comes earlier. With `follow_classes`, caches are set for the current class mix as soon
    as it changes; without, for that of the build.
    """

    adapt: bool = True
    learn_share: Share = 0.2
    audit_share: Share = 0.02
    window_s: Time = 3600.0
    interval_s: Time = 900.0
    half_life_s: Time = 1800.0
    most_samples: Count = 20_000
    most_bytes: Count = 1 << 30
    least_samples: Count = 100
    most_validation: Count = 3000
    recent_share: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5
    epochs: Count = 5
    learning_rate: Time = 2e-3
    hit_rate_fall: Share = 0.3
    follow_classes: bool = True
    most_versions: Count = 10


class Counts(msgspec.Struct, kw_only=True):
    """Counters since the start.

    `base_runs` are samples that ran through the whole base model, `partial_runs` those that ran
    only to the last cache, because the model's answer was known; `base_run_s` is the time of both.
    `reused` are answers of misses that were taken as labels, `unusable` samples that the model
    answers with NaN or infinity.
    """

    learnt: int = 0
    audited: int = 0
    disagreed: int = 0
    base_runs: int = 0
    partial_runs: int = 0
    base_run_s: float = 0.0
    reused: int = 0
    dropped: int = 0
    unusable: int = 0
    retraining_s: float = 0.0
    outcomes: dict[str, int] = {}


class Tell(Protocol):
    """Receives events, as a journal does."""

    def __call__(self, event: str, **facts: object) -> None: ...


def adaptation_of(settings: Mapping[str, Any]) -> Adaptation:
    try:
        return msgspec.convert(dict(settings), Adaptation)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error), where="adaptation of learned caches", remedy="mend that setting") from error
