"""The content of a report; every part is optional, and a missing part leaves its chart out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.result import ServingResult, percentile

Kind = Literal["predicted", "measured"]

_NINES = 1 - 10 ** -np.linspace(0, 3, 121)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePoint:
    """A cascade that the planner considered: accuracy in [0, 1], mean seconds per sample.

    `on_front`: no other is both more accurate and cheaper. `used`: some gear serves it.
    """

    cascade: str
    accuracy: float
    mean_run_s: float
    on_front: bool = False
    used: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RangePoint:
    """The prediction for one load range `[from_qps, to_qps)`; the last has no upper end.

    `gear` are gear numbers, such as "3-7". `cores` are those of its models, where they change with
    load. `at_qps` is the load of the prediction, where that is not the range's upper end.
    """

    from_qps: float
    to_qps: float | None
    cascade: str
    accuracy: float
    p95_s: float
    share_late: float
    cores: str = ""
    gear: str = ""
    at_qps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyQuantiles:
    """Latency in seconds (k,) at rising shares (k,) of the answered requests."""

    share: NDArray[np.float64]
    latency_s: NDArray[np.float64]

    def __post_init__(self) -> None:
        require(len(self.share) == len(self.latency_s), "latency quantiles: shares and latencies differ in number")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """One run of a system: figures, latencies, and load and gear (n,) at `seconds` (n,) if known.

    Two runs of one `name`, one predicted and one measured, share a row of the summary.
    """

    name: str
    kind: Kind
    result: ServingResult
    seconds: NDArray[np.float64] | None = None
    load_qps: NDArray[np.float64] | None = None
    gear: NDArray[np.int64] | None = None
    latency_quantiles: LatencyQuantiles | None = None

    def __post_init__(self) -> None:
        points = 0 if self.seconds is None else len(self.seconds)
        for name, array in (("load_qps", self.load_qps), ("gear", self.gear)):
            require(array is None or len(array) == points, f"run {self.name!r}: {name} does not fit its seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """The content of a page.

    `note` is shown under the title; `slo_s` is the latency objective in seconds. `percentile`
    names the predicted latency of the ranges.
    """

    title: str
    note: str = ""
    plan: GearPlan | None = None
    candidates: Sequence[CandidatePoint] = field(default=())
    ranges: Sequence[RangePoint] = field(default=())
    runs: Sequence[RunSeries] = field(default=())
    slo_s: float | None = None
    percentile: str = "p95"


def latency_quantiles(latency_s: NDArray[np.float64]) -> LatencyQuantiles:
    """Quantiles of the latencies (n,) of answered requests, dense towards the 99.9th."""
    if len(latency_s) == 0:
        return LatencyQuantiles(share=np.zeros(0), latency_s=np.zeros(0))
    highest = max(0.5, 1 - 1 / len(latency_s))
    shares = _NINES[highest >= _NINES]
    rising = np.sort(latency_s)
    return LatencyQuantiles(share=shares, latency_s=np.array([percentile(rising, float(p)) for p in shares]))


def gear_series(
    gears: Sequence[tuple[float, int]], seconds: NDArray[np.float64], *, before: int = 0
) -> NDArray[np.int64]:
    times = np.array([time for time, _ in gears], dtype=np.float64)
    values = np.array([before, *(gear for _, gear in gears)], dtype=np.int64)
    return values[np.searchsorted(times, seconds, side="right")]
