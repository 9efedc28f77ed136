"""What a replay measured: a log of every request, the generator's own lateness, and the figures."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.load_generator.counters import ModelRuns
from gearshift.request import Outcome
from gearshift.result import LatencySummary, ServingResult, percentiles

NO_ANSWER = 0
UNKNOWN = -1
"""Of gear, model and stage, where the request was not answered or the answer does not say."""
OUTCOMES: tuple[Outcome, ...] = ("answered", "degraded", "late", "refused", "failed")
ANSWERED, DEGRADED, LATE, REFUSED, FAILED = range(len(OUTCOMES))
LEAST_LIMIT_S = 0.0005
SHARE_OF_LATENCY = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    """What became of each request, all (n,), in the order of the workload; times in seconds since the replay began.

    `due_s` is the instant that the workload says, `sent_s` when the generator began to send, `answered_s` when the
    whole answer was there or the request was given up.  `outcome` indexes `OUTCOMES`.  `status` is HTTP's, over gRPC
    the one that means the same, `NO_ANSWER` where the connection failed.  `model` indexes `models`; it, `stage` and
    `gear` may be `UNKNOWN`, and `quality` is NaN, where the request was not answered or the answer does not say.
    `wrong` holds the first answer that was judged wrong, in words.
    """

    due_s: NDArray[np.float64]
    record: NDArray[np.int32]
    sent_s: NDArray[np.float64]
    answered_s: NDArray[np.float64]
    outcome: NDArray[np.int8]
    status: NDArray[np.int16]
    gear: NDArray[np.int32]
    model: NDArray[np.int16]
    stage: NDArray[np.int16]
    quality: NDArray[np.float64]
    models: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.due_s)

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which requests (n,) got a whole answer, degraded ones included."""
        whole: NDArray[np.bool_] = self.outcome <= DEGRADED
        return whole

    @property
    def latency_s(self) -> NDArray[np.float64]:
        """Seconds (n,) from the instant at which a request was due to the whole answer, whatever it was."""
        return self.answered_s - self.due_s

    @property
    def lateness_s(self) -> NDArray[np.float64]:
        """Seconds (n,) from the instant at which a request was due to when the generator began to send it."""
        return self.sent_s - self.due_s


def empty_log(due_s: NDArray[np.float64], record: NDArray[np.int32]) -> RequestLog:
    """A log in which no request has been answered yet."""
    n = len(due_s)
    return RequestLog(
        due_s=due_s,
        record=record,
        sent_s=np.zeros(n),
        answered_s=np.zeros(n),
        outcome=np.full(n, FAILED, dtype=np.int8),
        status=np.full(n, NO_ANSWER, dtype=np.int16),
        gear=np.full(n, UNKNOWN, dtype=np.int32),
        model=np.full(n, UNKNOWN, dtype=np.int16),
        stage=np.full(n, UNKNOWN, dtype=np.int16),
        quality=np.full(n, np.nan),
    )


# Is it to be believed ------------------------------------------------------------------------------------------------


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """How many seconds after its instant the generator sent a request; `share_over` were later than `limit_s`."""

    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float
    limit_s: float
    share_over: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What it took the generator: processes, seconds of processor, and requests that found all connections busy.

    `began_ns` is the instant 0 of the workload on this machine's monotonic clock.
    """

    processes: int = 1
    processor_s: float = 0.0
    waited: int = 0
    began_ns: int = 0


def limit_s(latency_s: float, largest_s: float | None = None) -> float:
    """The lateness that a measured latency bears: a tenth of it, or half a millisecond; or what was given instead.

    Latency counts from when a request was due, so lateness is part of it: what the server took is at least nine
    tenths of what is reported.  Half a millisecond is what the system's timers and one event loop come to.
    """
    return max(LEAST_LIMIT_S, SHARE_OF_LATENCY * latency_s) if largest_s is None else largest_s


def lateness_of(log: RequestLog, latency: LatencySummary, largest_s: float | None = None) -> Lateness:
    """The generator's lateness in a finished run whose answers took `latency`."""
    late_s = log.lateness_s
    p50_s, p95_s, p99_s = percentiles(late_s, (0.50, 0.95, 0.99))
    limit = limit_s(latency.p99, largest_s)
    return Lateness(
        p50_s=p50_s,
        p95_s=p95_s,
        p99_s=p99_s,
        max_s=float(late_s.max()),
        limit_s=limit,
        share_over=float(np.mean(late_s > limit)),
    )


def why_invalid(
    lateness: Lateness,
    latency: LatencySummary,
    effort: Effort,
    *,
    answered: int,
    processes: bool,
    largest_s: float | None = None,
) -> str:
    """Why there are no figures, or they blame the server for the generator, and what to do; nothing where they do not.

    `processes` tells whether more of them could help.
    """
    if not answered:
        return "no request was answered, so that there is no latency to tell; see the server's log for why"
    for name, late_s, measured_s in (
        ("p50", lateness.p50_s, latency.p50),
        ("p95", lateness.p95_s, latency.p95),
        ("p99", lateness.p99_s, latency.p99),
    ):
        if late_s > limit_s(measured_s, largest_s):
            why = (
                f"the generator sent {late_s * 1e3:.3g} ms late at {name}, where a measured latency of "
                f"{measured_s * 1e3:.3g} ms bears {limit_s(measured_s, largest_s) * 1e3:.3g} ms"
            )
            if effort.waited:
                return f"{why}, and {effort.waited} requests waited for a connection; give more --connections"
            more = f"--processes {2 * effort.processes}, " if processes else ""
            return f"{why}; give {more}less load with --rate-scale, or cores of its own"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A measured run.  It is `valid` when the generator itself kept the schedule; else `why_invalid` tells.

    `gears` are the seconds at which an answer first came from another gear than the answer before it, and that gear.
    `runs` are the batches and samples of each model, where the server tells.
    """

    result: ServingResult
    log: RequestLog
    lateness: Lateness
    effort: Effort
    why_invalid: str
    failed: int
    gears: tuple[tuple[float, int], ...]
    runs: Mapping[str, ModelRuns]

    @property
    def valid(self) -> bool:
        """Whether the figures are the server's."""
        return not self.why_invalid

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the answers, as sentences."""
        quality = self.log.quality[self.log.answered]
        if len(quality) == 0 or quality.any():
            return ()
        example = "".join(f", for example {wrong}" for wrong in self.log.wrong[:1])
        return (f"no answer is right{example}; check that samples and labels are those of the profile",)

    def as_json(self) -> dict[str, object]:
        """The figures under the names that `simulate` uses, and how far to trust them."""
        facts: dict[str, object] = msgspec.structs.asdict(self.result)
        return facts | {
            "failed": self.failed,
            "lateness_s": self.lateness,
            "processes": self.effort.processes,
            "processor_s": self.effort.processor_s,
            "valid": self.valid,
            "why_invalid": self.why_invalid,
            "warnings": self.warnings,
            "gears": self.gears,
            "models": self.runs,
        }


def gear_shifts(log: RequestLog) -> tuple[tuple[float, int], ...]:
    """(seconds, gear) wherever the gear of the answers changes, in the order in which they came."""
    known = np.flatnonzero(log.gear != UNKNOWN)
    done_s = log.answered_s[known]
    order = np.argsort(done_s, kind="stable")
    times, gears = done_s[order], log.gear[known][order]
    changes = np.flatnonzero(np.diff(gears, prepend=UNKNOWN))
    return tuple((float(times[i]), int(gears[i])) for i in changes)
