"""The request to a planner, and the load ranges that it plans for."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.gear import LoadRange, SourceFile
from gearshift.hardware import Hardware
from gearshift.objective import Objective, Policy
from gearshift.planner.space.beside import Beside
from gearshift.profiles.profile import Profile
from gearshift.workload import Trace

RANGES = 20
MOST_CANDIDATES = 64
HEADROOM = 1.2
LARGEST_MARGIN = 2.0
LEAST_MARGIN = {"every-range": 1.15, "trace": 0.5}
"""Every range is planned for at least this multiple of its load. Not 1: a machine a few percent
slower than when it was profiled could not serve a plan without any slack, and its queues would
grow without bound."""

UNKNOWN_SOURCE = SourceFile(path="", sha256="")

Progress = Callable[[str, float], None]
LoadDistribution = Literal["trace", "zipf"]
Kind = Literal["rows", "tokens"]
Shape = Literal["one", "several", "graph"]
"""One operator, several on the same devices, or one pipeline of several nodes."""


def silent(what: str, share: float) -> None:
    """Report no progress."""


class Request(Protocol):
    """What requests of all kinds have; `planned_by` says in which row of the table their planners are."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    planned_by: ClassVar[tuple[Kind, Shape]]
    takes_long: ClassVar[bool]
    """Whether each search of several within one tells its own progress."""

    @property
    def hardware(self) -> Hardware: ...
    @property
    def objective(self) -> Objective: ...
    @property
    def budget_s(self) -> float | None: ...
    @property
    def latency_s(self) -> float: ...
    @property
    def percentile(self) -> float: ...


class OfLatency(Request, Protocol):
    """A request that may be made for another latency."""

    def within(self, latency_s: float | None) -> Self:
        """The same for this latency alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The request to a planner.

    `max_qps` is the top of the ranges; every range is planned for at least `least_margin` times
    its load. `load` says how often each range is visited: as in the trace, or by Zipf's law; None
    leaves it to the planner. The pipelines `beside` it share the hardware, and stay as they are.
    """

    planned_by: ClassVar[tuple[Kind, Shape]] = "rows", "one"
    takes_long: ClassVar[bool] = False

    profile: Profile
    trace: Trace
    hardware: Hardware
    objective: Objective
    ranges: int = RANGES
    max_qps: float | None = None
    most_candidates: int = MOST_CANDIDATES
    least_margin: float | None = None
    load: LoadDistribution | None = None
    budget_s: float | None = None
    policy: Policy = "gears"
    seed: int = 0
    profile_source: SourceFile = UNKNOWN_SOURCE
    trace_source: SourceFile = UNKNOWN_SOURCE
    beside: Beside | None = None

    def __post_init__(self) -> None:
        require(1 <= self.ranges <= 1000, f"{self.ranges} load ranges asked for", remedy="ask for 1 to 1000")
        require(
            self.max_qps is None or 0 < self.max_qps < math.inf,
            f"max_qps is {self.max_qps}",
            remedy="give a positive rate",
        )
        require(
            self.least_margin is None or 0 < self.least_margin <= LARGEST_MARGIN,
            f"least_margin is {self.least_margin}",
            remedy=f"give a positive number up to {LARGEST_MARGIN:g}",
        )
        require(
            self.budget_s is None or 0 < self.budget_s < math.inf,
            f"budget_s is {self.budget_s}",
            remedy="give a positive number of seconds",
        )
        require(2 <= self.most_candidates <= 10_000, f"most_candidates is {self.most_candidates}, needs 2 to 10000")

    @property
    def latency_s(self) -> float:
        """The latency objective; infinite where there is none."""
        return math.inf if self.objective.latency_s is None else self.objective.latency_s

    @property
    def percentile(self) -> float:
        return self.objective.percentile

    def within(self, latency_s: float | None) -> "PlanRequest":
        """The same for this latency alone."""
        return replace(self, objective=within(self.objective, latency_s))

    def upper_ends(self) -> NDArray[np.float64]:
        """Upper ends (ranges,) up to `max_qps`, by default 1.2 times the peak second."""
        return equal_ranges(self.max_qps or HEADROOM * self.trace.peak_qps, self.ranges)


def within(objective: Objective, latency_s: float | None) -> Objective:
    """The objective of a latency alone."""
    return msgspec.structs.replace(objective, latency_s=latency_s, accuracy=None, confidence=None)


def least_margin(request: PlanRequest) -> float:
    return request.least_margin or LEAST_MARGIN[request.objective.scope]


def safe_margin(request: PlanRequest) -> float:
    """The least margin of a range that no replay tests, whatever the scope."""
    return request.least_margin or LEAST_MARGIN["every-range"]


def equal_ranges(top_qps: float, ranges: int) -> NDArray[np.float64]:
    return top_qps * np.arange(1, ranges + 1) / ranges


def load_ranges(upper_ends: NDArray[np.float64]) -> list[LoadRange]:
    ends = [float(end) for end in upper_ends[:-1]]
    return [LoadRange(from_=f, to=t) for f, t in zip([0.0, *ends], [*ends, None], strict=True)]
