"""Families of metrics in Prometheus' format, in a registry of their own: a metric is one row."""

import math
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

SECONDS = tuple(base * 10.0**power for power in range(-4, 2) for base in (1, 2, 5))


class Count:
    __slots__ = ("created", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.created = time.time()

    def inc(self, by: float = 1.0) -> None:
        self.value += by


class Distribution:
    """One histogram of a family; `counts` are per bucket, not cumulative."""

    __slots__ = ("_bounds", "counts", "created", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.created = time.time()

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class Counter:
    """A family of counters, one for each combination of label values seen."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, registry: CollectorRegistry) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._children: dict[tuple[str, ...], Count] = {}
        if not labels:
            self.labels()
        registry.register(self)

    def labels(self, *values: str) -> Count:
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = Count()
        return child

    def by_last(self, *before: str) -> dict[str, float]:
        """Sums of the children whose first labels are `before`, by their last label."""
        sums: dict[str, float] = {}
        for values, child in self._children.items():
            if values[: len(before)] == before:
                sums[values[-1]] = sums.get(values[-1], 0.0) + child.value
        return sums

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, child in self._children.items():
            family.add_metric(values, child.value, created=child.created)
        yield family


class Histogram:
    """A family of histograms with the same `buckets`, one per combination of label values seen."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name, self._text, self._labels, self._buckets = name, text, tuple(labels), tuple(buckets)
        self._children: dict[tuple[str, ...], Distribution] = {}
        if not labels:
            self.labels()
        registry.register(self)

    def labels(self, *values: str) -> Distribution:
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = Distribution(self._buckets)
        return child

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        bounds = [floatToGoString(bound) for bound in (*self._buckets, math.inf)]  # type: ignore[no-untyped-call]
        for values, child in self._children.items():
            total, buckets = 0, []
            for bound, count in zip(bounds, child.counts, strict=True):
                total += count
                buckets.append((bound, total))
            family.add_metric(values, buckets, child.sum)
            family.add_sample(f"{self._name}_created", dict(zip(self._labels, values, strict=True)), child.created)
        yield family


class Families:
    """Makes metrics; those of a counter with the last labels `known` begin at 0, as PromQL's `rate` needs."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def counter(self, name: str, text: str, *labels: str, known: Iterable[str] = ()) -> Counter:
        family = Counter(name, text, labels, registry=self.registry)
        for value in known:
            family.labels(value)
        return family

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, *labels: str, buckets: Sequence[float] = SECONDS) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def text(self) -> bytes:
        return generate_latest(self.registry)
