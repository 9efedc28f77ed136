import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.reporting.charts import MOST_DOTS
from gearshift.reporting.content import (
    CandidatePoint,
    Kind,
    RangePoint,
    ReportContent,
    RunSeries,
    accuracy_series,
    gear_series,
    latency_quantiles,
)
from gearshift.reporting.report_page import page_of, write_report
from gearshift.result import ServingResult, percentile, summarise

NASTY = "<script>alert(\"x\")</script> & 'tiny <0.5 > large'"


class Elements(HTMLParser):
    """All start tags with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def result() -> ServingResult:
    return summarise(
        latency_s=np.linspace(0.01, 0.1, 100),
        quality=np.ones(100),
        requests=110,
        refused=10,
        latency_objective_s=0.08,
        duration_s=10,
        devices=2,
        utilisation={},
    )


def run(name: str, kind: Kind) -> RunSeries:
    return RunSeries(
        name=name,
        kind=kind,
        result=result(),
        seconds=np.arange(10.0),
        load_qps=np.full(10, 20.0),
        gear=np.arange(10) // 5,
        latency_quantiles=latency_quantiles(np.linspace(0.01, 0.1, 100)),
    )


def plan() -> GearPlan:
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades=alone("digits", Cascade(models=("tiny",))),
        replicas=(ReplicaSettings(replica="r0", load_share=1.0),),
    )
    return GearPlan(
        planner="optimal",
        hardware=Hardware(devices=(Device(id="cpu0", node="here", kind="cpu", memory_bytes=2**30),)),
        placement=Placement(replicas=(Replica(id="r0", model="tiny", device_ids=("cpu0",)),)),
        pipelines={
            "digits": PipelinePlan(
                nodes={"digits": Node(operator="digits")},
                output="digits",
                objective=Objective(latency_s=0.15),
                gears=(gear,),
            )
        },
        profiles={"digits": SourceFile(path="profile", sha256="a" * 64)},
        traces={"digits": SourceFile(path=NASTY, sha256="b" * 64)},
        predictions={"digits": result()},
    )


def full(name: str = "gearshift") -> ReportContent:
    return ReportContent(
        title=f"Report of {name}",
        note=name,
        plan=plan(),
        candidates=[
            CandidatePoint(cascade=name, accuracy=0.9, mean_run_s=0.01, on_front=True, used=True),
            CandidatePoint(cascade="other", accuracy=0.8, mean_run_s=0.02),
        ],
        ranges=[
            RangePoint(from_qps=0, to_qps=50, cascade=name, accuracy=0.9, p95_s=0.1, share_late=0.01),
            RangePoint(from_qps=50, to_qps=None, cascade="small", accuracy=0.8, p95_s=0.05, share_late=0.0, cores=name),
        ],
        runs=[run(name, "predicted"), run(name, "measured"), run("largest model alone", "measured")],
        slo_s=0.08,
    )


def figures(page: str) -> dict[str, dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert found
    decoded: dict[str, dict[str, Any]] = json.loads(found.group(1))
    return decoded


def test_a_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", full())
    page = (tmp_path / "report.html").read_text()
    for tag, attributes in Elements(page).found:
        assert tag not in ("link", "iframe", "img", "object", "embed")
        assert not {"src", "href", "data"} & set(attributes)
    assert "@import" not in page.split("</style>")[0]
    assert "url(" not in page.split("</style>")[0]


def test_plotly_is_inside_once_and_only_where_there_are_charts() -> None:
    assert page_of(full()).count("* plotly.js v") == 1
    assert "plotly" not in page_of(ReportContent(title="A plan", plan=plan()))


def test_accuracy_over_time_is_a_mean_over_a_second_of_what_was_answered_and_nothing_where_nothing_was() -> None:
    arrivals_s, quality = np.array([0.1, 0.3, 2.1]), np.array([1.0, 0.0, np.nan])
    found = accuracy_series(arrivals_s, quality, 12)
    assert found[:3].tolist() == [0.5, 0.5, 0.0]  # from a quarter of a second before to two after
    assert np.isnan(found[3:]).all()


def test_accuracy_has_a_panel_of_its_own_below_load_and_gear() -> None:
    judged = replace(run("gearshift", "measured"), accuracy=np.r_[np.linspace(0.8, 0.9, 9), np.nan])
    page = page_of(replace(full(), runs=[judged, run("other", "predicted")]))
    drawn = figures(page)["time"]
    assert [one["yaxis"] for one in drawn["data"]] == ["y", "y2", "y3", "y", "y2"]
    assert drawn["data"][2]["y"] == [*np.linspace(80, 90, 9).round(10).tolist(), None]
    layout = drawn["layout"]
    assert layout["xaxis"]["anchor"] == "y3"
    assert layout["yaxis3"]["domain"][0] == pytest.approx(0)
    assert layout["yaxis"]["domain"][1] == 1


def test_every_run_is_in_the_summary_and_in_the_charts() -> None:
    page = page_of(full())
    for name in ("gearshift", "largest model alone"):
        assert f">{name}</th>" in page
    labels = {str(trace["name"]) for trace in figures(page)["latency"]["data"]}
    assert labels == {"gearshift, predicted", "gearshift, measured", "largest model alone, measured"}


def test_all_charts_have_a_title_a_sentence_a_place_and_units_on_their_axes() -> None:
    page = page_of(full())
    drawn = figures(page)
    assert list(drawn) == ["front", "ranges", "time", "latency"]
    for chart, figure in drawn.items():
        assert f'<div id="{chart}" role="img"' in page
        layout = figure["layout"]
        assert isinstance(layout, dict)
        for axis in (key for key in layout if key.startswith(("xaxis", "yaxis"))):
            text = layout[axis]["title"]["text"]
            assert "(" in text or "percentile" in text
    assert page.count("<h2>") == page.count("</h2><p>") == 6


def test_text_of_others_is_escaped_in_the_page_and_in_the_charts() -> None:
    page = page_of(full(NASTY))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp;" in page
    tags = [tag for tag, _ in Elements(page).found]
    assert tags.count("script") == 3
    shown = json.dumps(figures(page))
    assert "<script" not in shown
    assert "&lt;0.5 &gt;" in shown


@given(name=st.text(max_size=20))
def test_any_name_leaves_the_page_whole(name: str) -> None:
    content = ReportContent(title=name, plan=plan(), runs=[RunSeries(name=name, kind="measured", result=result())])
    tags = [tag for tag, _ in Elements(page_of(content)).found]
    assert tags.count("section") == 2
    assert tags.count("script") == 0


def test_each_part_is_optional() -> None:
    assert "<section>" not in page_of(ReportContent(title="Nothing"))
    alone = page_of(ReportContent(title="A plan", plan=plan()))
    assert "Gears of digits" in alone
    assert ">digits</th>" in alone
    assert list(figures(page_of(ReportContent(title="Ranges", ranges=full().ranges)))) == ["ranges"]
    assert list(figures(page_of(ReportContent(title="Front", candidates=full().candidates)))) == ["front"]
    assert list(figures(page_of(ReportContent(title="Runs", runs=full().runs)))) == ["time", "latency"]


def test_predicted_figures_stand_above_the_measured_ones() -> None:
    page = page_of(full())
    assert re.search(r'rowspan="2">gearshift</th><td class="kind">predicted.*?<td class="kind">measured', page)
    assert 'rowspan="1">largest model alone</th>' in page


def test_very_many_candidates_are_thinned_and_the_page_says_so() -> None:
    dots = [CandidatePoint(cascade="c", accuracy=0.5, mean_run_s=0.001 * (i + 1)) for i in range(10_000)]
    page = page_of(ReportContent(title="Many", candidates=dots))
    (drawn,) = figures(page)["front"]["data"]
    assert len(drawn["x"]) <= MOST_DOTS  # type: ignore[arg-type]
    assert "of 10,000 other cascades are drawn" in page


def test_a_run_without_answers_has_no_latency_curve() -> None:
    silent = RunSeries(name="dead", kind="measured", result=result(), latency_quantiles=latency_quantiles(np.zeros(0)))
    assert 'id="figures"' not in page_of(ReportContent(title="Dead", runs=[silent]))


def test_latency_quantiles_follow_the_rule_for_percentiles() -> None:
    latencies = np.random.default_rng(0).exponential(0.05, 5000)
    quantiles = latency_quantiles(latencies)
    assert np.all(np.diff(quantiles.latency_s) >= 0)
    for share, latency in zip(quantiles.share[::20], quantiles.latency_s[::20], strict=True):
        assert latency == percentile(latencies, float(share))
    assert quantiles.share[-1] == pytest.approx(0.999)


def test_the_gear_at_an_instant_is_that_of_the_last_shift() -> None:
    gears = gear_series([(1.0, 3), (2.5, 1)], np.array([0.0, 1.0, 2.0, 3.0]))
    assert gears.tolist() == [0, 3, 3, 1]


def test_a_series_that_does_not_fit_its_seconds_is_refused() -> None:
    with pytest.raises(InvalidInput, match="load_qps does not fit"):
        RunSeries(name="x", kind="measured", result=result(), seconds=np.arange(3.0), load_qps=np.zeros(4))


def policy_of(page: str) -> dict[str, list[str]]:
    (content,) = [
        attributes["content"]
        for tag, attributes in Elements(page).found
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert page.index("Content-Security-Policy") < page.index("<style>")
    return {name: values for name, *values in (each.split() for each in (content or "").split(";"))}


@pytest.mark.parametrize("content", [full(), full(NASTY), ReportContent(title=NASTY, note=NASTY)])
def test_a_browser_runs_no_script_but_those_that_the_page_was_made_with_and_fetches_nothing(
    content: ReportContent,
) -> None:
    page = page_of(content)
    policy = policy_of(page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts]
    assert policy["script-src"] == (hashes or ["'none'"])
    assert policy["default-src"] == ["'none'"]
    assert {"base-uri", "form-action"} <= policy.keys()
    assert not any(key.startswith("on") for _, attributes in Elements(page).found for key in attributes)
