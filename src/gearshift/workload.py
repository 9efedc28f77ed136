"""Traces of arrivals, and the workload of samples that they carry."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import require
from gearshift.request import LEAST_URGENT, MOST_URGENT, NO_DEADLINE_NS, NOT_BULK

RUN_FACTORS = 65_521
"""A prime, so that factors do not repeat in step with requests."""


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `read_trace` for the trace file whose SHA-256 is `file_sha256`."""

    file_sha256: str
    rate_scale: float = 1.0
    start_s: float = 0.0
    duration_s: float | None = None
    arrivals: Literal["uniform", "poisson"] = "poisson"
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Trace:
    """Arrival times (n,) in int64 nanoseconds since the trace began, not decreasing.

    `reading` says how the trace was read from a file, if it was, and `of_counts` whether the file
    has requests per second. `left_ns` (n,) is the time from arrival to deadline, `NO_DEADLINE_NS`
    where there is none. `prompt_tokens` and `output_tokens` (n,) are those of language models.
    """

    arrivals_ns: NDArray[np.int64]
    duration_s: float
    sha256: str = ""
    reading: Reading | None = None
    left_ns: NDArray[np.int64] | None = None
    of_counts: bool = False
    prompt_tokens: NDArray[np.int64] | None = None
    output_tokens: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        require(len(self.arrivals_ns) > 0, "the trace has no requests")
        require(bool(self.arrivals_ns[0] >= 0), "the trace has a negative time")
        require(bool(np.all(np.diff(self.arrivals_ns) >= 0)), "the trace's times are not sorted")
        require(
            self.duration_s * NS_PER_S >= self.arrivals_ns[-1] - 1,
            f"the trace's last arrival is after its duration of {self.duration_s} s",
        )
        if self.left_ns is not None:
            require(len(self.left_ns) == len(self), "the trace has another number of deadlines than of arrivals")
            require(bool(np.all(self.left_ns > 0)), "a deadline of the trace is not after its arrival")
        for tokens in (self.prompt_tokens, self.output_tokens):
            alike = tokens is None or (len(tokens) == len(self) and int(tokens.min()) >= 1)
            require(alike, "the trace has no token for a request, or another number of them than of arrivals")

    def __len__(self) -> int:
        return len(self.arrivals_ns)

    @property
    def deadline_ns(self) -> NDArray[np.int64] | None:
        if self.left_ns is None:
            return None
        given = self.left_ns < NO_DEADLINE_NS
        return np.where(given, self.arrivals_ns + np.where(given, self.left_ns, 0), NO_DEADLINE_NS)

    def counts_per_second(self) -> NDArray[np.int64]:
        """Requests (seconds,) in each whole or begun second."""
        seconds = max(1, int(np.ceil(self.duration_s)), int(self.arrivals_ns[-1]) // NS_PER_S + 1)
        return np.diff(np.searchsorted(self.arrivals_ns, np.arange(seconds + 1) * NS_PER_S)).astype(np.int64)

    @property
    def mean_qps(self) -> float:
        return len(self) / self.duration_s if self.duration_s > 0 else float(len(self))

    @property
    def peak_qps(self) -> float:
        """Requests in the busiest second."""
        return float(self.counts_per_second().max())


@dataclass(frozen=True, slots=True)
class Workload:
    """Arriving samples, all arrays (n,): times, records, optional deadlines and priorities.

    `record` is the number of a recorded sample. `continues` marks rows of the same request as the
    sample before; without it each sample is a request. `pipeline` is the number of each sample's
    pipeline in the plan; without it there is one. `run_factors` (m,) multiply the run times of
    batches in the order in which they start, again and again; without them these are exact.
    `bulk_gear` is the gear whose cascades bulk work keeps, `NOT_BULK` for other samples; bulk work
    has no deadline here.
    """

    arrivals_ns: NDArray[np.int64]
    record: NDArray[np.int32]
    duration_s: float
    deadline_ns: NDArray[np.int64] | None = None
    priority: NDArray[np.int64] | None = None
    continues: NDArray[np.bool_] | None = None
    pipeline: NDArray[np.int8] | None = None
    run_factors: NDArray[np.float64] | None = None
    bulk_gear: NDArray[np.int16] | None = None

    def __post_init__(self) -> None:
        n = len(self.arrivals_ns)
        for name in ("record", "deadline_ns", "priority", "continues", "pipeline", "bulk_gear"):
            array = getattr(self, name)
            require(array is None or len(array) == n, f"workload has {n} arrivals, but {name} has another length")
        require(n > 0, "the workload has no requests")
        rising = self.arrivals_ns[0] >= 0 and bool(np.all(np.diff(self.arrivals_ns) >= 0))
        require(bool(rising), "the workload's arrivals are negative or not sorted")
        require(int(self.record.min()) >= 0, "the workload names a negative sample")
        if self.continues is not None:
            again = np.flatnonzero(self.continues)
            together = not self.continues[0] and bool(np.all(self.arrivals_ns[again] == self.arrivals_ns[again - 1]))
            require(together, "rows of one request must arrive together")
            at_one = self.pipeline is None or bool(np.all(self.pipeline[again] == self.pipeline[again - 1]))
            require(at_one, "rows of one request must arrive at one pipeline")
        if self.pipeline is not None:
            require(int(self.pipeline.min()) >= 0, "the workload names a negative pipeline")
        if self.bulk_gear is not None and self.deadline_ns is not None:
            free = self.deadline_ns[self.bulk_gear != NOT_BULK] == NO_DEADLINE_NS
            require(bool(free.all()), "bulk work has no deadline in a workload")
        if self.deadline_ns is not None:
            require(bool(np.all(self.deadline_ns <= NO_DEADLINE_NS)), "a deadline is after the end of time")
        if self.priority is not None:
            in_range = (self.priority >= MOST_URGENT) & (self.priority <= LEAST_URGENT)
            require(bool(in_range.all()), f"priorities must be {MOST_URGENT} to {LEAST_URGENT}")
        if self.run_factors is not None:
            positive = len(self.run_factors) > 0 and bool(np.all(self.run_factors > 0))
            require(positive, "factors of run times must be positive, and there must be one")

    def __len__(self) -> int:
        return len(self.arrivals_ns)


def merge_workloads(workloads: Sequence[Workload]) -> Workload:
    """The workloads of a plan's pipelines, in its order, on one clock; at ties the earlier pipeline's go first.

    That of an only pipeline stays as it is. Factors of run times are the first pipeline's.
    """
    if len(workloads) == 1:
        return workloads[0]
    lengths = [len(workload) for workload in workloads]
    order = np.argsort(np.concatenate([workload.arrivals_ns for workload in workloads]), kind="stable")

    def merged(name: str, default: Any) -> Any:
        columns = [getattr(workload, name) for workload in workloads]
        if all(column is None for column in columns):
            return None
        filled = [np.full(n, default) if c is None else c for c, n in zip(columns, lengths, strict=True)]
        return np.concatenate(filled)[order]

    return Workload(
        arrivals_ns=merged("arrivals_ns", 0),
        record=merged("record", 0),
        duration_s=max(workload.duration_s for workload in workloads),
        deadline_ns=merged("deadline_ns", NO_DEADLINE_NS),
        priority=merged("priority", LEAST_URGENT),
        continues=merged("continues", False),
        bulk_gear=merged("bulk_gear", NOT_BULK),
        pipeline=np.repeat(np.arange(len(workloads), dtype=np.int8), lengths)[order],
        run_factors=workloads[0].run_factors,
    )


def varying_run_factors(deviation: float, *, seed: int) -> NDArray[np.float64]:
    """Factors (`RUN_FACTORS`,) of median 1, log-normal, whose logarithm has this standard deviation."""
    drawn: NDArray[np.float64] = np.exp(np.random.default_rng([seed, 0x7F]).normal(0.0, deviation, RUN_FACTORS))
    return drawn


def draw_workload(trace: Trace, records: NDArray[np.int32], *, seed: int) -> Workload:
    """Draw a sample for each arrival: whole shuffles of `records` (m,) one after another.

    Unlike independent draws, this serves every recorded sample equally often.
    """
    generator = np.random.default_rng([seed, 0x5A])
    n, m = len(trace), len(records)
    require(m > 0, "there are no recorded samples to draw from")
    rounds = [generator.permutation(records) for _ in range(-(-n // m))]
    drawn = np.concatenate(rounds)[:n].astype(np.int32)
    return Workload(arrivals_ns=trace.arrivals_ns, record=drawn, duration_s=trace.duration_s)


class PlannedLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The load that a plan was made for: the shares of time in each gear's range.

    They are of `over_s` of the plan's trace. Time is counted in ticks of the meter, by the rate
    measured at each tick.
    """

    shares: tuple[float, ...]
    over_s: float

    def __post_init__(self) -> None:
        require(
            all(share >= 0 for share in self.shares) and abs(sum(self.shares) - 1) < 1e-3,
            f"the shares of planned load add up to {sum(self.shares):.6g}, or one is negative; they need 1",
        )
        require(0 < self.over_s < math.inf, f"over_s is {self.over_s}, needs a positive number of seconds")
