"""The router's steps for deadlines: drop samples, limit batches, set wake times."""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from gearshift.decisions import Ending
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.batching import DEADLINE, batch_size
from gearshift.policies.deadlines import (
    NEXT_GIVES_WAY,
    RUN,
    aimed_ns,
    gives_up_ns,
    goes_first,
    in_time,
    margin_ns,
    start_by_ns,
    when_limited,
    why_dropped,
)
from gearshift.profiles.run_times import fastest_ns
from gearshift.request import NO_DEADLINE_NS, Late, Request, Sample
from gearshift.runtime.router.devices import Devices
from gearshift.runtime.router.pipeline import GearSettings
from gearshift.runtime.router.queue import WaitingQueue
from gearshift.runtime.router.turns import Turns

End = Callable[[Sample, int, Ending, int], None]

RECENT_ANSWERS, FORGOTTEN_ANSWERS = 256, 16
"""Answers that set the margin, and those forgotten per tick while nothing runs."""
TOO_LATE_FOR_MORE = "deadline"
"""The `degraded_by` of a sample that had no time for another model."""
TOO_LATE = {
    Ending.INFEASIBLE: "infeasible: it could not be answered by its deadline any more",
    Ending.EXPIRED_IN_QUEUE: "expired_in_queue: its deadline passed while it waited",
    Ending.EXECUTION: "execution: its deadline passed while it ran",
}
"""Errors of refused requests, the reason first."""


class DeadlineRules:
    """Decisions for deadlines, from profiled times `run_ns` (replicas, sizes), all 0 by default.

    `late` says whether samples without any answer are refused or answered late. All decisions aim
    `margin_ns` before a deadline. The margin follows from the delays of recent answers compared
    with the profiled times, and from `way_ns`, the time outside the router.

    Where it `learns_slowdown`, by default for plans that refine, run times are compared with
    `expected_ns` (replicas, sizes), by default the profiled ones.
    """

    def __init__(
        self,
        tables: PlanTables,
        run_ns: Sequence[Sequence[int]] = (),
        late: Late = "refuse",
        way_ns: int = 0,
        *,
        expected_ns: Sequence[Sequence[int]] | None = None,
        learns_slowdown: bool | None = None,
    ) -> None:
        no_time_ns = [0] * (int(tables.largest_batch_size.max()) + 1)
        self.tables, self.run_ns = tables, [*run_ns] or [no_time_ns] * len(tables.replica_ids)
        self.expected_ns = self.run_ns if expected_ns is None else expected_ns
        self.learns_slowdown = tables.refine.refines if learns_slowdown is None else learns_slowdown
        self.refuses = late == "refuse"
        self.margin_ns = self._way_ns = way_ns
        self._overshoots_ns: deque[int] = deque(maxlen=RECENT_ANSWERS)
        self._find_fastest()

    def take(self, replica: int, run_ns: Sequence[int]) -> None:
        self.run_ns[replica] = run_ns
        self._find_fastest()

    def _find_fastest(self) -> None:
        self.fastest_ns: list[int] = fastest_ns(self.tables, np.asarray(self.run_ns)).tolist()

    def written(self, expected_end_ns: int, now_ns: int) -> None:
        self._overshoots_ns.append(now_ns - expected_end_ns)

    def take_aim(self, *, idle: bool) -> None:
        """While nothing runs, forget answers; else a margin that refuses all would remain."""
        for _ in range(min(FORGOTTEN_ANSWERS, len(self._overshoots_ns)) if idle else 0):
            self._overshoots_ns.popleft()
        self.margin_ns = margin_ns(self._overshoots_ns, self._way_ns)

    def aimed_ns(self, request: Request) -> int:
        return aimed_ns(request.deadline_ns, self.margin_ns)

    def may_drop(self, sample: Sample) -> bool:
        return self.refuses or sample.has_answer


def end_early(sample: Sample, ending: Ending) -> Sample:
    if ending == Ending.TIME:
        sample.stage, sample.ending = sample.visited.bit_count() - 1, ending
    elif ending == Ending.DEGRADED:
        sample.stage, sample.degraded_by = sample.visited.bit_count() - 1, TOO_LATE_FOR_MORE
    else:
        sample.ending, sample.error = ending, TOO_LATE[ending]
    return sample


class DeadlineQueues:
    """The replicas' queues by deadline; `end(sample, replica, ending, now_ns)` takes dropped ones.

    `told(replica, sample)`, if set, is called for every sample that joins a queue. `gives_up_ns`
    has the time at which to drop a queue's head, for each replica whose head has a deadline.
    """

    def __init__(
        self,
        rules: DeadlineRules,
        settings: GearSettings,
        queues: Sequence[WaitingQueue],
        turns: Sequence[Turns],
        devices: Devices,
        end: End,
    ) -> None:
        self._rules, self.run_ns, self._settings = rules, rules.run_ns, settings
        self._queues, self._turns, self._devices, self._end = queues, turns, devices, end
        self.gives_up_ns: dict[int, int] = {}
        self.told: Callable[[int, Sample], None] | None = None

    def misses_anyway(self, request: Request, model: int, now_ns: int) -> bool:
        """Whether no replica of `model` could be in time, even running the request next, alone."""
        if not self._rules.refuses or request.deadline_ns == NO_DEADLINE_NS:
            return False
        deadline_ns = self._rules.aimed_ns(request)
        replicas = self._turns[request.pipeline].sharing(model)
        return bool(replicas) and not any(
            in_time(deadline_ns, self._devices.free_ns(replica, now_ns), self.run_ns[replica][1])
            for replica in replicas
        )

    def may_forward(self, sample: Sample, model: int, now_ns: int) -> bool:
        """Whether the fastest replica of `model` would answer in time if it were free."""
        return in_time(self._rules.aimed_ns(sample.request), now_ns, self._rules.fastest_ns[model])

    def may_begin(self, request: Request, model: int, now_ns: int) -> bool:
        """As `may_forward`, of a sample without any answer, which has to be refused otherwise."""
        if not self._rules.refuses:
            return True
        return in_time(self._rules.aimed_ns(request), now_ns, self._rules.fastest_ns[model])

    def shed_due(self, now_ns: int) -> list[int]:
        """Drop heads that are due; return the replicas that had them."""
        due = sorted(replica for replica, at_ns in self.gives_up_ns.items() if at_ns <= now_ns)
        for replica in due:
            self.shed(replica, now_ns)
            self.watch(replica, now_ns)
        return due

    def routed(self, sample: Sample, replica: int, now_ns: int) -> None:
        if self.told is not None:
            self.told(replica, sample)
        if self._queues[replica].limited:
            self.watch(replica, now_ns)

    def waiting(self, replica: int, now_ns: int) -> tuple[list[tuple[int, int]], int]:
        """Entry times and deadlines of the waiting samples, and when the devices are free."""
        waiting = [(sample.entered_ns, sample.request.late_after_ns) for sample in self._queues[replica].waiting()]
        return waiting, self._devices.free_ns(replica, now_ns)

    def take_run_times(self, replica: int, run_ns: Sequence[int], now_ns: int) -> None:
        """Use other run times, by batch size, from now on; a running batch keeps its end."""
        self._rules.take(replica, run_ns)
        self.watch(replica, now_ns)

    def watch(self, replica: int, now_ns: int) -> None:
        queue = self._queues[replica]
        if len(queue):
            sample = queue.head()
            deadline_ns = self._rules.aimed_ns(sample.request)
            if deadline_ns < NO_DEADLINE_NS:
                over_ns = gives_up_ns(deadline_ns, self.run_ns[replica][1])
                if over_ns > now_ns or self._rules.may_drop(sample):
                    self.gives_up_ns[replica] = max(over_ns, now_ns)
                    return
        self.gives_up_ns.pop(replica, None)

    def shed(self, replica: int, now_ns: int) -> None:
        queue, rules, dropped = self._queues[replica], self._rules, False
        while len(queue):
            head = queue.head()
            if in_time(rules.aimed_ns(head.request), now_ns, self.run_ns[replica][1]) or not rules.may_drop(head):
                break
            queue.remove(head)
            self._drop(head, replica, now_ns)
            dropped = True
        if dropped:
            self.watch(replica, now_ns)

    def start_by_ns(self, replica: int, wait_ends_ns: int) -> int:
        queue, most = self._queues[replica], self._settings.largest_batch_size[replica]
        run_ns = self.run_ns[replica][batch_size(len(queue), most)]
        return start_by_ns(wait_ends_ns, self._rules.aimed_ns(queue.head().request), run_ns)

    def endangered_first(self, device: int, chosen: int, reason: int, now_ns: int) -> tuple[int, int]:
        """`chosen`, or a replica of `device` whose samples go first (`goes_first`); its reason."""
        queue, largest = self._queues[chosen], self._settings.largest_batch_size
        head, size = queue.head(), batch_size(len(queue), largest[chosen])
        if not head.has_answer:
            return chosen, reason
        for replica in self._devices.on_device[device]:
            waiting, most = len(self._queues[replica]), largest[replica]
            if waiting == 0 or self._devices.any_busy(replica):
                continue
            first, run_ns = self._queues[replica].head(), self.run_ns[replica][batch_size(waiting, most)]
            urgent = not first.has_answer and first.request.priority <= head.request.priority
            deadline_ns = self._rules.aimed_ns(first.request)
            if urgent and goes_first(now_ns, self.run_ns[chosen][size], waiting, most, run_ns, deadline_ns):
                return replica, DEADLINE
        return chosen, reason

    def fill(self, replica: int, most: int, now_ns: int) -> list[Sample]:
        """Take a batch of at least one sample that keeps its samples' deadlines."""
        queue, rules, run_ns = self._queues[replica], self._rules, self.run_ns[replica]
        if not queue.limited:
            return queue.take(most, now_ns)
        batch: list[Sample] = []
        tightest_ns = NO_DEADLINE_NS
        while len(batch) < most and len(queue):
            sample = queue.next_out(now_ns)
            deadline_ns = rules.aimed_ns(sample.request)
            if not in_time(deadline_ns, now_ns, run_ns[1]):
                if rules.may_drop(sample):
                    queue.remove(sample)
                    self._drop(sample, replica, now_ns)
                    continue
                deadline_ns = NO_DEADLINE_NS
            if not in_time(min(tightest_ns, deadline_ns), now_ns, run_ns[len(batch) + 1]):
                verdict = self._gives_way(replica, len(batch), most, tightest_ns, deadline_ns, now_ns)
                if verdict == RUN:
                    break
                if verdict == NEXT_GIVES_WAY:
                    queue.remove(sample)
                    self._drop(sample, replica, now_ns)
                else:
                    batch = self._in_time_for_whole(batch, replica, most, now_ns)
                    tightest_ns = min((rules.aimed_ns(one.request) for one in batch), default=NO_DEADLINE_NS)
                continue
            queue.remove(sample)
            batch.append(sample)
            tightest_ns = min(tightest_ns, deadline_ns)
        self.watch(replica, now_ns)
        return batch

    def _gives_way(self, replica: int, size: int, most: int, tightest_ns: int, next_ns: int, now_ns: int) -> int:
        if not self._rules.refuses:
            return RUN
        run_ns, waiting = self.run_ns[replica], len(self._queues[replica])
        whole, behind = batch_size(size + waiting, most), batch_size(waiting, most)
        return when_limited(
            now_ns,
            size,
            waiting,
            whole,
            run_ns[size],
            run_ns[whole],
            run_ns[1],
            run_ns[behind],
            tightest_ns,
            next_ns,
        )

    def _in_time_for_whole(self, batch: list[Sample], replica: int, most: int, now_ns: int) -> list[Sample]:
        """Drop the samples of `batch` for which the largest possible batch would end too late."""
        whole_run_ns = self.run_ns[replica][batch_size(len(batch) + len(self._queues[replica]), most)]
        kept = []
        for sample in batch:
            if in_time(self._rules.aimed_ns(sample.request), now_ns, whole_run_ns):
                kept.append(sample)
            else:
                self._drop(sample, replica, now_ns)
        return kept

    def _drop(self, sample: Sample, replica: int, now_ns: int) -> None:
        ending = why_dropped(sample.request.deadline_ns, now_ns)
        self._end(sample, replica, Ending.DEGRADED if sample.has_answer else Ending(ending), now_ns)
