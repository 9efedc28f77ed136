"""Metrics of cores that change while a replica serves."""

from gearshift.observability.families import Families

EFFECT_SECONDS = tuple(base * 10.0**power for power in range(-5, 1) for base in (1, 2, 5))
ERRORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class CoreMetrics:
    """Cores in force, their changes, and run times against the performance model."""

    def __init__(self, families: Families | None = None) -> None:
        of = families or Families()
        self.cores = of.gauge("gearshift_cores", "Cores in force, as profiled.", "replica")
        self.changes = of.counter(
            "gearshift_core_changes", "Changes of cores by whether all were had.", "replica", "result"
        )
        self.effect = of.histogram(
            "gearshift_core_effect_seconds",
            "From a change of cores until it held, without the batch that ran then.",
            buckets=EFFECT_SECONDS,
        ).labels()
        self.error = of.histogram(
            "gearshift_model_error",
            "How far batches were from their predicted run time, as a share of it.",
            "replica",
            "cores",
            buckets=ERRORS,
        )
