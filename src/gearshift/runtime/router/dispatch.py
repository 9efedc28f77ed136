"""Queues, devices, and what runs on them: chooses the batches that start, and starts them."""

from collections.abc import Callable, Sequence

from gearshift.clock import NEVER_NS
from gearshift.decisions import Decision
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.batching import BULK, DEADLINE, NOT_YET, REFINES, RETRY, batch_size, start_reason
from gearshift.policies.bulk import bulk_batch_size
from gearshift.policies.order import is_starving, replica_key
from gearshift.policies.refine import REFINE, URGENT
from gearshift.request import Sample
from gearshift.runtime.faults.failing import FailingReplicas
from gearshift.runtime.faults.retries import Retries
from gearshift.runtime.router.by_deadline import DeadlineQueues, DeadlineRules, End
from gearshift.runtime.router.decision_log import DecisionLog
from gearshift.runtime.router.devices import Devices, Slowdown
from gearshift.runtime.router.graph import Scope
from gearshift.runtime.router.pipeline import GearSettings, Pipeline
from gearshift.runtime.router.queue import BulkQueues, WaitingQueue
from gearshift.runtime.router.refining import Refining, Release

Start = Callable[[int, list[Sample], int], None]


class Dispatch:
    """Holds a queue for each replica, and the devices: all pipelines share them.

    `start` hands a batch to the backend, `end` takes what is dropped, `release` what is answered for lack of time
    where gears order by gain; alike replicas then share the queues of the first of them. Devices that an event
    `touched` are looked at once it has been handled. Backlog is counted in `pipeline_of` (nodes,).
    """

    def __init__(
        self,
        tables: PlanTables,
        pipelines: Sequence[Pipeline],
        pipeline_of: Sequence[Pipeline],
        rules: DeadlineRules,
        retries: Retries,
        failing: FailingReplicas,
        log: DecisionLog,
        *,
        start: Start,
        end: End,
        release: Release,
    ) -> None:
        self._pipeline_of: list[Pipeline] = [*pipeline_of]
        self._only = pipelines[0] if len(pipeline_of) == 1 else None
        """The only pipeline, if it has one node: its samples need not be looked at to count them."""
        self._retries, self._failing, self._log, self._start = retries, failing, log, start
        self._barred = failing.barred
        self._model_of: list[int] = tables.replica_model.tolist()
        self._starvation_ns: list[int] = tables.starvation_ns.tolist()
        self.devices, self.slowdown = Devices(tables), Slowdown(tables, on=rules.learns_slowdown)
        self._expected_ns, self._spans = rules.expected_ns, self.devices.spans
        self.settings = GearSettings(tables, pipelines)
        self.queues = [WaitingQueue(starvation_ns) for starvation_ns in self._starvation_ns]
        self.bulk = BulkQueues(tables, failing.skipped)
        turns = [pipeline.turns for pipeline in pipelines]
        self.by_deadline = DeadlineQueues(rules, self.settings, self.queues, turns, self.devices, end)
        replicas = len(tables.replica_ids)
        self.running: list[Sequence[Sample]] = [() for _ in range(replicas)]
        self._refining: Refining | None = None
        if tables.refine.refines:
            self._refining = Refining(tables, pipelines, rules, self.settings, self.slowdown, self.running, release)
        self._in_batch = [False] * replicas
        self.started_ns = [0] * replicas
        self.touched: list[int] = []

    # Backlog.

    def waits(self, samples: Sequence[Sample]) -> None:
        """Count samples that begin to wait, in a queue or for a replica; bulk work is no backlog."""
        for sample in samples:
            scope: Scope | None = sample.scope
            if sample.request.is_bulk:
                continue
            if scope is None:
                self._pipeline_of[sample.node].waiting += 1
            else:
                scope.flow.waits()

    def waits_no_more(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            scope: Scope | None = sample.scope
            if sample.request.is_bulk:
                continue
            if scope is None:
                self._pipeline_of[sample.node].waiting -= 1
            else:
                scope.flow.waits_no_more()

    # Queues.

    def queue(self, sample: Sample, replica: int, now_ns: int) -> None:
        if self._refining is not None:
            self._queue_alike(self._refining, sample, replica, now_ns)
            return
        sample.replica = replica
        self.queues[replica].add(sample, now_ns)
        if self._only is not None:
            self._only.waiting += 1
        else:
            self.waits((sample,))
        self.touched.extend(self._spans[replica])
        self.by_deadline.routed(sample, replica, now_ns)
        if self._log.wanted:
            self._log.write(now_ns, Decision.ROUTE, sample.sequence, replica, sample.stage)

    def _queue_alike(self, refining: Refining, sample: Sample, replica: int, now_ns: int) -> None:
        """Queue a sample for all replicas that are like `replica`."""
        leader = refining.queue_of[replica]
        sample.replica = leader
        if sample.has_answer:
            if not refining.wait(sample, leader, now_ns):
                return
        else:
            self.queues[leader].add(sample, now_ns)
            self.waits((sample,))
            self.by_deadline.routed(sample, leader, now_ns)
        for other in refining.alike[leader]:
            self.touched.extend(self._spans[other])
        self._log.write(now_ns, Decision.ROUTE, sample.sequence, leader, sample.stage)
        if sample.has_answer:
            refining.bound(leader, now_ns)

    def queue_bulk(self, sample: Sample, replica: int, now_ns: int) -> None:
        sample.replica = replica
        self.bulk.add(sample, replica, now_ns)
        self.touched.extend(self._spans[replica])
        self._log.write(now_ns, Decision.ROUTE, sample.sequence, replica, sample.stage)

    def withdraw(self, sample: Sample, now_ns: int) -> None:
        """Remove a sample from where it waits, if it does."""
        if self._retries.remove(sample):
            self.waits_no_more((sample,))
            return
        if self._refining is not None and self._refining.withdraw(sample):
            return
        replica: int = sample.replica
        if replica < 0:
            return
        if sample.request.is_bulk:
            gone = self.bulk.remove(sample)
        elif gone := self.queues[replica].remove(sample):
            self.waits_no_more((sample,))
            self.by_deadline.watch(replica, now_ns)
        if gone:
            self.touched.extend(self._spans[replica])

    def clear(self, replica: int, now_ns: int) -> list[Sample]:
        """Remove all samples from the queues of a replica; those that alike ones will take stay."""
        refining, first, bulk = self._refining, replica, self.bulk.clear(replica)
        if refining is not None:
            first = refining.queue_of[replica]
            if not all(self._barred[other] for other in refining.alike[first]):
                return bulk
        queued = self.queues[first].clear() + bulk
        self.by_deadline.watch(first, now_ns)
        self.waits_no_more(queued)
        queued += [] if refining is None else refining.clear(first)
        for sample in queued:
            sample.queue_ns += now_ns - sample.entered_ns
        return queued

    # Batches that end.

    def leave_batch(self, replica: int, samples: Sequence[Sample], now_ns: int) -> bool:
        """Count what samples that leave have run; whether they are the last of their batch."""
        running = self.running[replica]
        whole = len(samples) >= len(running)
        self.running[replica] = () if whole else [sample for sample in running if sample not in samples]
        if whole and self._refining is not None:
            self._refining.ended(replica)
        started_ns = self.started_ns[replica]
        for sample in samples:
            if not sample.over:
                sample.run_ns += now_ns - started_ns
        return whole

    def learn_slowdown(self, replica: int, now_ns: int) -> None:
        """Compare the run time of a batch that ends with the expected one."""
        first = self.slowdown.ended(replica, now_ns - self.started_ns[replica])
        if self._refining is not None:
            self._refining.watch(first)

    def free(self, replica: int) -> None:
        self.running[replica] = ()
        if self._in_batch[replica]:
            self._in_batch[replica] = False
            self.devices.free(replica)

    def touch(self, replica: int) -> None:
        self.touched.extend(self._spans[replica])

    def touch_first(self, replica: int) -> None:
        self.touched[:0] = self._spans[replica]

    # Batches that start.

    def start_on_touched(self, now_ns: int) -> None:
        for device in dict.fromkeys(self.touched):  # once each, in the order of first touch
            self.start_on(device, now_ns)
        self.touched.clear()

    def start_on_due(self, now_ns: int) -> None:
        """Drop what is due; start on touched devices, and on those whose time to look again has come."""
        for replica in self.by_deadline.shed_due(now_ns):
            self.touch(replica)
        if self._refining is not None:
            self._refining.release_due(now_ns)
        due = sorted([*self.devices.due(now_ns), *((now_ns, device) for device in self.touched)])
        self.touched.clear()
        for _, device in due:
            self.start_on(device, now_ns)

    def next_timer_ns(self) -> int:
        first_ns = min(self.devices.wake_ns)
        if self.by_deadline.gives_up_ns:
            first_ns = min(first_ns, *self.by_deadline.gives_up_ns.values())
        if self._refining is not None:
            first_ns = min(first_ns, self._refining.next_timer_ns())
        if self._retries.count and self._retries.next_ns is not None:
            first_ns = min(first_ns, self._retries.next_ns)
        return first_ns

    def start_on(self, device: int, now_ns: int) -> None:
        """Start the most urgent ready replica; a starving one keeps this device free for it."""
        if self.devices.busy[device]:
            return
        self.devices.wake_ns[device] = NEVER_NS
        if self._retries.count and self._start_group(device, now_ns):
            return
        if self._refining is not None:
            self._screen_or_refine(self._refining, device, now_ns)
            return
        chosen, chosen_key, chosen_reason = -1, (0, 0, 0, 0), NOT_YET
        limited, settings = False, self.settings
        for replica in self.devices.on_device[device]:
            queue = self.queues[replica]
            if queue.limited:
                limited = True
                self.by_deadline.shed(replica, now_ns)
            waiting = len(queue)
            if not waiting:
                continue
            oldest_ns, wait_ns = queue.oldest().entered_ns, settings.longest_wait_ns[replica]
            reason = start_reason(waiting, oldest_ns, now_ns, settings.minimum_queue_length[replica], wait_ns)
            if reason == NOT_YET:
                start_ns = oldest_ns + wait_ns
                if queue.limited:
                    start_ns = self.by_deadline.start_by_ns(replica, start_ns)
                if not queue.limited or now_ns < start_ns:
                    self.devices.wake_by(device, start_ns)
                    continue
                reason = DEADLINE
            starving = is_starving(oldest_ns, now_ns, self._starvation_ns[replica])
            if not starving and self.devices.any_busy(replica):
                continue
            head = queue.head().request
            key = replica_key(starving, head.priority, head.deadline_ns, oldest_ns)
            if chosen < 0 or key < chosen_key:
                chosen, chosen_key, chosen_reason = replica, key, reason
        if limited and chosen_key[0]:
            chosen, chosen_reason = self.by_deadline.endangered_first(device, chosen, chosen_reason, now_ns)
        if chosen >= 0:
            if not self.devices.any_busy(chosen):
                self._start_batch(chosen, chosen_reason, now_ns)
        elif self.bulk.waiting:
            self._start_bulk(device, now_ns)

    def _screen_or_refine(self, refining: Refining, device: int, now_ns: int) -> None:
        """Start a batch that screens, or one that refines, on an idle device."""
        screens, screen_key, reason, full = -1, (0, 0, 0, 0), NOT_YET, False
        urgent, until_ns, urgent_reason = -1, NEVER_NS, NOT_YET
        refines, best_level, best_until_ns = -1, 0, 0
        for replica in self.devices.on_device[device]:
            if self._barred[replica]:
                continue
            leader = refining.queue_of[replica]
            queue, gains = self.queues[leader], refining.queues[leader]
            if queue.limited:
                self.by_deadline.shed(leader, now_ns)
            if len(queue) and (why := self._why_screen(replica, leader, device, now_ns)) != NOT_YET:
                head, oldest = queue.head().request, queue.oldest()
                full = full or len(queue) >= self.settings.largest_batch_size[replica]
                if urgent < 0 or refining.until_ns(oldest) < until_ns:
                    urgent, until_ns, urgent_reason = replica, refining.until_ns(oldest), why
                key = replica_key(False, head.priority, head.deadline_ns, oldest.entered_ns)
                if screens < 0 or key < screen_key:
                    screens, screen_key, reason = replica, key, why
            refining.release(leader, now_ns)
            if len(gains):
                level, best_ns = gains.best()
                if refines < 0 or level > best_level or (level == best_level and best_ns < best_until_ns):
                    refines, best_level, best_until_ns = replica, level, best_ns
        rows, left_ns, size = refining.batch_size(refines, now_ns) if refines >= 0 else ([], [], 0)
        if screens >= 0:
            goes = refining.goes(device, screens, urgent, until_ns, self._screenable, full, refines, size, now_ns)
            if goes == URGENT:
                screens, reason = urgent, urgent_reason
            if goes != REFINE:
                leader, to_screen = refining.queue_of[screens], refining.to_screen(screens, self._screenable(screens))
                batch = self.by_deadline.fill(leader, to_screen, now_ns)
                self.waits_no_more(batch)
                refining.screened_last[device] = True
                self._run(screens, batch, reason, now_ns)
                return
        if size:
            refining.screened_last[device] = False
            self._run(refines, refining.take(refines, rows, left_ns, size), REFINES, now_ns)
        elif screens < 0 and self.bulk.waiting:
            self._start_bulk(device, now_ns)

    def _screenable(self, replica: int) -> int:
        """The rows that wait to be screened by a replica and those alike."""
        assert self._refining is not None
        return len(self.queues[self._refining.queue_of[replica]])

    def _why_screen(self, replica: int, leader: int, device: int, now_ns: int) -> int:
        """Why `replica` may screen now; where it may not, the device looks again when it may."""
        queue, settings = self.queues[leader], self.settings
        oldest_ns, wait_ns = queue.oldest().entered_ns, settings.longest_wait_ns[replica]
        minimum = settings.minimum_queue_length[replica]
        reason = start_reason(len(queue), oldest_ns, now_ns, minimum, wait_ns)
        if reason != NOT_YET:
            return reason
        start_ns = oldest_ns + wait_ns
        if queue.limited:
            start_ns = self.by_deadline.start_by_ns(leader, start_ns)
            if now_ns >= start_ns:
                return DEADLINE
        self.devices.wake_by(device, start_ns)
        return NOT_YET

    def _start_batch(self, replica: int, reason: int, now_ns: int) -> None:
        size = batch_size(len(self.queues[replica]), self.settings.largest_batch_size[replica])
        batch = self.by_deadline.fill(replica, size, now_ns)
        if self._only is not None:
            self._only.waiting -= len(batch)
        else:
            self.waits_no_more(batch)
        self._run(replica, batch, reason, now_ns)

    def lengths(self) -> list[int]:
        """Samples that wait for each replica, at the first of those alike where they share a queue."""
        if self._refining is None:
            return [len(queue) for queue in self.queues]
        return [len(queue) + len(gains) for queue, gains in zip(self.queues, self._refining.queues, strict=True)]

    def _start_bulk(self, device: int, now_ns: int) -> None:
        """Start a batch of bulk work on a device on which nothing else starts."""
        replica = self.bulk.first([r for r in self.devices.on_device[device] if not self.devices.any_busy(r)])
        if replica >= 0:
            size = bulk_batch_size(
                len(self.bulk.queues[replica]),
                self.settings.largest_batch_size[replica],
                self.by_deadline.run_ns[replica],
                self._starvation_ns[replica],
            )
            self._run(replica, self.bulk.take(replica, size, now_ns), BULK, now_ns)

    def _start_group(self, device: int, now_ns: int) -> bool:
        for replica in self.devices.on_device[device]:
            model = self._model_of[replica]
            if self._retries.has_group(model) and not self._barred[replica] and not self.devices.any_busy(replica):
                group = self._retries.take_group(model)
                self.waits_no_more(group)
                self._run(replica, group, RETRY, now_ns)
                return True
        return False

    def run_if_idle(self, replica: int, sample: Sample, reason: int, now_ns: int) -> bool:
        """Run a sample outside meter and queues, if the replica's devices have nothing to do."""
        first, lengths = range(len(self.queues)) if self._refining is None else self._refining.queue_of, self.lengths()
        others = (other for device in self._spans[replica] for other in self.devices.on_device[device])
        if self._barred[replica] or self.devices.any_busy(replica) or any(lengths[first[other]] for other in others):
            return False
        self._run(replica, [sample], reason, now_ns)
        return True

    def _run(self, replica: int, samples: list[Sample], reason: int, now_ns: int) -> None:
        run_ns = self.by_deadline.run_ns[replica][len(samples)]
        self.devices.hold(replica, now_ns + run_ns)
        self.running[replica], self._in_batch[replica] = samples, True
        self.started_ns[replica] = now_ns
        if self.slowdown.on:
            self.slowdown.started(replica, self._expected_ns[replica][len(samples)])
        for sample in samples:
            sample.queue_ns += now_ns - sample.entered_ns
            sample.expected_end_ns = now_ns + run_ns
        if self._log.wanted:
            self._log.write(now_ns, Decision.START, replica, len(samples), reason)
            for sample in samples:
                self._log.write(now_ns, Decision.TAKE, replica, sample.sequence, 0)
        self._failing.sent(replica)
        self._start(replica, samples, reason)
        if self._refining is not None:
            self._refining.begun(replica, now_ns)
