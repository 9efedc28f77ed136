"""Compares load and run times with those of the plan, and keeps arrivals to plan again from."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gearshift.clock import NS_PER_S
from gearshift.plans.plan_tables import PipelineTables, PlanTables
from gearshift.policies.gear_shift import gear_asked_for
from gearshift.policies.load import METER_KEEPS_ARRIVALS, METER_WINDOW_NS
from gearshift.policies.watch.drift import episode, load_distance, load_drifts, run_times_are_wrong

PARTS = 60
"""Parts of the window; at the end of each, the oldest is dropped and the load judged."""
SHORTEST_WINDOW_S, LONGEST_WINDOW_S = 300.0, 86_400.0
TICKS_PER_S = NS_PER_S // METER_WINDOW_NS


def window_of(over_s: float) -> float:
    """The seconds over which load is compared: the trace's, so its rhythms count as planned."""
    return min(max(over_s, SHORTEST_WINDOW_S), LONGEST_WINDOW_S)


class LoadDrift:
    """Counts ticks of the meter by the load range of their rate, over the latest `window_s`.

    It judges nothing before that time has passed once, nor for a plan without planned load shares.
    """

    def __init__(self, tables: PipelineTables, window_s: float) -> None:
        self.distance, self.drifting = 0.0, False
        self.window_s = window_s
        self._tables = tables
        self._planned: list[float] = tables.planned_shares.tolist()
        self._starts: list[float] = tables.range_starts.tolist()
        self._part_ticks = max(1, round(window_s * TICKS_PER_S / PARTS))
        self._parts: deque[tuple[list[int], float]] = deque(maxlen=PARTS)
        self._ticks, self._counts, self._windows = 0, [0] * tables.gears, 0.0

    def ticked(self, rate_qps: float) -> bool:
        """Count a tick; whether the load was judged again."""
        if not self._planned:
            return False
        tables = self._tables
        self._counts[gear_asked_for(tables.meter, 0, rate_qps, 0, 0.0, self._starts, tables.gears)] += 1
        self._windows += min(1.0, rate_qps / (METER_KEEPS_ARRIVALS * TICKS_PER_S))
        self._ticks += 1
        if self._ticks < self._part_ticks:
            return False
        self._parts.append((self._counts, self._windows))
        self._ticks, self._counts, self._windows = 0, [0] * tables.gears, 0.0
        if len(self._parts) < PARTS:
            return False
        ticks = [sum(column) for column in zip(*(counts for counts, _ in self._parts), strict=True)]
        self.distance = load_distance(ticks, self._planned)
        self.drifting = load_drifts(self.drifting, self.distance, sum(windows for _, windows in self._parts))
        return True


RECORD_S = 10
"""Seconds of arrivals that are recorded at once."""
Record = Callable[[list[int], float], None]
"""Takes arrivals by whole second, and the seconds that have passed since the last of them ended."""


class LiveTrace:
    """Arrivals of each second, of the latest `LONGEST_WINDOW_S` seconds; `record` gets all of them, in parts."""

    def __init__(self) -> None:
        self.arrived = 0
        self._counted = 0
        self._second = -1
        self._counts: deque[int] = deque(maxlen=int(LONGEST_WINDOW_S))
        self._unrecorded: list[int] = []
        self.record: Record | None = None

    def ticked(self, now_ns: int) -> None:
        second = now_ns // NS_PER_S
        if self._second >= 0 and second > self._second:
            ended = [self.arrived - self._counted, *[0] * min(second - self._second - 1, int(LONGEST_WINDOW_S))]
            self._counts.extend(ended)
            self._counted = self.arrived
            if self.record is not None:
                self._unrecorded += ended
                if len(self._unrecorded) >= RECORD_S:
                    self._tell(now_ns - second * NS_PER_S)
        self._second = second

    def end(self, now_ns: int) -> None:
        """Record the rest, with the second that has begun as if it were over."""
        if self._second >= 0:
            self.ticked(max(now_ns, self._second * NS_PER_S))
            self._unrecorded.append(self.arrived - self._counted)
            self._counted = self.arrived
            self._tell(now_ns - (self._second + 1) * NS_PER_S)

    def latest(self, seconds: float) -> list[int]:
        """Arrivals (seconds,) of the latest whole seconds, as many as are known."""
        counts = list(self._counts)
        return counts[-max(1, round(seconds)) :]

    def _tell(self, past_ns: int) -> None:
        if self.record is not None and any(self._unrecorded):
            self.record(list(self._unrecorded), past_ns / NS_PER_S)
        self._unrecorded.clear()


SPAN_TICKS = 100
"""Ten seconds."""


@dataclass(slots=True)
class _Sum:
    observed_ns: int = 0
    predicted_ns: int = 0
    batches: int = 0

    @property
    def ratio(self) -> float:
        return self.observed_ns / max(1, self.predicted_ns)


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """A model's observed over profiled time in ten seconds; `changed`: drift began or ended."""

    model: int
    by_size: dict[int, float]
    ratio: float
    changed: bool


class ProfileDrift:
    """Sums batches by model and size; `run_ns` (replicas, sizes) is the profile, if known."""

    def __init__(self, tables: PlanTables, run_ns: Sequence[Sequence[int]]) -> None:
        self._model_of: list[int] = tables.replica_model.tolist()
        self._run_ns = run_ns
        self._sums: list[dict[int, _Sum]] = [{} for _ in tables.models]
        self._against = [0] * len(tables.models)
        self.drifting = [False] * len(tables.models)
        self._ticks = 0

    def batch_finished(self, replica: int, size: int, took_ns: int) -> None:
        if took_ns <= 0 or not self._run_ns or size >= len(self._run_ns[replica]):
            return
        sums = self._sums[self._model_of[replica]]
        one = sums.get(size)
        if one is None:
            one = sums[size] = _Sum()
        one.observed_ns += took_ns
        one.predicted_ns += self._run_ns[replica][size]
        one.batches += 1

    def ticked(self) -> Iterator[ModelTimes]:
        self._ticks += 1
        if self._ticks % SPAN_TICKS:
            return
        for model, sums in enumerate(self._sums):
            if not sums:
                continue
            whole = _Sum(
                sum(one.observed_ns for one in sums.values()),
                sum(one.predicted_ns for one in sums.values()),
                sum(one.batches for one in sums.values()),
            )
            wrong = run_times_are_wrong(whole.observed_ns, whole.predicted_ns, whole.batches)
            before = self.drifting[model]
            self.drifting[model], self._against[model] = episode(before, self._against[model], wrong)
            by_size = {size: one.ratio for size, one in sums.items()}
            yield ModelTimes(model, by_size, whole.ratio, before != self.drifting[model])
            sums.clear()
