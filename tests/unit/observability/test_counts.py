"""Our counters and histograms beside those of prometheus_client, which they must not be told from."""

import re

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from gearshift.observability import counts

BUCKETS = (0.1, 1.0, 5.0)
NAMES = st.sampled_from(["a", 'b"\n\\', "ü"])
VALUES = st.sampled_from([0.0, 0.1, 0.5, 1.0, 4.0, 5.0, 6.5])


def text(library, counted, observed) -> str:
    registry = CollectorRegistry()
    counter = library.Counter("things", "Things\nby kind.", ["kind", "of"], registry=registry)
    alone = library.Counter("alone", "Without labels.", registry=registry)
    histogram = library.Histogram("seconds", "How long.", ["kind"], buckets=BUCKETS, registry=registry)
    single = library.Histogram("single", "Without labels.", buckets=BUCKETS, registry=registry)
    for kind, value in counted:
        counter.labels(kind, "x").inc(value)
        (alone if library is prometheus_client else alone.labels()).inc()
    for kind, value in observed:
        histogram.labels(kind).observe(value)
        (single if library is prometheus_client else single.labels()).observe(value)
    return re.sub(r"(?m)^(\w+_created\S*) .*", r"\1 then", generate_latest(registry).decode())


@given(st.lists(st.tuples(NAMES, VALUES)), st.lists(st.tuples(NAMES, VALUES)))
def test_what_is_written_is_what_prometheus_client_writes(counted, observed):
    assert text(counts, counted, observed) == text(prometheus_client, counted, observed)
