"""The request to a planner of language models."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import require
from gearshift.gear import LoadUnit, SourceFile
from gearshift.hardware import Hardware
from gearshift.language_workload import LanguageWorkload, draw_language_workload, numbers_by_id
from gearshift.objective import Metric, Objective
from gearshift.planner.space.request import UNKNOWN_SOURCE, Kind, Shape
from gearshift.profiles.engines.engine_tables import LOAD_UNITS
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.profile import PART_A
from gearshift.workload import Trace

MOST_GEARS = 12
MOST_CANDIDATES = 32
MOST_TRIED = 300
MEMORY_SHARE = 0.9
"""The share of a device's memory that engines use, as by default in vLLM."""
LEAST_MARGIN = {"every-range": 1.0, "trace": 0.25}
"""Gears give way at their highest steady load divided by at least this."""
METRICS: tuple[Metric, ...] = ("ttft", "per_token", "total")


@dataclass(frozen=True, kw_only=True, eq=False)
class LanguageRequest:
    """The request to a planner of language models.

    `prompt_tokens` and `output_tokens` (n,) are those of the trace's requests where it has them;
    elsewhere requests are recorded prompts and have their tokens. `records` (n,), where given, says
    which prompt each request is, for planning and for judging alike; without it they are drawn, of
    part A for planning and of part B for judging. `most_gears` bounds the load ranges,
    `most_tried` the choices that local search tries: four times so many in each space of plans.
    """

    planned_by: ClassVar[tuple[Kind, Shape]] = "tokens", "one"
    takes_long: ClassVar[bool] = True

    profile: LanguageProfile
    trace: Trace
    hardware: Hardware
    objective: Objective
    prompt_tokens: NDArray[np.int64] | None = None
    output_tokens: NDArray[np.int64] | None = None
    records: NDArray[np.int32] | None = None
    load_unit: LoadUnit = "drain_s"
    memory_share: float = MEMORY_SHARE
    most_gears: int = MOST_GEARS
    most_candidates: int = MOST_CANDIDATES
    least_margin: float | None = None
    budget_s: float | None = None
    most_tried: int = MOST_TRIED
    seed: int = 0
    profile_source: SourceFile = UNKNOWN_SOURCE
    trace_source: SourceFile = UNKNOWN_SOURCE

    def __post_init__(self) -> None:
        metric = self.objective.metric
        require(
            metric in METRICS,
            f"the objective of language models is of {metric or 'no time'}",
            remedy=f"name one of {', '.join(METRICS)}",
        )
        known = self.load_unit in LOAD_UNITS
        require(known, f"load_unit is {self.load_unit!r}", remedy=f"name one of {', '.join(LOAD_UNITS)}")
        require(1 <= self.most_gears <= 100, f"{self.most_gears} gears asked for", remedy="ask for 1 to 100")
        require(2 <= self.most_candidates <= 1000, f"most_candidates is {self.most_candidates}, needs 2 to 1000")
        for name, value, most in (
            ("memory_share", self.memory_share, 1.0),
            ("least_margin", self.least_margin, 100.0),
            ("budget_s", self.budget_s, math.inf),
        ):
            usable = value is None or (0 < value <= most and value < math.inf)
            require(usable, f"{name} is {value}", remedy=f"give a positive number up to {most:g}")

    @property
    def metric(self) -> Metric:
        metric = self.objective.metric
        assert metric is not UNSET
        return metric

    @property
    def latency_s(self) -> float:
        """The latency objective; infinite where there is none."""
        return math.inf if self.objective.latency_s is None else self.objective.latency_s

    @property
    def percentile(self) -> float:
        return self.objective.percentile

    @property
    def margin(self) -> float:
        return self.least_margin or LEAST_MARGIN[self.objective.scope]

    def within(self, latency_s: float | None) -> "LanguageRequest":
        """The same for this latency alone."""
        objective = msgspec.structs.replace(self.objective, latency_s=latency_s, accuracy=None)
        return replace(self, objective=objective)

    def workload(self, part: int, *, seed: int = 0) -> LanguageWorkload:
        """The trace's requests with prompts of a part. Seed 0 leaves its arrivals as they are.

        Other seeds move each arrival at random within 100 ms, and draw other prompts; where the
        request has its prompts, they draw other ids alone.
        """
        trace = self.trace if seed == 0 or self.records is not None else _moved(self.trace, seed)
        tokens = {"prompt_tokens": self.prompt_tokens, "output_tokens": self.output_tokens}
        if self.records is None:
            drawn = self.profile.answers.indices(part)
            return draw_language_workload(trace, drawn, seed=self.seed + 1000 * seed, **tokens)
        return LanguageWorkload(
            arrivals_ns=trace.arrivals_ns,
            record=self.records,
            by_id=numbers_by_id(len(trace), self.seed + 1000 * seed),
            duration_s=trace.duration_s,
            **tokens,
        )

    @cached_property
    def planned_on(self) -> NDArray[np.int32]:
        """The recorded prompts on which cascades are judged while planning."""
        return self.profile.answers.indices(PART_A) if self.records is None else np.unique(self.records)


def _moved(trace: Trace, seed: int) -> Trace:
    window_ns = NS_PER_S // 10
    generator = np.random.default_rng([seed, 0x11])
    start = trace.arrivals_ns // window_ns * window_ns
    moved = np.sort(start + generator.integers(0, window_ns, len(trace)))
    return Trace(moved, max(trace.duration_s, (int(moved[-1]) + 1) / NS_PER_S))
