"""The router: takes all events of a plan's pipelines and makes all decisions; no clock, no I/O.

It decides at five points: a stage ended, an executor is free, the meter ticks, a request arrives,
a timer ends. At each it calls the policies and then starts batches on the devices it touched.
The simulator's kernel does the same in the same order (`simulator/kernel`); the conformance test
compares their logs.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

from gearshift.decisions import Decision, Ending
from gearshift.errors import require
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.next_step import ANSWER
from gearshift.request import NOT_BULK, Sample
from gearshift.runtime.faults.ejections import OnChange
from gearshift.runtime.faults.failing import FailingReplicas, OnFailure
from gearshift.runtime.faults.retries import Retries
from gearshift.runtime.router.by_deadline import DeadlineQueues, DeadlineRules, end_early
from gearshift.runtime.router.cascades import Cascades
from gearshift.runtime.router.choosing import Chooser
from gearshift.runtime.router.decision_log import DecisionLog, TakeRow
from gearshift.runtime.router.devices import Slowdown
from gearshift.runtime.router.dispatch import Dispatch, Start
from gearshift.runtime.router.faults import Faults
from gearshift.runtime.router.flows import FIRST_ITEM, WITHDRAWN, Answered, Flows, Memory, Passing
from gearshift.runtime.router.pipeline import Pipeline

Shifted = Callable[[int, int, int], None]


class Router:
    """State of the pipelines, and of the queues and devices that they share.

    `start(replica, samples, reason)` hands a batch to the backend; `answered(sample)` hands back
    each request row once, with its result or error; `log(row)` and `shifted(pipeline, from, to)`
    report decisions. `retries` decides what happens to samples whose replica is lost, `deadlines`
    what clients' deadlines do; without it batches count as taking no time, and late answers are
    wanted. `failed` and `changed` are told of failing replicas, and slow ones get less if the router
    `weighs` them (`FailingReplicas`).

    Rows of a pipeline of several nodes become items, numbered by `numbers`; `passing` says what
    flows along the edges between them, `item_ended(item)` takes each, and `memory` counts what they hold.
    """

    def __init__(
        self,
        tables: PlanTables,
        *,
        start: Start,
        answered: Answered,
        log: TakeRow | None = None,
        shifted: Shifted | None = None,
        retries: Retries | None = None,
        deadlines: DeadlineRules | None = None,
        passing: Passing | None = None,
        item_ended: Answered | None = None,
        numbers: Iterator[int] | None = None,
        memory: Memory | None = None,
        failed: OnFailure | None = None,
        changed: OnChange | None = None,
        weighs: bool = False,
    ) -> None:
        self._tables = tables
        self._answered, self._shifted = answered, shifted
        self._log = DecisionLog(log)
        self._retries = retries or Retries(tables.models)
        self._retries.by_objective = tables.refine.refines
        self._model_of: list[int] = tables.replica_model.tolist()
        self._model_begin: list[int] = tables.model_begin.tolist()
        self._lost = [False] * len(tables.replica_ids)
        self.failing = failing = FailingReplicas(tables, self._lost, failed=failed, changed=changed, weighs=weighs)
        self.pipelines = tuple(
            Pipeline(tables, number, failing.skipped, failing.weigh) for number in range(len(tables.pipelines))
        )
        self._pipeline_of: list[Pipeline] = [self.pipelines[number] for number in tables.pipeline_of.tolist()]
        self._cascades = Cascades(tables, self._pipeline_of)
        rules = deadlines or DeadlineRules(tables, late="answer")
        self._dispatch = Dispatch(
            tables,
            self.pipelines,
            self._pipeline_of,
            rules,
            self._retries,
            failing,
            self._log,
            start=start,
            end=self._drop,
            release=self._release,
        )
        self.next_timer_ns = self._dispatch.next_timer_ns
        self.by_deadline: DeadlineQueues = self._dispatch.by_deadline
        if tables.chooses:
            dispatch = self._dispatch
            self._cascades.chooser = Chooser(
                tables, self._pipeline_of, rules, dispatch.settings, dispatch.queues, dispatch.devices, self._log
            )
        self._faults = Faults(
            tables,
            self.pipelines,
            self._cascades,
            self._dispatch,
            self._retries,
            failing,
            self._lost,
            route=self._route,
            answer=self._answer,
            done=self._done,
        )
        self.lacking, self.can_answer = self._faults.lacking, self._faults.can_answer
        self._flows: Flows | None = None
        if tables.graph.is_graph:
            require(passing is not None, "the plan has pipelines of several nodes, and nothing to pass data between")
            assert passing
            self._flows = Flows(
                tables,
                passing,
                self._cascades,
                self._dispatch,
                self._log,
                numbers=numbers or itertools.count(FIRST_ITEM),
                route=self._route,
                answered=answered,
                told=item_ended,
                memory=memory,
            )

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
        return sum([pipeline.waiting for pipeline in self.pipelines])

    # Events. At the same instant they are handled in this order.

    def stage_ended(self, replica: int, samples: Sequence[Sample], now_ns: int) -> None:
        """Answer or forward samples; start batches here only if theirs goes on."""
        model = self._model_of[replica]
        whole, why = self._dispatch.leave_batch(replica, samples, now_ns), ""
        without = [sample for sample in samples if sample.error or sample.unanswered]
        answers = len(without) < len(samples)
        if whole:
            why = "" if answers else self.failing.why_failed(replica, samples)
            if not why:
                self._faults.judge(replica, samples, "", now_ns, answers=answers)
            if self._dispatch.slowdown.on and not without:
                self._dispatch.learn_slowdown(replica, now_ns)
        elif answers:
            self.failing.partly_ended(replica)
        for sample in samples:
            if sample.over:
                continue
            if sample.error or sample.unanswered:
                if not why or not self._faults.goes_on(sample, replica, now_ns):
                    self._faults.end_failed(sample, model, now_ns)
                continue
            sample.visited |= 1 << model
            sample.model = model
            sample.tried_again, sample.raised_at = False, -1
            following = self._cascades.next_step(sample, now_ns)
            if following == ANSWER:
                self._answer(sample, now_ns)
            elif not self.by_deadline.may_forward(sample, following, now_ns):
                self._answer(end_early(sample, Ending.DEGRADED), now_ns, Decision.DEGRADE)
            else:
                sample.stage += 1
                self._route(sample, following, now_ns)
        if why:
            self._faults.judge(replica, samples, why, now_ns)
        if self._flows is not None:
            self._flows.go_on(now_ns)
        if not whole:
            self._start_on_touched(now_ns)

    def executor_free(self, replica: int, now_ns: int) -> None:
        self._dispatch.free(replica)
        self._dispatch.touch_first(replica)
        self._start_on_touched(now_ns)

    def tick(self, now_ns: int) -> None:
        shifted, slowdown = False, self._dispatch.slowdown
        slowdown.ticked()
        for pipeline in self.pipelines:
            gear = pipeline.tick(self._longest_first_stage_queue(pipeline), now_ns, slowdown.of_load)
            shifted |= self._shift(pipeline, gear, now_ns)
            pipeline.scaling.ticked(pipeline.rate_qps)
        if self.failing.ticked(now_ns):
            self._faults.share_anew(now_ns)
            shifted = True
        if shifted:
            self._start_on_all(now_ns)

    def pin(self, gear: int, now_ns: int, pipeline: int = 0) -> None:
        self.pipelines[pipeline].pinned = True
        if self._shift(self.pipelines[pipeline], gear, now_ns):
            self._start_on_all(now_ns)

    def take_meter(self, before: "Router", now_ns: int) -> None:
        """Take over the meters of pipelines of `before` with the same names, and their arrivals' gears."""
        by_name = {pipeline.name: pipeline for pipeline in before.pipelines}
        self._dispatch.slowdown.take_over_from(before._dispatch.slowdown)
        for pipeline in self.pipelines:
            if pipeline.name in by_name:
                self._shift(pipeline, pipeline.take_meter(by_name[pipeline.name], self.slowdown.of_load), now_ns)
        self._start_on_all(now_ns)

    def arrive(self, samples: Sequence[Sample], now_ns: int) -> None:
        """Meter and queue a request's samples; refuse them if no replica can be in time.

        Bulk work is not metered, and has queues of its own.
        """
        request = samples[0].request
        pipeline, flows = self.pipelines[request.pipeline], self._flows
        if flows is not None and pipeline.is_graph:
            late = flows.refuses(samples[0], pipeline, now_ns)
        else:
            first = self._cascades.first_model(pipeline.first_node, request, now_ns)
            late = self.by_deadline.misses_anyway(request, first, now_ns)
        self.failing.budget.arrived(now_ns, len(samples))
        for sample in samples:
            if request.bulk_gear == NOT_BULK:
                pipeline.meter.arrived(now_ns)
            if late:
                self._log.write(now_ns, Decision.REFUSE, sample.sequence, Ending.INFEASIBLE, 0)
                self._answered(end_early(sample, Ending.INFEASIBLE))
            elif flows is not None and pipeline.is_graph:
                flows.arrive(sample, pipeline, now_ns)
            else:
                sample.node = pipeline.first_node
                self._route(sample, self._cascades.begin(sample, now_ns), now_ns)
        self._start_on_touched(now_ns)

    def timer(self, now_ns: int) -> None:
        """Start batches whose longest wait is over; drop samples that can no longer be on time."""
        self._dispatch.start_on_due(now_ns)
        if self._retries.count:
            ended = self._retries.end_expired(now_ns)
            self._dispatch.waits_no_more(ended)
            for sample in ended:
                self._faults.end(sample, now_ns)
        if self._flows is not None and self._flows.ended:
            self._start_on_touched(now_ns)

    @property
    def unfinished(self) -> bool:
        """Whether an event has left work for `more`, so that others get their turn."""
        return self._flows is not None and self._flows.unfinished

    def more(self, now_ns: int) -> None:
        assert self._flows is not None
        self._flows.more(now_ns)
        self._start_on_touched(now_ns)

    # Faults.

    def replicas_lost(self, replicas: Sequence[int], now_ns: int) -> None:
        """Move queued samples to other replicas; run running ones again, apart from others."""
        self._faults.replicas_lost(replicas, now_ns)
        self._start_on_touched(now_ns)

    def replica_ready(self, replica: int, now_ns: int) -> None:
        self._faults.replica_ready(replica, now_ns)
        self._start_on_touched(now_ns)

    def cancel(self, samples: Sequence[Sample], now_ns: int) -> None:
        """Remove waiting samples from queues; running ones go on, but are not forwarded."""
        for sample in samples:
            sample.error = sample.error or WITHDRAWN
            if sample.scope is not None and self._flows is not None:
                self._flows.cancel(sample, now_ns)
            else:
                self._dispatch.withdraw(sample, now_ns)
        self._start_on_touched(now_ns)

    def run_if_idle(self, replica: int, sample: Sample, reason: int, now_ns: int) -> bool:
        """Run a sample outside meter and queues, if the replica's devices have nothing to do."""
        return self._dispatch.run_if_idle(replica, sample, reason, now_ns)

    @property
    def slowdown(self) -> Slowdown:
        return self._dispatch.slowdown

    def queue_lengths(self) -> list[int]:
        return self._dispatch.lengths()

    def running_lengths(self) -> list[int]:
        """Samples without a result in each replica's batch."""
        return [len(samples) for samples in self._dispatch.running]

    # Steps.

    def _answer(self, sample: Sample, now_ns: int, kind: Decision = Decision.ANSWER) -> None:
        if self._log.wanted:
            bulk_gear = sample.request.bulk_gear
            gear = self._pipeline_of[sample.node].gear if bulk_gear == NOT_BULK else bulk_gear
            self._log.write(now_ns, kind, sample.sequence, sample.model, gear)
        self._done(sample)

    def _done(self, sample: Sample) -> None:
        """An item in a graph goes on, once all samples of its event have been decided on."""
        if self._flows is None or sample.scope is None:
            self._answered(sample)
        else:
            self._flows.ended.append(sample)

    def _route(self, sample: Sample, model: int, now_ns: int) -> None:
        bulk = sample.request.bulk_gear != NOT_BULK
        replica = self._dispatch.bulk.choose(model) if bulk else self._pipeline_of[sample.node].turns.choose(model)
        if replica >= 0:
            (self._dispatch.queue_bulk if bulk else self._dispatch.queue)(sample, replica, now_ns)
        elif failing := self.failing.living(model):
            self._faults.route_past(sample, model, failing, now_ns)
        elif self._retries.keep(sample, model, now_ns):
            self._dispatch.waits((sample,))
        else:
            self._faults.end(sample, now_ns)

    def _start_on_touched(self, now_ns: int) -> None:
        """Start batches; then those of samples that waited for a replica whose probe has started."""
        start = self._dispatch.start_on_touched if self._flows is None else self._start_and_go_on
        start(now_ns)
        while self.failing.probes:
            self.failing.probes.clear()
            self._faults.share_anew(now_ns)
            start(now_ns)

    def _start_and_go_on(self, now_ns: int) -> None:
        """Start batches; where samples are dropped meanwhile, what follows from that, too."""
        flows = self._flows
        assert flows is not None
        while True:
            flows.go_on(now_ns)
            self._dispatch.start_on_touched(now_ns)
            if not flows.ended:
                break
        flows.begin_event()

    def _start_on_all(self, now_ns: int) -> None:
        self._dispatch.touched[:] = range(len(self._tables.device_ids))
        self._start_on_touched(now_ns)

    def _shift(self, pipeline: Pipeline, gear: int, now_ns: int) -> bool:
        before = pipeline.gear
        if gear == before:
            return False
        pipeline.shift(gear)
        self._dispatch.settings.shift()
        self._log.write(now_ns, Decision.SHIFT, before, gear, pipeline.number)
        if self._shifted is not None:
            self._shifted(pipeline.number, before, gear)
        self._faults.place_stranded(now_ns)
        return True

    def _longest_first_stage_queue(self, pipeline: Pipeline) -> int:
        queues = self._dispatch.queues
        return max(len(queues[replica]) for model in pipeline.first_models for replica in self._replicas_of(model))

    def _drop(self, sample: Sample, replica: int, ending: Ending, now_ns: int) -> None:
        self._dispatch.waits_no_more((sample,))
        sample.queue_ns += now_ns - sample.entered_ns
        if ending == Ending.DEGRADED:
            self._answer(end_early(sample, ending), now_ns, Decision.DEGRADE)
        else:
            self._log.write(now_ns, Decision.DROP, sample.sequence, replica, ending)
            self._done(end_early(sample, ending))

    def _release(self, sample: Sample, ending: Ending, now_ns: int) -> None:
        """Answer a row with what it has, as its time to refine ended."""
        kind = Decision.DEGRADE if ending == Ending.DEGRADED else Decision.RELEASE
        self._answer(end_early(sample, ending), now_ns, kind)

    def _replicas_of(self, model: int) -> range:
        return range(self._model_begin[model], self._model_begin[model + 1])
