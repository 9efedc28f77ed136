"""Charts of MT-Bench from kept points, and what plans are made for in place of what is served."""

from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.llm.mt_bench_chart import rows_of, series_of, svg_of
from benchmarks.llm.mt_bench_misjudged import cases_of, poisson


def point(kind: str, asked_s: float, score: float, rate: str = "0.15") -> dict[str, Any]:
    return {"rate": rate, "asked_s": asked_s, "kind": kind, "score": score, "p95_s": asked_s, "total_p95_s": 9.0}


POINTS = [
    point("certainty", 1.0, 7.8),
    point("certainty", 0.5, 7.5),
    point("certainty", 1.0, 9.9, rate="0.125"),
    point("certainty of the 3b for all", 1.0, 5.0),
    point("permuted 0", 1.0, 7.7),
    point("permuted 1", 1.0, 7.9),
    {"rate": "0.15", "asked_s": 0.5, "kind": "permuted 0", "refused": "nothing holds"},
]


def test_a_series_has_the_points_of_its_rate_by_rising_time() -> None:
    found = series_of(POINTS, "0.15", "p95_s")
    assert found == {"certainty": [(0.5, 7.5), (1.0, 7.8)], "permuted": [(1.0, 7.7), (1.0, 7.9)]}


def test_permutations_are_a_mean_with_their_range_and_refusals_are_told() -> None:
    assert rows_of(POINTS, "0.15") == [
        ["certainty", "7.500", "7.800"],
        ["permuted", "none", "7.800 (7.700 to 7.900)"],
    ]


def test_the_chart_has_a_dot_for_each_point_and_one_for_each_name() -> None:
    series = series_of(POINTS, "0.15", "p95_s")
    chart = svg_of(series, [("8b", 1.0, 7.8)], "seconds", beside=[("replayed", 1.0, 7.9)])
    root = ElementTree.fromstring(chart)
    assert len(root.findall("{*}circle")) == 4 + len(series)
    assert {"certainty", "permuted", "8b", "seconds", "replayed"} <= {one.text for one in root.findall("{*}text")}


def test_plans_are_made_for_other_rates_and_other_lengths() -> None:
    tokens = np.arange(1, 161)
    cases = cases_of(4.0, tokens)
    rate = {name: len(one) / one.duration_s for name, one in cases.items()}
    assert rate["half as many requests"] == pytest.approx(2.0, rel=0.15)
    assert rate["one and a half times as many"] == pytest.approx(6.0, rel=0.15)
    assert tokens[cases["short prompts alone"].record].max() < tokens[cases["long prompts alone"].record].min()
    assert poisson(4.0, np.arange(160), seed=1).record.tolist() == cases["as served"].record.tolist()
