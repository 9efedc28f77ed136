"""The objective of a plan: latency, accuracy, or both; and the certificate of a query's answers."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.errors import require, share_of

Metric = Literal["latency", "ttft", "per_token", "total"]
Scope = Literal["every-range", "trace"]
Policy = Literal["gears", "refine", "best"]
"""The policies of a plan: gears alone, refine while there is time, or whichever is better."""
CertifiedMeasure = Literal["accuracy", "agreement", "recall", "precision"]
LONGEST_LATENCY_S = 1e9


class Objective(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A latency percentile, an accuracy, or both; and where they must hold.

    Scope `every-range`: each load range meets the percentile in steady state, and so does the full
    trace. Scope `trace`: only the full trace does. `metric` is the time that the percentile is of;
    `median_s` bounds the median too; `recall` and `precision` bound the answers of a query that are
    of class `positive`. With `confidence`, accuracy, recall and precision must be shown with it.
    """

    percentile: float = 0.95
    latency_s: float | None = None
    accuracy: float | None = None
    confidence: float | None = None
    scope: Scope = "every-range"
    metric: Metric | UnsetType = UNSET
    median_s: float | UnsetType = UNSET
    recall: float | UnsetType = UNSET
    precision: float | UnsetType = UNSET
    positive: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        _require_share("percentile", self.percentile, between=True)
        if self.latency_s is not None:
            require(
                0 < self.latency_s <= LONGEST_LATENCY_S,
                f"latency_s is {self.latency_s}",
                remedy=f"give more than 0, up to {LONGEST_LATENCY_S:.0f}",
            )
        if self.accuracy is not None:
            _require_share("accuracy", self.accuracy)
        if self.confidence is not None:
            _require_share("confidence", self.confidence, between=True)
        if self.median_s is not UNSET:
            usable = 0 < self.median_s <= LONGEST_LATENCY_S
            require(usable, f"median_s is {self.median_s}", remedy=f"give more than 0, up to {LONGEST_LATENCY_S:.0f}")
        if self.recall is not UNSET:
            _require_share("recall", self.recall)
        if self.precision is not UNSET:
            _require_share("precision", self.precision)


class CertifiedLevel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measure of a query's answers that is at least `level`; `agreement` is with the strongest models.

    The test of the gear that comes closest: `mean` of `labels` requests of part B, and the lower
    bound that they show for this gear.
    """

    measure: CertifiedMeasure
    level: float
    bound: float
    mean: float
    labels: int


class Certificate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All `levels` are kept in each gear of a pipeline; a wrong one is given in 1 - `confidence` of cases at most."""

    confidence: float
    levels: tuple[CertifiedLevel, ...]


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The request to a planner; the plan's own objective may add found values, such as a latency.

    `ranges`, `max_qps`, `least_margin`, `most_candidates`, `load`, `budget_s` and, for language
    models, `memory_share` are as in the request for a plan. `policy` is left out where only gears
    were asked for; `chosen_because` is the sentence that says why that policy gave this plan.
    """

    objective: Objective
    ranges: int
    most_candidates: int
    max_qps: float | None = None
    least_margin: float | None = None
    load: Literal["trace", "zipf"] | None = None
    budget_s: float | None = None
    memory_share: float | UnsetType = UNSET
    policy: Policy | UnsetType = UNSET
    chosen_because: str | UnsetType = UNSET


def _require_share(name: str, value: float, *, between: bool = False) -> None:
    remedy = "give a number between 0 and 1" if between else "give a number from 0 to 1"
    usable = 0 < value < 1 if between else 0 <= value <= 1
    require(usable, f"{name} is {value}", remedy=share_of(value) or remedy)
