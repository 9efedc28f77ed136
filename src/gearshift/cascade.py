"""Cascades: models from cheap to expensive, with a threshold on certainty between them."""

import math
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.errors import require


class Cascade(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, order=True):
    """Stage k answers when its certainty is at or above `thresholds[k]`, else forwards.

    The last stage always answers, so there is one threshold fewer than models. Certainty scales
    differ between models, so thresholds belong to stages. `decide_at_tokens` has for each stage but
    the last the generated token at which it decides: None at the end, 0 before the first, by a hash of
    the request's id in place of the certainty.
    """

    models: tuple[str, ...]
    thresholds: tuple[float, ...] = ()
    decide_at_tokens: tuple[int | None, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        require(len(self.models) >= 1, "a cascade has no models, needs at least one")
        require(
            len(set(self.models)) == len(self.models),
            f"cascade {' > '.join(self.models)} visits a model more than once",
        )
        require(
            len(self.thresholds) == len(self.models) - 1,
            f"cascade {' > '.join(self.models)} has {len(self.thresholds)} thresholds",
            remedy=f"give {len(self.models) - 1}, one for each stage but the last",
        )
        require(
            all(math.isfinite(t) for t in self.thresholds),
            f"cascade {' > '.join(self.models)} has a threshold that is not finite",
        )
        tokens = () if self.decide_at_tokens is UNSET else self.decide_at_tokens
        require(
            self.decide_at_tokens is UNSET or len(tokens) == len(self.thresholds),
            f"cascade {' > '.join(self.models)} decides at tokens of {len(tokens)} stages",
            remedy=f"give {len(self.thresholds)}, one for each stage but the last",
        )
        require(
            all(token is None or token >= 0 for token in tokens),
            f"cascade {' > '.join(self.models)} decides at a negative token",
            remedy="give 0 to decide by the request's id, a number of tokens, or null for the end",
        )

    def __str__(self) -> str:
        parts = [f"{m} <{_threshold(t)}" for m, t in zip(self.models, self.thresholds, strict=False)]
        return " > ".join([*parts, self.models[-1]])


def _threshold(value: float) -> str:
    """Three digits, without an exponent."""
    text = f"{value:.3g}"
    return format(Decimal(text), "f") if "e" in text else text


class TimedQuality(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The expected quality of a cascade's answer by the time that remains for it, in milliseconds."""

    remaining_ms: tuple[int, ...]
    quality: tuple[float, ...]

    def __post_init__(self) -> None:
        require_rising("remaining_ms", self.remaining_ms, self.quality)


class ExpectedGain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The expected gain in quality if model `later` answers in place of `kept`, by the certainty of `kept`."""

    kept: str
    later: str
    certainty: tuple[float, ...]
    gain: tuple[float, ...]

    def __post_init__(self) -> None:
        require_rising("certainty", self.certainty, self.gain)


def require_rising(name: str, points: Sequence[float], values: Sequence[float]) -> None:
    require(
        len(points) == len(values) >= 1 and all(a < b for a, b in pairwise(points)),
        f"a table by {name} has {len(points)} points for {len(values)} values, or points that do not rise",
        remedy="give one value for each of the rising points",
    )
