"""The router: takes all events of a plan's pipelines and makes all decisions; no clock, no I/O.

It decides at five points: a stage ended, an executor is free, the meter ticks, a request arrives,
a timer ends. At each it calls the policies and then starts batches on the devices it touched.
The simulator's kernel does the same in the same order (`simulator/kernel`); the conformance test
compares their logs.
"""

from collections.abc import Callable, Sequence

from gearshift.clock import NEVER_NS
from gearshift.decisions import Decision, Ending, LogRow
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.batching import DEADLINE, NOT_YET, RETRY, batch_size, start_reason
from gearshift.policies.next_step import ANSWER, next_step
from gearshift.policies.order import is_starving, replica_key
from gearshift.request import Sample
from gearshift.runtime.router.by_deadline import DeadlineQueues, DeadlineRules, end_early
from gearshift.runtime.router.devices import Devices
from gearshift.runtime.router.pipeline import GearSettings, Pipeline
from gearshift.runtime.router.queue import WaitingQueue
from gearshift.runtime.router.retries import Retries

Start = Callable[[int, list[Sample], int], None]
Answered = Callable[[Sample], None]
Log = Callable[[LogRow], None]
Shifted = Callable[[int, int, int], None]

WITHDRAWN = "nobody waits for this answer any more"


class Router:
    """State of the pipelines, and of the queues and devices that they share.

    `start(replica, samples, reason)` hands a batch to the backend; `answered(sample)` hands back a
    sample with its result or error; `log(row)` and `shifted(pipeline, from, to)` report
    decisions.
    `retries` decides what happens to samples whose replica is lost, `deadlines` what clients'
    deadlines do; without it batches count as taking no time, and late answers are wanted.
    """

    def __init__(
        self,
        tables: PlanTables,
        *,
        start: Start,
        answered: Answered,
        log: Log | None = None,
        shifted: Shifted | None = None,
        retries: Retries | None = None,
        deadlines: DeadlineRules | None = None,
    ) -> None:
        self._tables = tables
        self._start, self._answered, self._log, self._shifted = start, answered, log, shifted
        self._retries = retries or Retries(tables.models)
        replicas, self._models = range(len(tables.replica_ids)), len(tables.models)
        self._most_stages = tables.most_stages
        self._model_of: list[int] = tables.replica_model.tolist()
        self._model_begin: list[int] = tables.model_begin.tolist()
        self._devices = Devices(tables)
        self._spans = self._devices.spans
        self._stage_count: list[int] = tables.stage_count.tolist()
        self._stage_models: list[int] = tables.stage_models.tolist()
        self._thresholds: list[float] = tables.thresholds.tolist()
        self._stage_of: list[int] = tables.stage_of.tolist()
        self._lost = [False] * len(replicas)
        self.pipelines = tuple(Pipeline(tables, number, self._lost) for number in range(len(tables.pipelines)))
        self._pipeline_of: list[Pipeline] = [self.pipelines[number] for number in tables.pipeline_of.tolist()]
        self._first_row: list[int] = tables.first_row.tolist()
        self._settings = GearSettings(tables, self.pipelines)
        self._starvation_ns: list[int] = tables.starvation_ns.tolist()
        self._queues = [WaitingQueue(starvation_ns) for starvation_ns in self._starvation_ns]
        rules = deadlines or DeadlineRules(tables, late="answer")
        turns = [pipeline.turns for pipeline in self.pipelines]
        self.by_deadline = DeadlineQueues(rules, self._settings, self._queues, turns, self._devices, self._drop)
        self._running: list[Sequence[Sample]] = [() for _ in replicas]
        self._in_batch = [False] * len(replicas)
        self._started_ns = [0] * len(replicas)
        self._touched: list[int] = []

    @property
    def pipeline(self) -> Pipeline:
        """The first pipeline, for what serves only one."""
        return self.pipelines[0]

    @property
    def gear(self) -> int:
        return self.pipelines[0].gear

    @property
    def waiting(self) -> int:
        """The backlog of all pipelines together."""
        waiting = 0
        for pipeline in self.pipelines:
            waiting += pipeline.waiting
        return waiting

    # Events. At the same instant they are handled in this order.

    def stage_ended(self, replica: int, samples: Sequence[Sample], now_ns: int) -> None:
        """Answer or forward samples; start batches here only if theirs goes on."""
        model, running = self._model_of[replica], self._running[replica]
        whole = len(samples) >= len(running)
        self._running[replica] = () if whole else [sample for sample in running if sample not in samples]
        for sample in samples:
            sample.run_ns += now_ns - self._started_ns[replica]
            if sample.error:
                self._answered(sample)
                continue
            if sample.unanswered:
                self._retries.end_unanswered(sample, model, now_ns)
                self._end(sample, now_ns)
                continue
            sample.visited |= 1 << model
            sample.model = model
            following = self._next_step(sample)
            if following == ANSWER:
                self._answer(sample, now_ns)
            elif not self.by_deadline.may_forward(sample, following, now_ns):
                self._answer(end_early(sample, Ending.DEGRADED), now_ns, Decision.DEGRADE)
            else:
                sample.stage += 1
                self._route(sample, following, now_ns)
        if not whole:
            self._start_on_touched(now_ns)

    def executor_free(self, replica: int, now_ns: int) -> None:
        self._running[replica] = ()
        self._in_batch[replica] = False
        self._devices.free(replica)
        self._touched[:0] = self._spans[replica]
        self._start_on_touched(now_ns)

    def tick(self, now_ns: int) -> None:
        shifted = False
        for pipeline in self.pipelines:
            gear = pipeline.tick(self._longest_first_stage_queue(pipeline), now_ns)
            shifted |= self._shift(pipeline, gear, now_ns)
            pipeline.scaling.ticked(pipeline.rate_qps)
        if shifted:
            self._start_on_all(now_ns)

    def pin(self, gear: int, now_ns: int, pipeline: int = 0) -> None:
        self.pipelines[pipeline].pinned = True
        if self._shift(self.pipelines[pipeline], gear, now_ns):
            self._start_on_all(now_ns)

    def take_meter(self, before: "Router", now_ns: int) -> None:
        """Take over the meters of the pipelines of `before` with the same names, and their arrivals' gears."""
        by_name = {pipeline.name: pipeline for pipeline in before.pipelines}
        for pipeline in self.pipelines:
            if pipeline.name in by_name:
                self._shift(pipeline, pipeline.take_meter(by_name[pipeline.name]), now_ns)
        self._start_on_all(now_ns)

    def arrive(self, samples: Sequence[Sample], now_ns: int) -> None:
        """Meter and queue a request's samples; refuse them if no replica can be in time."""
        request = samples[0].request
        pipeline = self.pipelines[request.pipeline]
        node, first = pipeline.first_node, pipeline.first_model
        late = self.by_deadline.misses_anyway(request, first, now_ns)
        for sample in samples:
            pipeline.meter.arrived(now_ns)
            if late:
                self._write(now_ns, Decision.REFUSE, sample.sequence, Ending.INFEASIBLE, 0)
                self._answered(end_early(sample, Ending.INFEASIBLE))
            else:
                sample.node = node
                self._route(sample, first, now_ns)
        self._start_on_touched(now_ns)

    def timer(self, now_ns: int) -> None:
        """Start batches whose longest wait is over; drop samples that can no longer be on time."""
        for replica in self.by_deadline.shed_due(now_ns):
            self._touched.extend(self._spans[replica])
        due = sorted([*self._devices.due(now_ns), *((now_ns, device) for device in self._touched)])
        self._touched.clear()
        for _, device in due:
            self._start_on(device, now_ns)
        if self._retries.count:
            for sample in self._retries.end_expired(now_ns):
                self._leaves(sample)
                self._end(sample, now_ns)

    def next_timer_ns(self) -> int:
        first_ns = self._devices.next_wake_ns()
        if self.by_deadline.gives_up_ns:
            first_ns = min(first_ns, *self.by_deadline.gives_up_ns.values())
        if self._retries.count and self._retries.next_ns is not None:
            first_ns = min(first_ns, self._retries.next_ns)
        return first_ns

    # Faults.

    def replicas_lost(self, replicas: Sequence[int], now_ns: int) -> None:
        """Move queued samples to other replicas; run running ones again, apart from others."""
        for replica in replicas:
            self._lost[replica] = True
        self._share_among_the_living()
        for replica in replicas:
            queued = self._queues[replica].clear()
            self.by_deadline.watch(replica, now_ns)
            for sample in queued:
                self._leaves(sample)
                sample.queue_ns += now_ns - sample.entered_ns
                self._place(sample, now_ns)
            was_running, self._running[replica] = self._running[replica], ()
            self._run_apart(replica, was_running, now_ns)
            if self._in_batch[replica]:
                self._in_batch[replica] = False
                self._devices.free(replica)
            self._touched.extend(self._spans[replica])
        self._start_on_touched(now_ns)

    def replica_ready(self, replica: int, now_ns: int) -> None:
        self._lost[replica] = False
        self._share_among_the_living()
        self._place_stranded(now_ns)
        self._touched.extend(self._spans[replica])
        self._start_on_touched(now_ns)

    def cancel(self, samples: Sequence[Sample], now_ns: int) -> None:
        """Remove waiting samples from queues; running ones go on, but are not forwarded."""
        for sample in samples:
            sample.error = sample.error or WITHDRAWN
            replica = sample.replica
            if self._retries.remove(sample):
                self._leaves(sample)
                continue
            if replica < 0 or not self._queues[replica].remove(sample):
                continue
            self._leaves(sample)
            self._touched.extend(self._spans[replica])
            self.by_deadline.watch(replica, now_ns)
        self._start_on_touched(now_ns)

    @property
    def first_model(self) -> str:
        return str(self._tables.models[self.pipeline.first_model])

    @property
    def lacks_first_model(self) -> bool:
        return bool(self.lacking(0))

    def lacking(self, pipeline: int) -> str:
        """A model with which requests of `pipeline` begin, and which has no replica; empty if each has one."""
        of = self.pipelines[pipeline]
        for model in of.first_models:
            if not of.turns.lives(model):
                return str(self._tables.models[model])
        return ""

    def run_if_idle(self, replica: int, sample: Sample, reason: int, now_ns: int) -> bool:
        """Run a sample outside meter and queues, if the replica's devices have nothing to do."""
        others = [other for device in self._spans[replica] for other in self._devices.on_device[device]]
        if self._lost[replica] or self._devices.any_busy(replica) or any(len(self._queues[r]) for r in others):
            return False
        self._run(replica, [sample], reason, now_ns)
        return True

    def queue_lengths(self) -> list[int]:
        return [len(queue) for queue in self._queues]

    def running_lengths(self) -> list[int]:
        """Samples without a result in the batch that each replica runs."""
        return [len(samples) for samples in self._running]

    # Steps.

    def _answer(self, sample: Sample, now_ns: int, kind: Decision = Decision.ANSWER) -> None:
        self._write(now_ns, kind, sample.sequence, sample.model, self._pipeline_of[sample.node].gear)
        self._answered(sample)

    def _next_step(self, sample: Sample) -> int:
        node: int = sample.node
        row = self._first_row[node] + self._pipeline_of[node].gear
        return next_step(
            self._stage_of[row * self._models + sample.model],
            sample.certainty,
            sample.visited,
            self._stage_count[row],
            self._stage_models,
            self._thresholds,
            row * self._most_stages,
        )

    def _first_model_of(self, node: int) -> int:
        row = self._first_row[node] + self._pipeline_of[node].gear
        return self._stage_models[row * self._most_stages]

    def _route(self, sample: Sample, model: int, now_ns: int) -> None:
        pipeline = self._pipeline_of[sample.node]
        replica = pipeline.turns.choose(model)
        if replica < 0:
            if self._retries.keep(sample, model, now_ns):
                self._waits(sample)
            else:
                self._end(sample, now_ns)
            return
        sample.replica = replica
        self._queues[replica].add(sample, now_ns)
        pipeline.waiting += 1
        self._touched.extend(self._spans[replica])
        self.by_deadline.routed(sample, replica, now_ns)
        self._write(now_ns, Decision.ROUTE, sample.sequence, replica, sample.stage)

    def _waits(self, sample: Sample) -> None:
        self._pipeline_of[sample.node].waiting += 1

    def _leaves(self, sample: Sample) -> None:
        self._pipeline_of[sample.node].waiting -= 1

    def _start_on_touched(self, now_ns: int) -> None:
        for device in dict.fromkeys(self._touched):  # once each, in the order of first touch
            self._start_on(device, now_ns)
        self._touched.clear()

    def _start_on(self, device: int, now_ns: int) -> None:
        """Start the most urgent ready replica; a starving one keeps this device free for it."""
        if self._devices.busy[device]:
            return
        self._devices.wake_ns[device] = NEVER_NS
        if self._retries.count and self._start_group(device, now_ns):
            return
        chosen, chosen_key, chosen_reason = -1, (0, 0, 0, 0), NOT_YET
        limited, settings = False, self._settings
        for replica in self._devices.on_device[device]:
            queue = self._queues[replica]
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
                    self._devices.wake_by(device, start_ns)
                    continue
                reason = DEADLINE
            starving = is_starving(oldest_ns, now_ns, self._starvation_ns[replica])
            if not starving and self._devices.any_busy(replica):
                continue
            head = queue.head().request
            key = replica_key(starving, head.priority, head.deadline_ns, oldest_ns)
            if chosen < 0 or key < chosen_key:
                chosen, chosen_key, chosen_reason = replica, key, reason
        if limited and chosen_key[0]:
            chosen, chosen_reason = self.by_deadline.endangered_first(device, chosen, chosen_reason, now_ns)
        if chosen >= 0 and not self._devices.any_busy(chosen):
            self._start_batch(chosen, chosen_reason, now_ns)

    def _start_batch(self, replica: int, reason: int, now_ns: int) -> None:
        size = batch_size(len(self._queues[replica]), self._settings.largest_batch_size[replica])
        batch = self.by_deadline.fill(replica, size, now_ns)
        for sample in batch:
            self._leaves(sample)
        self._run(replica, batch, reason, now_ns)

    def _run(self, replica: int, samples: list[Sample], reason: int, now_ns: int) -> None:
        run_ns = self.by_deadline.run_ns[replica][len(samples)]
        self._devices.hold(replica, now_ns + run_ns)
        self._running[replica], self._in_batch[replica] = samples, True
        self._started_ns[replica] = now_ns
        self._write(now_ns, Decision.START, replica, len(samples), reason)
        for sample in samples:
            sample.queue_ns += now_ns - sample.entered_ns
            sample.expected_end_ns = now_ns + run_ns
            self._write(now_ns, Decision.TAKE, replica, sample.sequence, 0)
        self._start(replica, samples, reason)

    def _shift(self, pipeline: Pipeline, gear: int, now_ns: int) -> bool:
        before = pipeline.gear
        if gear == before:
            return False
        pipeline.shift(gear)
        self._settings.shift()
        self._write(now_ns, Decision.SHIFT, before, gear, pipeline.number)
        if self._shifted is not None:
            self._shifted(pipeline.number, before, gear)
        self._place_stranded(now_ns)
        return True

    def _start_on_all(self, now_ns: int) -> None:
        self._touched[:] = range(len(self._devices.busy))
        self._start_on_touched(now_ns)

    def _longest_first_stage_queue(self, pipeline: Pipeline) -> int:
        return max(
            len(self._queues[replica]) for model in pipeline.first_models for replica in self._replicas_of(model)
        )

    # Steps for deadlines.

    def _drop(self, sample: Sample, replica: int, ending: Ending, now_ns: int) -> None:
        self._leaves(sample)
        sample.queue_ns += now_ns - sample.entered_ns
        if ending == Ending.DEGRADED:
            self._answer(end_early(sample, ending), now_ns, Decision.DEGRADE)
        else:
            self._write(now_ns, Decision.DROP, sample.sequence, replica, ending)
            self._answered(end_early(sample, ending))

    # Steps after a loss.

    def _place(self, sample: Sample, now_ns: int) -> None:
        following = self._next_step(sample) if sample.visited else self._first_model_of(sample.node)
        if following == ANSWER:
            sample.stage = sample.visited.bit_count() - 1
            self._answer(sample, now_ns)
        else:
            sample.stage = sample.visited.bit_count()
            self._route(sample, following, now_ns)

    def _place_stranded(self, now_ns: int) -> None:
        for sample in self._retries.take_stranded(now_ns):
            self._leaves(sample)
            self._place(sample, now_ns)

    def _run_apart(self, replica: int, samples: Sequence[Sample], now_ns: int) -> None:
        """Run the samples of a lost replica again in halves, apart from others if possible."""
        model = self._model_of[replica]
        for sample in samples:
            sample.run_ns += now_ns - self._started_ns[replica]
        for sample in samples:
            self._waits(sample)
        ended = self._retries.keep_batch(replica, model, samples, now_ns)
        if all(self._lost[other] for other in self._replicas_of(model)):
            ended += self._retries.end_answered(model, now_ns)
        for sample in ended:
            self._leaves(sample)
            self._end(sample, now_ns)
        self._touched.extend(device for other in self._replicas_of(model) for device in self._spans[other])

    def _start_group(self, device: int, now_ns: int) -> bool:
        for replica in self._devices.on_device[device]:
            model = self._model_of[replica]
            if self._retries.has_group(model) and not self._lost[replica] and not self._devices.any_busy(replica):
                group = self._retries.take_group(model)
                for sample in group:
                    self._leaves(sample)
                self._run(replica, group, RETRY, now_ns)
                return True
        return False

    def _end(self, sample: Sample, now_ns: int) -> None:
        if sample.degraded_by:
            self._answer(sample, now_ns)
        else:
            self._answered(sample)

    def _share_among_the_living(self) -> None:
        for pipeline in self.pipelines:
            pipeline.turns.share_among_the_living(pipeline.gear)

    def _replicas_of(self, model: int) -> range:
        return range(self._model_begin[model], self._model_begin[model + 1])

    def _write(self, now_ns: int, kind: Decision, a: int, b: int, c: int) -> None:
        if self._log is not None:
            self._log((now_ns, kind.value, a, b, c))
