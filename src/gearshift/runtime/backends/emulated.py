"""Devices that take the profiled time and answer from records: the real router at any scale."""

import asyncio
import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import Clock, WallClock
from gearshift.gear import GearPlan
from gearshift.model import Arrays, TensorSpec
from gearshift.plans.plan_tables import PlanTables
from gearshift.profiles.profile import PredictionRecords, Profile
from gearshift.profiles.run_times import Exits, exits_of, overheads_ns, run_times_ns
from gearshift.profiles.several import Profiles, as_one
from gearshift.request import Sample
from gearshift.runtime.backends.base import Batch, BatchEvents
from gearshift.support.fine_timer import FineTimer


@dataclass(frozen=True, slots=True, order=True)
class Leaving:
    """Samples that leave a batch together, `after_ns` from its start; `last`: none are left."""

    segment: int
    after_ns: int = field(compare=False)
    samples: Sequence[Sample] = field(compare=False)
    last: bool = field(compare=False)


class ProfiledExits:
    """How batches run: as a whole for `run_ns` (replicas, sizes), or from exit to exit."""

    def __init__(self, run_ns: Sequence[Sequence[int]], exits: Exits | None, replica_model: Sequence[int]) -> None:
        self._run_ns = run_ns
        self._model_of = [int(model) for model in replica_model]
        self._segment_ns = None if exits is None else exits.segment_ns.tolist()
        self._exit_segment = None if exits is None else exits.exit_segment.tolist()
        self.recorded = exits is not None
        """Whether any model has learned caches, so that it matters which samples a batch has."""

    def of_batch(self, replica: int, samples: Sequence[Sample], records: Sequence[int]) -> list[Leaving]:
        """The leavings in order; `records` number the recorded samples (unknown: last exit)."""
        if self._segment_ns is None or self._exit_segment is None:
            return [Leaving(0, self._run_ns[replica][len(samples)], samples, last=True)]
        segment_ns, exits = self._segment_ns[replica], self._exit_segment[self._model_of[replica]]
        last = max(exits)
        at = [exits[record] if 0 <= record < len(exits) else last for record in records]
        result, after_ns, done = [], 0, 0
        for segment in sorted(set(at)):
            left = sum(exit >= segment for exit in at)
            after_ns += sum(segment_ns[k][left] for k in range(done, segment + 1))
            leaving = [sample for sample, exit in zip(samples, at, strict=True) if exit == segment]
            result.append(Leaving(segment, after_ns, leaving, last=len(leaving) == left))
            done = segment + 1
        return result


SAMPLE = "sample"
EMULATED_INPUTS = (TensorSpec(name=SAMPLE, datatype="INT64", shape=(-1,)),)
RESTART_S = 0.1


class Recorded(NamedTuple):
    """A sample's recorded answer: certainty and result, or an error."""

    certainty: float = 0.0
    result: Arrays | None = None
    error: str = ""

    def give(self, sample: Sample) -> None:
        if self.error:
            sample.error = self.error
        else:
            sample.certainty, sample.result = self.certainty, self.result


End = tuple[int, int, Batch, Leaving, list[Recorded]]


class EmulatedBackend:
    """Holds a batch for the profiled time of its model, then answers from the records.

    `profiles` are by operator where there are several. Their overheads are not held, because router
    and timer add theirs here, too. In models with learned caches each sample is answered at its
    recorded exit, and the rest of the batch goes on. A sample's payload is `{"sample": (1,)}`, the
    number of a recorded one of its operator. Its result holds `quality` and, if the profile has it,
    `label`. A batch ends late by the timer's error (`FineTimer`: 66 us at the median, 223 us at
    p99), plus the event loop's other work. `run_ns` (replicas, sizes), if given, is the time of
    batches with overheads. A host that is slower than profiled takes `times` as long.
    """

    def __init__(
        self,
        tables: PlanTables,
        plan: GearPlan,
        profiles: Profiles,
        *,
        clock: Clock | None = None,
        run_ns: Sequence[Sequence[int]] | None = None,
        times: float = 1.0,
    ) -> None:
        self._tables, self._times = tables, times
        self._clock = clock or WallClock()
        profile = as_one(profiles)
        run_ns = run_times_ns(plan, tables, profile).tolist() if run_ns is None else run_ns
        self._exits = ProfiledExits(run_ns, exits_of(plan, tables, profile), tables.replica_model.tolist())
        self._overheads_ns: list[list[int]] = overheads_ns(plan, tables, profile).tolist()
        self._answers = RecordedAnswers(tables.models, profiles)
        self._events: BatchEvents | None = None
        self._timer: FineTimer | None = None
        self._ends: list[End] = []
        self._order = itertools.count()
        self._lost: set[int] = set()

    async def start(self, events: BatchEvents) -> None:
        self._events = events
        self._timer = FineTimer(asyncio.get_running_loop(), self._due)
        self._timer.start()
        for replica in range(len(self._tables.replica_ids)):
            events.replica_ready(replica)

    def run(self, batch: Batch) -> None:
        if self._timer is None or batch.replica in self._lost:
            return
        now_ns = self._clock.now_ns()
        began_ns = now_ns - self._overheads_ns[batch.replica][len(batch.samples)]
        model = int(self._tables.replica_model[batch.replica])
        records = [_number_of(sample) for sample in batch.samples] if self._exits.recorded else ()
        for leaving in self._exits.of_batch(batch.replica, batch.samples, records):
            end_ns = began_ns + round(self._times * leaving.after_ns)
            if not self._ends or end_ns < self._ends[0][0]:
                self._timer.set(end_ns - now_ns)
            answers = self._answers.of(leaving.samples, model)  # now, as the device is busy anyway
            heapq.heappush(self._ends, (end_ns, next(self._order), batch, leaving, answers))

    async def stop(self) -> None:
        self._events = None
        self._ends.clear()
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def lose(self, replica: int) -> None:
        """Simulate a fault: the replica's worker dies and returns after `RESTART_S`."""
        self._lost.add(replica)
        self._ends = [end for end in self._ends if end[2].replica != replica]
        heapq.heapify(self._ends)
        if self._events is not None:
            self._events.replicas_lost((replica,), "was lost on purpose")
            asyncio.get_running_loop().call_later(RESTART_S, self._recover, replica)

    def _recover(self, replica: int) -> None:
        self._lost.discard(replica)
        if self._events is not None:
            self._events.replica_ready(replica)

    def _due(self) -> None:
        now_ns = self._clock.now_ns()
        while self._ends and self._ends[0][0] <= now_ns:
            _, _, batch, leaving, answers = heapq.heappop(self._ends)
            self._finish(batch, leaving, answers)
        if self._ends and self._timer is not None:
            self._timer.set(self._ends[0][0] - self._clock.now_ns())

    def _finish(self, batch: Batch, leaving: Leaving, answers: Sequence[Recorded]) -> None:
        if self._events is None:
            return
        for sample, answer in zip(leaving.samples, answers, strict=True):
            if sample.over:
                continue
            sample.exit_segment = leaving.segment
            answer.give(sample)
        self._events.samples_finished(batch, leaving.samples)
        if leaving.last and self._events is not None:
            self._events.batch_finished(batch)


class RecordedAnswers:
    """The answers of each model, from its operator's records."""

    def __init__(self, models: Sequence[str], profiles: Profiles) -> None:
        by_operator = [profiles] if isinstance(profiles, Profile) else list(profiles.values())
        of_model = {model: profile.predictions for profile in by_operator for model in profile.models}
        self._of = [_ModelAnswers(of_model[model], model) for model in models]

    def of(self, samples: Sequence[Sample], model: int) -> list[Recorded]:
        answers = self._of[model]
        return [answers.of_number(_number_of(sample)) for sample in samples]


class _ModelAnswers:
    def __init__(self, records: PredictionRecords, model: str) -> None:
        (row,) = records.rows((model,))
        self._quality: NDArray[np.float64] = records.quality[row]
        self._certainty: list[float] = records.certainty[row].tolist()
        self._label: NDArray[Any] | None = None if records.prediction is None else records.prediction[row]
        self._count = len(records.part)

    def of_number(self, number: int) -> Recorded:
        if not 0 <= number < self._count:
            return Recorded(error=f"sample {number} is not recorded, the profile has samples 0 to {self._count - 1}")
        result = {"quality": self._quality[number : number + 1]}
        if self._label is not None:
            result["label"] = self._label[number : number + 1]
        return Recorded(self._certainty[number], result)


def _number_of(sample: Sample) -> int:
    payload: Any = sample.payload
    return int(payload[SAMPLE][0])


def emulated_outputs(profile: Profile) -> tuple[TensorSpec, ...]:
    quality = TensorSpec(name="quality", datatype="FP64", shape=(-1,))
    if profile.predictions.prediction is None:
        return (quality,)
    return quality, TensorSpec(name="label", datatype="BYTES", shape=(-1,))
