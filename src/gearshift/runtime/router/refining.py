"""Screening and refining, where gears order by gain: the router's steps for `policies/refine.py`.

The simulator's kernel has the same in `simulator/kernel/refining.py`.
"""

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from gearshift.clock import NEVER_NS
from gearshift.decisions import Ending
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.refine import (
    answers_overrun,
    expected_gain,
    may_finish,
    overrun_ns,
    refine_batch_size,
    refine_key,
    refine_until_ns,
    release_at_ns,
    screen_batch_size,
    screen_or_refine,
)
from gearshift.policies.slowdown import profiled_ns, slowed_ns
from gearshift.profiles.run_times import most_refined
from gearshift.request import Sample
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.devices import Slowdown
from gearshift.runtime.router.pipeline import GearSettings, Pipeline
from gearshift.runtime.router.queue import GainQueue

Release = Callable[[Sample, Ending, int], None]


class Refining:
    """The queues of rows to refine: one for each kind of alike replicas, at the first of them.

    Rows of all `pipelines` wait in them, by gain times the worth of their pipeline.
    `running` (replicas) are the samples that each runs; `release(sample, ending, now_ns)` takes rows
    that are answered with what they have.
    """

    def __init__(
        self,
        tables: PlanTables,
        pipelines: Sequence[Pipeline],
        rules: DeadlineRules,
        settings: GearSettings,
        slowdown: Slowdown,
        running: Sequence[Sequence[Sample]],
        release: Release,
    ) -> None:
        refine = tables.refine
        self._pipelines, self._rules, self._settings, self._release = pipelines, rules, settings, release
        self._slowdown, self._running = slowdown, running
        self.queue_of: list[int] = refine.queue_of.tolist()
        self.alike = [[r for r, of in enumerate(self.queue_of) if of == leader] for leader in range(len(self.queue_of))]
        """The replicas that share the queues of a replica; empty unless it is the first of them."""
        self.queues = [GainQueue() for _ in self.queue_of]
        self.release_ns: dict[int, int] = {}
        self._most: list[int] = most_refined(tables, np.asarray(rules.run_ns)).tolist()
        self._overrun_ns: dict[int, int] = {}
        """By replica, when the batch that it runs overruns, where rows of it have an answer."""
        self._check_ns: dict[int, int] = {}
        """By replica, when to look next for rows of its batch to answer while it runs."""
        self._model_of: list[int] = tables.replica_model.tolist()
        self._models = len(tables.models)
        self._margin_ns: list[int] = refine.margin_ns.tolist()
        self._for_gain: list[bool] = [each != 0 for each in refine.for_gain.tolist()]
        self._gain_begin: list[int] = refine.gain_begin.tolist()
        self._gain_certainty: list[float] = refine.gain_certainty.tolist()
        self._gains: list[float] = refine.gains.tolist()
        self._greatest: list[float] = refine.greatest.tolist()
        self.screened_last = [False] * len(tables.device_ids)

    def wait(self, sample: Sample, leader: int, now_ns: int) -> bool:
        """Queue a row with an answer; answer it, and return False, if it could not finish."""
        sample.until_ns = until_ns = self.until_ns(sample)
        if not may_finish(until_ns, now_ns, self._slowed_ns(leader, 1)):
            self._release(sample, self._ending(sample, until_ns), now_ns)
            return False
        number: int = sample.request.pipeline
        pair = (number * self._models + sample.model) * self._models + self._model_of[leader]
        begin, end = self._gain_begin[pair], self._gain_begin[pair + 1]
        gain = expected_gain(sample.certainty, begin, end, self._gain_certainty, self._gains)
        sample.entered_ns = now_ns
        self.queues[leader].add(sample, until_ns, refine_key(gain, self._greatest[number]))
        self.watch(leader)
        return True

    def bound(self, leader: int, now_ns: int) -> None:
        """Answer the row that gains least, where more wait than can be refined."""
        queue = self.queues[leader]
        if len(queue) > self._most[leader]:
            sample = queue.last()
            queue.remove(sample)
            self.watch(leader)
            sample.queue_ns += now_ns - sample.entered_ns
            self._release(sample, Ending.TIME, now_ns)

    def withdraw(self, sample: Sample) -> bool:
        """Remove a row that waits to be refined; False if it does not."""
        leader: int = sample.replica
        removed = leader >= 0 and self.queues[leader].remove(sample)
        if removed:
            self.watch(leader)
        return removed

    def clear(self, leader: int) -> list[Sample]:
        gone = self.queues[leader].clear()
        self.watch(leader)
        return gone

    def next_timer_ns(self) -> int:
        first_ns = min(self.release_ns.values(), default=NEVER_NS)
        return min(first_ns, min(self._check_ns.values(), default=NEVER_NS))

    def release_due(self, now_ns: int) -> None:
        for leader in sorted(leader for leader, at_ns in self.release_ns.items() if at_ns <= now_ns):
            self.release(leader, now_ns)
        for replica in sorted(replica for replica, at_ns in self._check_ns.items() if at_ns <= now_ns):
            self._answer_overrun(replica, now_ns)

    def begun(self, replica: int, now_ns: int) -> None:
        """Watch the rows of a batch that have an answer, until it ends."""
        batch = self._running[replica]
        if any(sample.until_ns for sample in batch):
            self._overrun_ns[replica] = overrun_ns(now_ns, self._slowed_ns(replica, len(batch)))
            self._answer_overrun(replica, now_ns)

    def ended(self, replica: int) -> None:
        self._overrun_ns.pop(replica, None)
        self._check_ns.pop(replica, None)

    def _answer_overrun(self, replica: int, now_ns: int) -> None:
        """Answer rows of a batch that overruns, whose time has ended; note when to look again."""
        at_ns, check_ns = self._overrun_ns[replica], NEVER_NS
        for sample in self._running[replica]:
            if sample.over or sample.error or not sample.until_ns:
                continue
            if answers_overrun(sample.until_ns, at_ns, now_ns):
                sample.over = True
                self._release(sample, self._ending(sample, sample.until_ns), now_ns)
            else:
                check_ns = min(check_ns, max(sample.until_ns, at_ns))
        self._check_ns[replica] = check_ns

    def release(self, leader: int, now_ns: int) -> None:
        """Answer the rows that could not finish any more."""
        queue = self.queues[leader]
        while self.release_ns.get(leader, NEVER_NS) <= now_ns:
            sample, until_ns = queue.first()
            queue.remove(sample)
            self.watch(leader)
            sample.queue_ns += now_ns - sample.entered_ns
            self._release(sample, self._ending(sample, until_ns), now_ns)

    def batch_size(self, replica: int, now_ns: int) -> tuple[list[Sample], list[int], int]:
        """The rows looked at, the profiled run time that each has left, and the size of the best batch."""
        most = self._settings.largest_batch_size[replica]
        looked_at = list(islice(self.queues[self.queue_of[replica]].in_order(), 2 * most))
        slowdown = self._slowdown.of(replica)
        left_ns = [profiled_ns(until_ns - now_ns, slowdown) for _, until_ns, _ in looked_at]
        levels = [level for _, _, level in looked_at]
        for_gain = self._for_gain[self._gear_row(looked_at[0][0])]
        size = refine_batch_size(len(looked_at), most, self._rules.run_ns[replica], left_ns, levels, for_gain)
        return [sample for sample, _, _ in looked_at], left_ns, size

    def take(self, replica: int, rows: Sequence[Sample], left_ns: Sequence[int], size: int) -> list[Sample]:
        """Remove the first `size` of the rows that can finish in a batch of that size."""
        run_ns, leader = self._rules.run_ns[replica][size], self.queue_of[replica]
        batch = [row for row, left in zip(rows, left_ns, strict=True) if left >= run_ns][:size]
        for sample in batch:
            self.queues[leader].remove(sample)
        self.watch(leader)
        return batch

    def goes(
        self,
        device: int,
        screens: int,
        urgent: int,
        until_ns: int,
        waiting: Callable[[int], int],
        full: bool,
        refines: int,
        size: int,
        now_ns: int,
    ) -> int:
        """The next work of an idle device: screen with `screens` or `urgent`, or refine `size` rows with `refines`."""
        screen_ns, urgent_ns = (self._slowed_ns(r, self.to_screen(r, waiting(r))) for r in (screens, urgent))
        refine_ns = self._slowed_ns(refines, size) if size else 0
        screened_last = self.screened_last[device]
        return screen_or_refine(size > 0, screened_last, full, until_ns, now_ns, urgent_ns, screen_ns, refine_ns)

    def to_screen(self, replica: int, waiting: int) -> int:
        """The size of a batch to screen."""
        return screen_batch_size(waiting, self._settings.largest_batch_size[replica], self._rules.run_ns[replica])

    def _slowed_ns(self, replica: int, size: int) -> int:
        return slowed_ns(self._rules.run_ns[replica][size], self._slowdown.of(replica))

    def until_ns(self, sample: Sample) -> int:
        """When a row's time ends, by the objective and the gear of its pipeline."""
        request, margin_ns = sample.request, self._margin_ns[self._gear_row(sample)]
        return refine_until_ns(request.answer_by_ns, margin_ns, self._rules.aimed_ns(request))

    def _gear_row(self, sample: Sample) -> int:
        """The row of the gear in force of a row's pipeline."""
        pipeline = self._pipelines[sample.request.pipeline]
        return pipeline.tables.first_gear + pipeline.gear

    def _ending(self, sample: Sample, until_ns: int) -> Ending:
        return Ending.DEGRADED if until_ns == self._rules.aimed_ns(sample.request) else Ending.TIME

    def watch(self, leader: int) -> None:
        """Note when the next row is answered as it is."""
        queue = self.queues[leader]
        if len(queue):
            self.release_ns[leader] = release_at_ns(queue.first()[1], self._slowed_ns(leader, 1))
        else:
            self.release_ns.pop(leader, None)
