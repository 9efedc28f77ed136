"""Metrics of how far load, run times and answers have moved from what the plan was made for."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge


class AdaptingMetrics:
    """Gauges and counters in `registry`; those labelled by plan are cleared at a swap."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        gauge, counter = partial(Gauge, registry=registry), partial(Counter, registry=registry)
        self.load_distance = gauge("gearshift_load_distance", "How far measured load is from the planned, 0 to 1.")
        self.load_drift = gauge("gearshift_load_drift", "1 while load has drifted.")
        self.load_factor = gauge("gearshift_load_factor", "What measured load is multiplied by.")
        self.load_factor.set(1)
        self.replans = counter("gearshift_replans", "Plans made anew by what became of them.", ["outcome"])
        for outcome in ("offered", "swapped", "not_better", "failed"):
            self.replans.labels(outcome)
        self.run_time = gauge(
            "gearshift_run_time_ratio",
            "Observed time of batches over the profiled, of the latest ten seconds.",
            ["model", "batch_size"],
        )
        self.profile_drift = gauge(
            "gearshift_profile_drift", "1 while a model's run times are not as profiled.", ["model"]
        )
        self.audits = counter("gearshift_audits", "Early answers by what their audit said.", ["outcome"])
        for outcome in ("agreed", "disagreed"):
            self.audits.labels(outcome)
        self.disagreement = gauge(
            "gearshift_disagreement_ratio",
            "Share of early answers with which the strongest model disagrees.",
            ["gear", "stage", "bound"],
        )
        self.disagreement_alarm = gauge(
            "gearshift_disagreement_alarm", "1 above the planned disagreement, -1 below it, else 0.", ["gear", "stage"]
        )

    def forget_plan(self) -> None:
        for gauge in (self.run_time, self.profile_drift, self.disagreement, self.disagreement_alarm):
            gauge.clear()
        self.load_distance.set(0)
        self.load_drift.set(0)
        self.load_factor.set(1)
