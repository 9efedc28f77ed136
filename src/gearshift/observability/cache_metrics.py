"""Metrics of the audit and the adaptation of learned caches."""

from collections.abc import Mapping

from gearshift.observability.families import Families

COUNTED = {
    "learnt": ("gearshift_cache_learnt", "Answers of learned caches that were learnt from."),
    "audited": ("gearshift_cache_audited", "Answers of learned caches that were audited."),
    "disagreed": ("gearshift_cache_disagreed", "Audited answers with which the whole model disagrees."),
    "base_runs": ("gearshift_cache_base_runs", "Samples that ran through the whole model beside serving."),
    "partial_runs": ("gearshift_cache_partial_runs", "Samples that ran through a part of the model beside serving."),
    "base_run_s": ("gearshift_cache_base_run_seconds", "Time that runs through the model beside serving took."),
    "reused": ("gearshift_cache_labels_reused", "Answers of misses that were taken as labels."),
    "dropped": ("gearshift_cache_dropped", "Answers that were to be audited or learnt from, and were not."),
    "unusable": ("gearshift_cache_unusable", "Drawn samples that the whole model answers with NaN or infinity."),
    "retraining_s": ("gearshift_cache_retraining_seconds", "Time that retraining took."),
}

RETRAININGS = "swapped", "set", "worse", "diverged", "out_of_memory", "failed"


class CacheMetrics:
    """Counters and gauges by model; counts come from a process that may restart."""

    def __init__(self, families: Families | None = None) -> None:
        of = families or Families()
        self._counters = {name: of.counter(metric, text, "model") for name, (metric, text) in COUNTED.items()}
        self.not_finite = of.counter("gearshift_cache_not_finite", "Lookups that met NaN or infinity.", "model")
        self.version = of.gauge("gearshift_cache_version", "The version of learned caches in use.", "model")
        self.off = of.gauge(
            "gearshift_cache_off", "1 where audits have switched a learned cache off.", "model", "segment"
        )
        self.attended = of.gauge(
            "gearshift_cache_attended", "1 while a process attends to a model's learned caches.", "model"
        )
        self.retrainings = of.counter(
            "gearshift_cache_retrainings", "Retrainings by what became of them.", "model", "outcome"
        )
        self.disagreement = of.gauge(
            "gearshift_cache_disagreement_ratio",
            "Share of a learned cache's hits with which the whole model disagrees.",
            "model",
            "segment",
            "bound",
        )
        self.restarts = of.counter(
            "gearshift_cache_attendant_restarts", "Processes of audit and adaptation that ended.", "model"
        )

    def begin(self, model: str) -> None:
        for counter in (*self._counters.values(), self.not_finite, self.restarts):
            counter.labels(model)
        for outcome in RETRAININGS:
            self.retrainings.labels(model, outcome)

    def count(self, model: str, before: Mapping[str, float], after: Mapping[str, float]) -> None:
        for name, counter in self._counters.items():
            counter.labels(model).inc(max(0.0, after.get(name, 0.0) - before.get(name, 0.0)))

    def dropped(self, model: str) -> None:
        self._counters["dropped"].labels(model).inc()
