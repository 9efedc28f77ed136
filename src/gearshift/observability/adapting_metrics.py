"""Metrics of how far load, run times and answers have moved from what the plan was made for."""

from collections.abc import Sequence
from typing import Any

from prometheus_client import Gauge

from gearshift.observability.families import Families


class AdaptingFamilies:
    """Gauges and counters; those of a pipeline have the labels `by` in addition."""

    def __init__(self, of: Families, by: Sequence[str] = ()) -> None:
        self.load_distance = of.gauge(
            "gearshift_load_distance", "How far measured load is from the planned, 0 to 1.", *by
        )
        self.load_drift = of.gauge("gearshift_load_drift", "1 while load has drifted.", *by)
        self.load_factor = of.gauge("gearshift_load_factor", "What measured load is multiplied by.", *by)
        self.replans = of.counter(
            "gearshift_replans",
            "Plans made anew by what became of them.",
            "outcome",
            known=("offered", "swapped", "not_better", "failed"),
        )
        self.run_time = of.gauge(
            "gearshift_run_time_ratio",
            "Observed time of batches over the profiled, of the latest ten seconds.",
            "model",
            "batch_size",
        )
        self.slowdown = of.gauge(
            "gearshift_slowdown_ratio", "Moving average of observed over profiled run times.", "model", "replica"
        )
        self.profile_drift = of.gauge(
            "gearshift_profile_drift", "1 while a model's run times are not as profiled.", "model"
        )
        self.audits = of.counter(
            "gearshift_audits", "Early answers by what their audit said.", "outcome", known=("agreed", "disagreed")
        )
        self.disagreement = of.gauge(
            "gearshift_disagreement_ratio",
            "Share of early answers with which the strongest model disagrees.",
            *(*by, "gear", "stage", "bound"),
        )
        self.disagreement_alarm = of.gauge(
            "gearshift_disagreement_alarm",
            "1 above the planned disagreement, -1 below it, else 0.",
            *(*by, "gear", "stage"),
        )


class OwnGauge:
    """The values of a gauge whose first labels are `own`."""

    def __init__(self, family: Gauge, own: tuple[str, ...] = ()) -> None:
        self._family, self._own = family, own
        self._seen: set[tuple[Any, ...]] = set()

    def labels(self, *values: Any) -> Gauge:
        self._seen.add(values)
        return self._family.labels(*self._own, *values)

    def clear(self) -> None:
        for values in self._seen:
            self._family.remove(*self._own, *values)
        self._seen.clear()


class AdaptingMetrics:
    """The metrics of one pipeline, whose labels are `own`; those labelled by plan are cleared at a swap."""

    def __init__(self, families: AdaptingFamilies | None = None, own: tuple[str, ...] = ()) -> None:
        families = families or AdaptingFamilies(Families())
        self.load_distance, self.load_drift, self.load_factor = (
            family.labels(*own) if own else family
            for family in (families.load_distance, families.load_drift, families.load_factor)
        )
        self.load_factor.set(1)
        self.replans, self.audits = families.replans, families.audits
        self.run_time, self.profile_drift = OwnGauge(families.run_time), OwnGauge(families.profile_drift)
        self.slowdown = OwnGauge(families.slowdown)
        self.disagreement = OwnGauge(families.disagreement, own)
        self.disagreement_alarm = OwnGauge(families.disagreement_alarm, own)

    def forget_plan(self) -> None:
        for gauge in (self.run_time, self.slowdown, self.profile_drift, self.disagreement, self.disagreement_alarm):
            gauge.clear()
        self.load_distance.set(0)
        self.load_drift.set(0)
        self.load_factor.set(1)
