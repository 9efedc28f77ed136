"""Sums since the start, and percentiles of what came between two of them."""

import pytest

from gearshift.observability.families import SECONDS
from gearshift.observability.glance import percentile_of, summed
from gearshift.observability.metrics import Known, Metrics
from gearshift.request import Answer, ItemFacts, RowFacts

BOUNDS = (1.0, 2.0, 4.0)


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [
        ((0, 0, 0, 0), 0.5, None),
        ((10, 0, 0, 0), 0.5, 0.5),
        ((0, 10, 0, 0), 0.5, 1.5),
        ((5, 5, 0, 0), 0.75, 1.5),
        ((0, 0, 8, 2), 0.8, 4.0),
        ((0, 0, 0, 3), 0.95, 4.0),
    ],
)
def test_a_percentile_lies_between_the_edges_of_its_bucket(counts, share, value):
    assert percentile_of(counts, BOUNDS, share) == value


def test_histograms_are_summed_by_bucket():
    assert summed([(1, 2), (3, 4)]) == [4, 6]


def test_a_glance_has_the_requests_rows_and_nodes_of_its_pipeline_alone():
    metrics = Metrics(["a", "b"])
    for name in "ab":
        known = Known(operator=name, models=[f"{name}/m"], replicas=[], devices=["d"], stages=1, reasons=["deadline"])
        metrics.begin(known)
    metrics.nodes.begin("a", ["n"])
    row = RowFacts(model="a/m", stage=0, certainty=1.0, exit_segment=0)
    metrics.answered("a", Answer(outcome="answered", rows=(row, row)), 0.0015)
    metrics.refused("b", "deadline")
    metrics.nodes.ended("a", ItemFacts(node="n", row=0, model="a/m", queue_s=0.25, run_s=0.5))
    metrics.batch_finished("a/m", ["d"], 0.5)
    a, b = metrics.glance("a"), metrics.glance("b")
    assert (a.outcomes["answered"], b.outcomes["answered"], b.outcomes["refused"]) == (1, 0, 1)
    assert (a.answers_by_model, b.answers_by_model) == ({"a/m": 2}, {"b/m": 0})
    assert (sum(a.latency), sum(b.latency), len(b.latency)) == (1, 0, len(SECONDS) + 1)
    assert 0.001 < percentile_of(a.latency, SECONDS, 0.5) < 0.002
    assert (a.nodes["n"].items, a.nodes["n"].failed, a.nodes["n"].seconds, b.nodes) == (1, 0, 0.75, {})
    assert a.busy_s == b.busy_s == {"d": 0.5}
    assert (a.dropped, b.dropped) == ({"deadline": 0}, {"deadline": 1})
