"""Metrics of a server of language models, in Prometheus format."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from prometheus_client import ProcessCollector

from gearshift.observability.families import Families, Histogram
from gearshift.observability.glance import Glance, summed
from gearshift.observability.metrics import Totals

OUTCOMES = "answered", "degraded", "late", "failed", "refused", "cancelled"
SWAPS = "taken_over", "failed"
REASONS = "queue_full", "late", "not_ready", "no_engine", "deadline"


class LanguageServing(Protocol):
    """Values read from the service when metrics are requested."""

    @property
    def ready(self) -> bool: ...

    @property
    def degraded(self) -> list[str]: ...

    @property
    def gear(self) -> int: ...

    @property
    def pinned(self) -> bool: ...

    @property
    def load(self) -> float: ...

    @property
    def waiting(self) -> int: ...

    @property
    def open_requests(self) -> int: ...

    def outstanding(self, replica: int) -> int: ...

    def replicas_ready(self, model: int) -> int: ...


class LanguageMetrics(Families):
    """Times are in seconds from arrival; tokens are those that engines gave."""

    deadlines = None
    """Sending times that are not trusted are not counted."""

    def __init__(self, operator: str, models: Sequence[str], replicas: Sequence[str]) -> None:
        super().__init__()
        ProcessCollector(registry=self.registry)
        self._operator, self._models, self._replicas = operator, models, replicas
        self._requests = self.counter("gearshift_requests", "Requests by outcome.", "operator", "outcome")
        self._refused = self.counter("gearshift_dropped", "Requests refused, by why.", "reason", known=REASONS)
        self._answers = self.counter("gearshift_answers", "Answers by model.", "model", known=models)
        self._latency = self.histogram("gearshift_request_latency_seconds", "From arrival to the last token.", "model")
        self._ttft = self.histogram("gearshift_ttft_seconds", "From arrival to the first token that is shown.", "model")
        self._decision = self.histogram(
            "gearshift_decision_seconds", "From the answering model's first token until it may be shown.", "model"
        )
        self._per_token = self.histogram(
            "gearshift_per_token_seconds", "Mean time between an answer's tokens.", "model"
        )
        self.prompt = self.counter(
            "gearshift_prompt_tokens", "Tokens of prompts that engines worked through.", "model", known=models
        )
        self._output = self.counter(
            "gearshift_output_tokens", "Tokens of answers that were given.", "model", known=models
        )
        self.discarded = self.counter(
            "gearshift_discarded_tokens", "Tokens of stages that were not sure.", "model", known=models
        )
        self.restarts = self.counter("gearshift_restarts", "Engines that ended or were lost.", "replica")
        self.failures = self.counter(
            "gearshift_engine_failures", "Tries at engines that failed, by why.", "model", "replica", "reason"
        )
        self.changes = self.counter("gearshift_engine_changes", "Engines that said they are others.", "replica")
        self.shifts = self.counter("gearshift_shifts", "Gear shifts.").labels()
        self.swaps = self.counter("gearshift_swaps", "Swaps of the plan by outcome.", "outcome", known=SWAPS)
        self._last_answer_s = 0.0
        self._serving: LanguageServing | None = None
        self._last_gear = 0
        self._add_gauges()
        self._ready = self.gauge("gearshift_replicas_ready", "Engines that serve.", "model")
        self.drift = self.gauge("gearshift_profile_drift", "1 while a model's answers are not as recorded.", "model")
        self._sent = self.gauge("gearshift_outstanding", "Requests that an engine has.", "replica")
        for outcome in OUTCOMES:
            self._requests.labels(operator, outcome)
        for model in models:
            for times in (self._latency, self._ttft, self._decision, self._per_token):
                times.labels(model)

    def _add_gauges(self) -> None:
        def gauge(name: str, text: str, value: Callable[[LanguageServing], float]) -> None:
            self.gauge(name, text).set_function(lambda: 0.0 if self._serving is None else value(self._serving))

        gauge("gearshift_ready", "1 when requests are let in and answered.", lambda of: of.ready)
        gauge("gearshift_degraded", "1 while a model has no engine that answers.", lambda of: bool(of.degraded))
        gauge("gearshift_gear", "The gear in force, from 0.", lambda of: of.gear)
        gauge("gearshift_last_gear", "The plan's last gear, the cheapest.", lambda _: self._last_gear)
        gauge("gearshift_gear_pinned", "1 while an operator keeps the gear.", lambda of: of.pinned)
        gauge("gearshift_load", "The load that was measured last, in the plan's unit.", lambda of: of.load)
        gauge("gearshift_waiting_requests", "Requests that wait for an engine.", lambda of: of.waiting)
        gauge("gearshift_open_requests", "Requests whose answer has not ended.", lambda of: of.open_requests)

    @property
    def is_watching(self) -> bool:
        return self._serving is not None

    def watch(
        self, serving: LanguageServing, last_gear: int, models: Sequence[str] = (), replicas: Sequence[str] = ()
    ) -> None:
        """Tell of this service from now on; with its models and replicas where another plan took over."""
        self._serving, self._last_gear = serving, last_gear
        models, replicas = models or self._models, replicas or self._replicas
        self._models = list(dict.fromkeys((*self._models, *models)))
        self.drift.clear()
        for model in models:
            self.drift.labels(model).set(0)
        self._ready.clear()
        for number, model in enumerate(models):
            self._ready.labels(model).set_function(partial(serving.replicas_ready, number))
        self._sent.clear()
        for number, replica in enumerate(replicas):
            self._sent.labels(replica).set_function(partial(serving.outstanding, number))
            self.restarts.labels(replica)
            self.changes.labels(replica)

    def answered(
        self, model: str, outcome: str, *, ttft_s: float, decision_s: float, total_s: float, output_tokens: int
    ) -> None:
        self._requests.labels(self._operator, outcome).inc()
        self._answers.labels(model).inc()
        self._last_answer_s = time.time()
        self._ttft.labels(model).observe(ttft_s)
        self._decision.labels(model).observe(decision_s)
        self._latency.labels(model).observe(total_s)
        self._output.labels(model).inc(output_tokens)
        if output_tokens > 1:
            self._per_token.labels(model).observe(max(0.0, total_s - ttft_s) / (output_tokens - 1))

    def ended(self, outcome: str) -> None:
        """A request without an answer."""
        self._requests.labels(self._operator, outcome).inc()

    def refused(self, reason: str) -> None:
        self.ended("refused")
        self._refused.labels(reason).inc()

    def totals(self, operator: str) -> Totals:
        """Sums over the requests that were answered."""
        seconds = [self._latency.labels(model) for model in self._models]
        return Totals(
            succeeded=sum(sum(one.counts) for one in seconds),
            succeeded_s=sum(one.sum for one in seconds),
            failed=int(self._requests.labels(operator, "failed").value),
            rows=sum(sum(one.counts) for one in seconds),
            last_answer_s=self._last_answer_s,
        )

    def glance(self, operator: str) -> Glance:
        def counts(times: Histogram) -> list[int]:
            return summed([times.labels(model).counts for model in self._models])

        return Glance(
            outcomes=self._requests.by_last(operator),
            latency=counts(self._latency),
            dropped=self._refused.by_last(),
            answers_by_model=self._answers.by_last(),
            ttft=counts(self._ttft),
            per_token=counts(self._per_token),
            output_tokens=sum(self._output.by_last().values()),
        )
