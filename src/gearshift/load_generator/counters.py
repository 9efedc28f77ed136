"""A server's counters, read from its metrics before and after a replay."""

from dataclasses import dataclass, field

import msgspec
from prometheus_client.parser import text_string_to_metric_families

RUN = "gearshift_run_seconds_sum"
BUSY, BATCHES, SAMPLES = "gearshift_device_busy_seconds_total", "gearshift_batch_size_count", "gearshift_batch_size_sum"


class ModelRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Batches and samples of a model that ran, and the seconds they occupied devices."""

    batches: int
    samples: int
    run_s: float


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the server's start: busy seconds by device; batches, samples, seconds by model."""

    busy_s: dict[str, float] = field(default_factory=dict)
    batches: dict[str, float] = field(default_factory=dict)
    samples: dict[str, float] = field(default_factory=dict)
    run_s: dict[str, float] = field(default_factory=dict)

    def busy_since(self, before: "Counters") -> dict[str, float]:
        return {device: busy_s - before.busy_s.get(device, 0.0) for device, busy_s in self.busy_s.items()}

    def runs_since(self, before: "Counters") -> dict[str, ModelRuns]:
        return {
            model: ModelRuns(
                batches=round(batches - before.batches.get(model, 0.0)),
                samples=round(self.samples.get(model, 0.0) - before.samples.get(model, 0.0)),
                run_s=self.run_s.get(model, 0.0) - before.run_s.get(model, 0.0),
            )
            for model, batches in self.batches.items()
        }


def counters_in(text: str) -> Counters:
    """Parse metrics in Prometheus' format; another server's give no counters.

    Raises `ValueError` for other text.
    """
    counters = Counters()
    places = {
        BUSY: (counters.busy_s, "device"),
        BATCHES: (counters.batches, "model"),
        SAMPLES: (counters.samples, "model"),
        RUN: (counters.run_s, "model"),
    }
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in places:
                counted, label = places[sample.name]
                counted[sample.labels[label]] = sample.value
    return counters
