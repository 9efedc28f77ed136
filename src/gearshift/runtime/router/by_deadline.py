"""The router's steps for deadlines: who is dropped, how large a batch may be, when to look again."""

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
from gearshift.runtime.router.queue import WaitingQueue
from gearshift.runtime.router.turns import Turns

End = Callable[[Sample, int, Ending, int], None]

RECENT_ANSWERS, FORGOTTEN_ANSWERS = 256, 16
"""Answers that the margin is computed from, and those forgotten at a tick while nothing runs."""
TOO_LATE_FOR_MORE = "deadline"
"""Why a sample is degraded that had no time for another model."""
TOO_LATE = {
    Ending.INFEASIBLE: "infeasible: it could not be answered by its deadline any more",
    Ending.EXPIRED_IN_QUEUE: "expired_in_queue: its deadline passed while it waited",
    Ending.EXECUTION: "execution: its deadline passed while it ran",
}
"""What is told of a refused request, its reason first."""


class DeadlineRules:
    """What deadlines decide by the profiled times `run_ns` (replicas, sizes), of which `take` changes rows.

    `late` says whether samples without any answer are refused, or answered late.  All aim `margin_ns` before a
    deadline.  The margin follows from the delays of recent answers against the profiled times, and from `way_ns`, the
    time of requests and answers outside the router.
    """

    def __init__(
        self, tables: PlanTables, run_ns: Sequence[Sequence[int]], late: Late = "refuse", way_ns: int = 0
    ) -> None:
        self.tables, self.run_ns = tables, [*run_ns]
        self.refuses = late == "refuse"
        self.margin_ns = self._way_ns = way_ns
        self._overshoots_ns: deque[int] = deque(maxlen=RECENT_ANSWERS)
        self._find_fastest()

    def take(self, replica: int, run_ns: Sequence[int]) -> None:
        """The replica takes other times from now on, by batch size."""
        self.run_ns[replica] = run_ns
        self._find_fastest()

    def _find_fastest(self) -> None:
        self.fastest_ns: list[int] = fastest_ns(self.tables, np.asarray(self.run_ns)).tolist()

    def written(self, due_ns: int, now_ns: int) -> None:
        """An answer was written whose batch was to end at `due_ns`."""
        self._overshoots_ns.append(now_ns - due_ns)

    def take_aim(self, *, idle: bool) -> None:
        """Set the margin from recent answers.

        While nothing runs, some of them are forgotten: otherwise a margin that refuses everything would never shrink.
        """
        for _ in range(min(FORGOTTEN_ANSWERS, len(self._overshoots_ns)) if idle else 0):
            self._overshoots_ns.popleft()
        self.margin_ns = margin_ns(self._overshoots_ns, self._way_ns)

    def aimed_ns(self, request: Request) -> int:
        """By when a batch with the request is to end."""
        return aimed_ns(request.order_deadline_ns, self.margin_ns)

    def may_drop(self, sample: Sample) -> bool:
        """Whether the sample has an answer already, or may go without one."""
        return self.refuses or sample.visited != 0


def end_early(sample: Sample, ending: Ending) -> Sample:
    """The sample with the answer that it has, where it is degraded, or with the error that it is refused with."""
    if ending == Ending.DEGRADED:
        sample.stage, sample.degraded_by = sample.visited.bit_count() - 1, TOO_LATE_FOR_MORE
    else:
        sample.ending, sample.error = ending, TOO_LATE[ending]
    return sample


class DeadlineQueues:
    """The replicas' queues as deadlines see them; `end(sample, replica, ending, now_ns)` takes what leaves one early.

    `told(replica, sample)`, where there is one, hears of everything that joins a queue.

    `gives_up_ns` has for each replica whose queue's head has a deadline when that head is to be dropped.
    """

    def __init__(
        self, rules: DeadlineRules, queues: Sequence[WaitingQueue], turns: Turns, devices: Devices, end: End
    ) -> None:
        self._rules, self.run_ns = rules, rules.run_ns
        self._largest: list[int] = rules.tables.largest_batch_size.tolist()
        self._queues, self._turns, self._devices, self._end = queues, turns, devices, end
        self.gives_up_ns: dict[int, int] = {}
        self.told: Callable[[int, Sample], None] | None = None

    def misses_anyway(self, request: Request, model: int, now_ns: int) -> bool:
        """Whether no replica of `model` could answer in time, were the request the next that each runs, alone."""
        deadline_ns = self._rules.aimed_ns(request)
        if not self._rules.refuses or deadline_ns == NO_DEADLINE_NS:
            return False
        replicas = self._turns.sharing(model)
        return bool(replicas) and not any(
            in_time(deadline_ns, self._devices.free_ns(replica, now_ns), self.run_ns[replica][1])
            for replica in replicas
        )

    def may_forward(self, sample: Sample, model: int, now_ns: int) -> bool:
        """Whether the fastest replica of `model`, were it free, would answer in time."""
        return in_time(self._rules.aimed_ns(sample.request), now_ns, self._rules.fastest_ns[model])

    def shed_due(self, now_ns: int) -> list[int]:
        """Drop the heads that are to be dropped now, or were before; the replicas that had them."""
        due = sorted(replica for replica, at_ns in self.gives_up_ns.items() if at_ns <= now_ns)
        for replica in due:
            self.shed(replica, now_ns)
            self.watch(replica, now_ns)
        return due

    def routed(self, sample: Sample, replica: int, now_ns: int) -> None:
        """A sample has joined the replica's queue."""
        if self.told is not None:
            self.told(replica, sample)
        if self._queues[replica].limited:
            self.watch(replica, now_ns)

    def waiting(self, replica: int, now_ns: int) -> tuple[list[tuple[int, int]], int]:
        """When each that waits for the replica came there, its deadline, and when the devices should be free."""
        waiting = [(sample.entered_ns, sample.request.deadline_ns) for sample in self._queues[replica].waiting()]
        return waiting, self._devices.free_ns(replica, now_ns)

    def take_run_times(self, replica: int, run_ns: Sequence[int], now_ns: int) -> None:
        """The replica takes other times from now on, by batch size; what runs still ends when it was to."""
        self._rules.take(replica, run_ns)
        self.watch(replica, now_ns)

    def watch(self, replica: int, now_ns: int) -> None:
        """Note when the head of the replica's queue is to be dropped."""
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
        """Drop the heads of the replica's queue that it cannot answer in time any more."""
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

    def start_by_ns(self, replica: int, wait_ends_ns: int, most: int) -> int:
        """When the replica starts a batch that is not full."""
        queue = self._queues[replica]
        run_ns = self.run_ns[replica][batch_size(len(queue), most)]
        return start_by_ns(wait_ends_ns, self._rules.aimed_ns(queue.head().request), run_ns)

    def endangered_first(self, device: int, chosen: int, reason: int, base: int, now_ns: int) -> tuple[int, int]:
        """The `chosen` replica with its reason to start, or one of `device` whose samples go first, see `goes_first`.

        `base` is where the gear's settings begin.
        """
        queue, largest = self._queues[chosen], self._largest
        head, size = queue.head(), batch_size(len(queue), largest[base + chosen])
        if not head.visited:
            return chosen, reason
        for replica in self._devices.on_device[device]:
            waiting, most = len(self._queues[replica]), largest[base + replica]
            if waiting == 0 or self._devices.any_busy(replica):
                continue
            first, run_ns = self._queues[replica].head(), self.run_ns[replica][batch_size(waiting, most)]
            urgent = not first.visited and first.request.priority <= head.request.priority
            deadline_ns = self._rules.aimed_ns(first.request)
            if urgent and goes_first(now_ns, self.run_ns[chosen][size], waiting, most, run_ns, deadline_ns):
                return replica, DEADLINE
        return chosen, reason

    def fill(self, replica: int, most: int, now_ns: int) -> list[Sample]:
        """Take a batch that keeps the deadlines in it, of one sample at least."""
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
            size = len(batch)
            if not in_time(min(tightest_ns, deadline_ns), now_ns, run_ns[size + 1]):
                waiting = len(queue)
                whole_run_ns = run_ns[batch_size(size + waiting, most)]
                verdict = RUN
                if rules.refuses:
                    verdict = when_limited(
                        now_ns,
                        size,
                        waiting,
                        batch_size(size + waiting, most),
                        run_ns[size],
                        whole_run_ns,
                        run_ns[1],
                        run_ns[batch_size(waiting, most)],
                        tightest_ns,
                        deadline_ns,
                    )
                if verdict == RUN:
                    break
                if verdict == NEXT_GIVES_WAY:
                    queue.remove(sample)
                    self._drop(sample, replica, now_ns)
                    continue
                held, batch = batch, []
                for one in held:
                    if in_time(rules.aimed_ns(one.request), now_ns, whole_run_ns):
                        batch.append(one)
                    else:
                        self._drop(one, replica, now_ns)
                tightest_ns = min((rules.aimed_ns(one.request) for one in batch), default=NO_DEADLINE_NS)
                continue
            queue.remove(sample)
            batch.append(sample)
            tightest_ns = min(tightest_ns, deadline_ns)
        self.watch(replica, now_ns)
        return batch

    def _drop(self, sample: Sample, replica: int, now_ns: int) -> None:
        ending = why_dropped(sample.request.order_deadline_ns, now_ns)
        self._end(sample, replica, Ending.DEGRADED if sample.visited else Ending(ending), now_ns)
