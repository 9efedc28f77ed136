"""Metrics in Prometheus format, in a registry of their own."""

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import Gauge, ProcessCollector

from gearshift.observability.adapting_metrics import AdaptingFamilies, AdaptingMetrics
from gearshift.observability.cache_metrics import CacheMetrics
from gearshift.observability.core_metrics import CoreMetrics
from gearshift.observability.deadline_metrics import DeadlineMetrics
from gearshift.observability.families import SECONDS, Count, Distribution, Families
from gearshift.observability.glance import Glance, NodeSums, summed
from gearshift.policies.batching import AUDIT, BULK, DEADLINE, FULL, LONGEST_WAIT, REFINES, RETRY
from gearshift.request import Answer, ItemFacts

BATCH_SIZES = tuple(float(1 << power) for power in range(11))
REASONS = {
    FULL: "full",
    LONGEST_WAIT: "longest_wait",
    RETRY: "retry",
    AUDIT: "audit",
    DEADLINE: "deadline",
    REFINES: "refine",
    BULK: "bulk",
}
OUTCOMES = "answered", "degraded", "late", "failed"
"""Outcomes of requests that have an answer."""
NO_ANSWER = "refused", "cancelled"
SWAPS = "taken_over", "compared", "failed"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Watched(Protocol):
    """Values read from a pipeline when metrics are requested."""

    gear: int
    pinned: bool
    rate_qps: float


class Serving(Protocol):
    """Values read from a service, or from its part of one pipeline, when metrics are requested."""

    @property
    def ready(self) -> bool:
        """Whether requests of the pipeline are accepted and can be answered."""
        ...

    @property
    def degraded(self) -> list[str]:
        """The models of the pipeline without a replica that answers."""
        ...

    @property
    def waiting(self) -> int:
        """The samples of the pipeline that wait."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over a pipeline's requests; `last_answer_s` is Unix time, 0 before the first."""

    succeeded: int = 0
    succeeded_s: float = 0.0
    failed: int = 0
    failed_s: float = 0.0
    queued: int = 0
    queued_s: float = 0.0
    rows: int = 0
    batches: int = 0
    run_s: float = 0.0
    last_answer_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Label values known at the start: their counters begin at 0, as PromQL's `rate` needs.

    `operator` is the name of a pipeline, and `models`, `stages` and `reasons` are its own.
    """

    operator: str
    models: Sequence[str]
    replicas: Sequence[str]
    devices: Sequence[str]
    stages: int
    reasons: Sequence[str]


LAST_SEGMENT = 999
"""Higher exit segments share this label, so that a model cannot create labels without end."""


class NodeMetrics:
    """The items of pipelines of several nodes, by node."""

    def __init__(self, of: Families) -> None:
        by = "operator", "node"
        self._items = of.counter("gearshift_node_items", "Items that ended, by outcome.", *by, "model", "outcome")
        self._seconds = of.histogram("gearshift_node_seconds", "Time of an item in queues and batches.", *by)
        self._nodes: dict[str, Sequence[str]] = {}

    def begin(self, operator: str, nodes: Sequence[str]) -> None:
        self._nodes[operator] = nodes
        for node in nodes:
            self._seconds.labels(operator, node)
            self._items.labels(operator, node, "", "failed")

    def ended(self, operator: str, item: ItemFacts) -> None:
        self._items.labels(operator, item.node, item.model, "failed" if item.error else "answered").inc()
        self._seconds.labels(operator, item.node).observe(item.queue_s + item.run_s)

    def sums(self, operator: str) -> dict[str, NodeSums]:
        sums = {}
        for node in self._nodes.get(operator, ()):
            seconds = self._seconds.labels(operator, node)
            failed = self._items.by_last(operator, node)["failed"]
            sums[node] = NodeSums(items=sum(seconds.counts), failed=failed, seconds=seconds.sum)
        return sums


class Metrics(Families):
    """The metrics of a server; where it serves several `pipelines`, their own have the label `operator`."""

    def __init__(self, pipelines: Sequence[str] = ()) -> None:
        super().__init__()
        self._by = by = ("operator",) if len(pipelines) > 1 else ()
        ProcessCollector(registry=self.registry)
        adapting = AdaptingFamilies(self, by)
        self._adapting_of = {name: AdaptingMetrics(adapting, self._own(name)) for name in pipelines or ("",)}
        self.caches = CacheMetrics(self)
        self._requests = self.counter("gearshift_requests", "Requests by outcome.", "operator", "outcome")
        self._latency = self.histogram(
            "gearshift_request_latency_seconds", "From a request's arrival to its answer.", "operator", "outcome"
        )
        self._rows = self.counter("gearshift_rows", "Rows of answered requests.", "operator")
        self.bulk_rows = self.counter(
            "gearshift_bulk_rows", "Rows of bulk work that ended, by outcome.", "operator", "outcome"
        )
        self._exits = self.counter("gearshift_exits", "Rows by the segment after which they left.", "model", "segment")
        self._answered: defaultdict[tuple[str, str], Count] = defaultdict(Count)
        """Rows by pipeline and the model that answered; not published."""
        self._queue = self.histogram("gearshift_queue_seconds", "Time a request waited in queues.", *by)
        self._run = self.histogram("gearshift_run_seconds", "Time a batch held its devices.", "model")
        self._busy = self.counter("gearshift_device_busy_seconds", "Time a device was held by batches.", "device")
        self._batch_size = self.histogram("gearshift_batch_size", "Samples per batch.", "model", buckets=BATCH_SIZES)
        self._batches = self.counter("gearshift_batches", "Batches by why they started.", "model", "reason")
        self._forwarded = self.counter(
            "gearshift_forwarded", "Answered samples that a stage had forwarded.", *by, "stage"
        )
        self._by_time = self.counter(
            "gearshift_rows_by_time", "Rows answered with what they had, as their time to refine ended.", *by
        )
        self.restarts = self.counter("gearshift_restarts", "Workers that ended.", "replica")
        self.failures = self.counter(
            "gearshift_replica_failures", "Batches that failed as a whole, by why.", "model", "replica", "reason"
        )
        self._late = self.counter("gearshift_late", "Requests answered after their deadline.", "operator")
        self._dropped = self.counter("gearshift_dropped", "Requests refused, by why.", *by, "reason")
        self._ready = self.gauge("gearshift_ready", "1 when requests are let in and answered.")
        self._degraded = self.gauge("gearshift_degraded", "1 while some model has no replica that answers.")
        self._last_gear = self.gauge("gearshift_last_gear", "The plan's last gear, the cheapest.", *by)
        self.replicas = self.gauge("gearshift_replicas_ready", "Replicas that serve.", "model")
        self.swaps = self.counter("gearshift_swaps", "Swaps by what became of them.", "outcome", known=SWAPS)
        self._gear = self.gauge("gearshift_gear", "The gear in force, from 0.", *by)
        self._accuracy = self.gauge(
            "gearshift_predicted_accuracy", "The accuracy that the plan predicts of the gear in force.", *by
        )
        self._pinned = self.gauge("gearshift_gear_pinned", "1 while an operator keeps the gear.", *by)
        self._load = self.gauge("gearshift_load_qps", "Arrivals per second that were measured last.", *by)
        self._waiting = self.gauge("gearshift_waiting_requests", "Samples that wait in queues.", *by)
        self.deadlines, self.cores, self.nodes = DeadlineMetrics(self), CoreMetrics(self), NodeMetrics(self)
        self._last_answer_s: dict[str, float] = {}
        self._of_answers: dict[tuple[str, str], tuple[Count, Distribution, Count, Distribution]] = {}
        self._of_rows: dict[tuple[str, str, int, int], list[Count]] = {}
        self._serving: dict[str, Serving] = {}
        self._models: dict[str, set[str]] = defaultdict(set)
        """The models of each pipeline, in any plan that was in force."""

    @property
    def adapting(self) -> AdaptingMetrics:
        """Those of the only pipeline, or of the first."""
        return next(iter(self._adapting_of.values()))

    def adapting_of(self, operator: str) -> AdaptingMetrics:
        return self._adapting_of.get(operator) or self.adapting

    def watch(
        self,
        pipeline: Watched,
        serving: Serving,
        *,
        operator: str = "",
        last_gear: int,
        accuracies: Sequence[float] = (),
    ) -> None:
        """Read a pipeline, named `operator`, and `serving` whenever metrics are requested.

        `accuracies` are the plan's predicted accuracy by gear, NaN where unknown.
        """

        def own(family: Gauge) -> Gauge:
            return family.labels(*self._own(operator)) if self._by else family

        self._serving[operator] = serving
        self._ready.set_function(lambda: all(each.ready for each in self._serving.values()))
        self._degraded.set_function(lambda: any(each.degraded for each in self._serving.values()))
        own(self._last_gear).set(last_gear)
        own(self._gear).set_function(lambda: pipeline.gear)
        own(self._accuracy).set_function(lambda: accuracies[pipeline.gear] if accuracies else math.nan)
        own(self._pinned).set_function(lambda: pipeline.pinned)
        own(self._load).set_function(lambda: pipeline.rate_qps)
        own(self._waiting).set_function(lambda: serving.waiting)

    def _own(self, operator: str) -> tuple[str, ...]:
        return (operator,) if self._by else ()

    def begin(self, known: Known) -> None:
        self._models[known.operator].update(known.models)
        for outcome in OUTCOMES:
            self._know_answers(known.operator, outcome)
        for outcome in NO_ANSWER:
            self._requests.labels(known.operator, outcome)
        self._late.labels(known.operator)
        self.bulk_rows.labels(known.operator, "answered")
        for reason in known.reasons:
            self._dropped.labels(*self._own(known.operator), reason)
        for model in known.models:
            self._exits.labels(model, "0")
            self._run.labels(model)
            self._batch_size.labels(model)
            for started in REASONS.values():
                self._batches.labels(model, started)
        for replica in known.replicas:
            self.restarts.labels(replica)
        for device in known.devices:
            self._busy.labels(device)
        self._by_time.labels(*self._own(known.operator))
        for stage in range(known.stages - 1):
            self._forwarded.labels(*self._own(known.operator), str(stage))

    def answered(self, operator: str, answer: Answer, latency_s: float) -> None:
        known = self._of_answers.get((operator, answer.outcome)) or self._know_answers(operator, answer.outcome)
        requests, latency, rows, queue = known
        requests.inc()
        latency.observe(latency_s)
        queue.observe(answer.queue_s)
        rows.inc(len(answer.rows))
        self._last_answer_s[operator] = time.time()
        for row in answer.rows:
            of_row = operator, row.model, row.exit_segment, row.stage
            for count in self._of_rows.get(of_row) or self._know_row(*of_row):
                count.inc()
            if row.by_time:
                self._by_time.labels(*self._own(operator)).inc()

    def _know_answers(self, operator: str, outcome: str) -> tuple[Count, Distribution, Count, Distribution]:
        """Look up the labels of these answers once, as that is slow."""
        known = (
            self._requests.labels(operator, outcome),
            self._latency.labels(operator, outcome),
            self._rows.labels(operator),
            self._queue.labels(*self._own(operator)),
        )
        self._of_answers[operator, outcome] = known
        return known

    def _know_row(self, operator: str, model: str, exit_segment: int, stage: int) -> list[Count]:
        """As `_know_answers`, for rows; segments that no model can have are not cached."""
        counts = [self._exits.labels(model, str(min(exit_segment, LAST_SEGMENT))), self._answered[operator, model]]
        own = self._own(operator)
        counts += [self._forwarded.labels(*own, str(before)) for before in range(stage)]
        if exit_segment <= LAST_SEGMENT:
            self._of_rows[operator, model, exit_segment, stage] = counts
        return counts

    def finished(self, operator: str, outcome: str) -> None:
        self._requests.labels(operator, outcome).inc()

    def late(self, operator: str) -> None:
        self._late.labels(operator).inc()

    def refused(self, operator: str, reason: str) -> None:
        self.finished(operator, "refused")
        self._dropped.labels(*self._own(operator), reason).inc()

    def batch_started(self, model: str, size: int, reason: int) -> None:
        self._batch_size.labels(model).observe(size)
        self._batches.labels(model, REASONS.get(reason, str(reason))).inc()

    def batch_finished(self, model: str, devices: Sequence[str], run_s: float) -> None:
        self._run.labels(model).observe(run_s)
        for device in devices:
            self._busy.labels(device).inc(run_s)

    def totals(self, operator: str) -> Totals:
        """Sums over the pipeline's requests, and over the batches of its models."""
        others = set().union(*self._models.values()) - self._models[operator]
        sums: dict[tuple[str, bool], float] = defaultdict(float)
        for family in self.registry.collect():
            for sample in family.samples:
                labels = sample.labels
                if labels.get("operator", operator) == operator and labels.get("model") not in others:
                    sums[sample.name, labels.get("outcome") == "failed"] += sample.value
        latency = "gearshift_request_latency_seconds"
        return Totals(
            succeeded=int(sums[f"{latency}_count", False]),
            succeeded_s=sums[f"{latency}_sum", False],
            failed=int(sums[f"{latency}_count", True]),
            failed_s=sums[f"{latency}_sum", True],
            queued=int(sums["gearshift_queue_seconds_count", False]),
            queued_s=sums["gearshift_queue_seconds_sum", False],
            rows=int(sums["gearshift_rows_total", False]),
            batches=int(sums["gearshift_run_seconds_count", False]),
            run_s=sums["gearshift_run_seconds_sum", False],
            last_answer_s=self._last_answer_s.get(operator, 0.0),
        )

    def glance(self, operator: str) -> Glance:
        """Sums of the pipeline, without those of the process."""
        known = [self._of_answers[key] for key in self._of_answers if key[0] == operator]
        return Glance(
            outcomes=self._requests.by_last(operator),
            latency=summed([latency.counts for _, latency, _, _ in known]) or [0] * (len(SECONDS) + 1),
            late=self._late.labels(operator).value,
            dropped=self._dropped.by_last(*self._own(operator)),
            answers_by_model={model: self._answered[operator, model].value for model in self._models[operator]},
            busy_s=self._busy.by_last(),
            nodes=self.nodes.sums(operator),
        )
