"""Metrics of cores that change while a replica serves."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

EFFECT_SECONDS = tuple(base * 10.0**power for power in range(-5, 1) for base in (1, 2, 5))
ERRORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class CoreMetrics:
    """Cores in force, their changes, and run times against the performance model.

    Invisible without a registry.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.cores = Gauge("gearshift_cores", "Cores in force, as profiled.", ["replica"], registry=registry)
        self.changes = Counter(
            "gearshift_core_changes",
            "Changes of cores by whether all were had.",
            ["replica", "result"],
            registry=registry,
        )
        self.effect = Histogram(
            "gearshift_core_effect_seconds",
            "From a change of cores until it held, without the batch that ran then.",
            buckets=EFFECT_SECONDS,
            registry=registry,
        )
        self.error = Histogram(
            "gearshift_model_error",
            "How far batches were from their predicted run time, as a share of it.",
            ["replica", "cores"],
            buckets=ERRORS,
            registry=registry,
        )
