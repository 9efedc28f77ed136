"""What a replay measured: a log of every request, the generator's own lateness, and the figures."""

import math
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.files import write_atomically
from gearshift.request import Outcome
from gearshift.result import ServingResult

NO_GEAR = -1
NO_ANSWER = 0
OUTCOMES: tuple[Outcome, ...] = ("answered", "degraded", "late", "refused", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    """What became of each request, all (n,), in the order of the workload; times in seconds since the replay began.

    `latency_s` counts from the scheduled arrival to the whole answer, whatever the answer was.  `outcome` indexes
    `OUTCOMES`.  `status` is HTTP's, `NO_ANSWER` where the connection failed.  `gear` is `NO_GEAR`, and `quality` NaN,
    where the request was not answered or the answer does not say.
    """

    arrival_s: NDArray[np.float64]
    lateness_s: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    outcome: NDArray[np.int8]
    status: NDArray[np.int16]
    gear: NDArray[np.int32]
    quality: NDArray[np.float64]
    record: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which requests (n,) got a whole answer, degraded ones included."""
        whole: NDArray[np.bool_] = np.isin(self.outcome, [OUTCOMES.index("answered"), OUTCOMES.index("degraded")])
        return whole


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """How many seconds after its scheduled instant the generator really sent a request."""

    p50_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A measured run.  It is `valid` when the generator itself kept the schedule; else its figures blame it too.

    `gears` are the seconds at which an answer first came from another gear than the answer before it, and that gear.
    """

    result: ServingResult
    log: RequestLog
    lateness: Lateness
    valid: bool
    failed: int
    gears: tuple[tuple[float, int], ...]

    def as_json(self) -> dict[str, object]:
        """The figures under the names that `simulate` uses, and how far to trust them."""
        facts: dict[str, object] = msgspec.structs.asdict(self.result)
        return facts | {"failed": self.failed, "lateness_s": self.lateness, "valid": self.valid, "gears": self.gears}


def write_request_log(log: RequestLog, path: Path) -> None:
    """Write the log as CSV, one row a request, whole or not at all; an unknown gear or quality is left empty."""
    rows = zip(
        log.arrival_s.tolist(), log.lateness_s.tolist(), log.latency_s.tolist(), log.outcome.tolist(),
        log.status.tolist(), log.gear.tolist(), log.quality.tolist(), log.record.tolist(), strict=True,
    )  # fmt: skip
    lines = ["arrival_s,lateness_s,latency_s,outcome,status,gear,quality,record\n"]
    for arrival, lateness, latency, outcome, status, gear, quality, record in rows:
        known_gear = "" if gear == NO_GEAR else gear
        known_quality = "" if math.isnan(quality) else f"{quality:.9g}"
        lines.append(
            f"{arrival:.9f},{lateness:.6f},{latency:.6f},{OUTCOMES[outcome]},{status},"
            f"{known_gear},{known_quality},{record}\n"
        )
    write_atomically(path, "".join(lines).encode())


def gear_shifts(log: RequestLog) -> tuple[tuple[float, int], ...]:
    """(seconds, gear) wherever the gear of the answers changes, in the order in which they came."""
    known = np.flatnonzero(log.gear != NO_GEAR)
    done_s = log.arrival_s[known] + log.latency_s[known]
    order = np.argsort(done_s, kind="stable")
    times, gears = done_s[order], log.gear[known][order]
    changes = np.flatnonzero(np.diff(gears, prepend=NO_GEAR))
    return tuple((float(times[i]), int(gears[i])) for i in changes)
