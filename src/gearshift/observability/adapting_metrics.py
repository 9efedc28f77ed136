"""Metrics of how far load, run times and answers have moved from what the plan was made for."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class AdaptingMetrics:
    """Gauges and counters in `registry`; those labelled by plan are cleared at a swap."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self.load_distance = Gauge(
            "gearshift_load_distance", "How far measured load is from the planned, 0 to 1.", registry=registry
        )
        self.load_drift = Gauge("gearshift_load_drift", "1 while load has drifted.", registry=registry)
        self.load_factor = Gauge("gearshift_load_factor", "What measured load is multiplied by.", registry=registry)
        self.load_factor.set(1)
        self.replans = Counter(
            "gearshift_replans", "Plans made anew by what became of them.", ["outcome"], registry=registry
        )
        for outcome in ("offered", "swapped", "not_better", "failed"):
            self.replans.labels(outcome)
        self.run_time = Gauge(
            "gearshift_run_time_ratio",
            "Observed time of batches over the profiled, of the latest ten seconds.",
            ["model", "batch_size"],
            registry=registry,
        )
        self.profile_drift = Gauge(
            "gearshift_profile_drift", "1 while a model's run times are not as profiled.", ["model"], registry=registry
        )
        self.audits = Counter(
            "gearshift_audits", "Early answers by what their audit said.", ["outcome"], registry=registry
        )
        for outcome in ("agreed", "disagreed"):
            self.audits.labels(outcome)
        self.disagreement = Gauge(
            "gearshift_disagreement_ratio",
            "Share of early answers with which the strongest model disagrees.",
            ["gear", "stage", "bound"],
            registry=registry,
        )
        self.disagreement_alarm = Gauge(
            "gearshift_disagreement_alarm",
            "1 above the planned disagreement, -1 below it, else 0.",
            ["gear", "stage"],
            registry=registry,
        )

    def forget_plan(self) -> None:
        for gauge in (self.run_time, self.profile_drift, self.disagreement, self.disagreement_alarm):
            gauge.clear()
        self.load_distance.set(0)
        self.load_drift.set(0)
        self.load_factor.set(1)
