import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, GearPrediction, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.profiles.profile import RunTimeCurve
from gearshift.reporting.drawing.page import html_page
from gearshift.reporting.rows_page import operator_sections
from gearshift.reporting.runs import Course, Kind, RunSeries, in_force, latency_quantiles, mean_over_time
from gearshift.reporting.shown import CandidatePoint, RangePoint, Shown
from gearshift.result import ServingResult, percentile, summarise

LATENCIES_S = np.linspace(0.01, 0.1, 100)
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


def course(latency_s: NDArray[np.float64] = LATENCIES_S) -> Course:
    share, quantiles = latency_quantiles(latency_s)
    return Course(
        bin_s=1, seconds=list(np.arange(10.0)), load_qps=[20.0] * 10, p95_s=[0.05] * 10, accuracy=[None] * 10,
        gear=[0] * 10, share=share.tolist(), latency_s=quantiles,
    )  # fmt: skip


def run(name: str, kind: Kind) -> RunSeries:
    return RunSeries(name=name, kind=kind, result=result(), course=course(), in_force=np.linspace(0.9, 0.8, 10))


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


def point(name: str, from_: float, to: float | None, accuracy: float, **more: Any) -> RangePoint:
    predicted = GearPrediction(
        load_qps=from_, accuracy=accuracy, latency_p95_s=accuracy / 9, share_late=0.01, utilisation=0.5
    )
    return RangePoint(gear="", load=LoadRange(from_=from_, to=to), cascade=name, predicted=predicted, **more)


def full(name: str = "gearshift") -> Shown:
    curve = RunTimeCurve(
        model=name, batch_sizes=(1, 4), median_s=(4.067e-8, 0.02), p95_s=(0.012, 0.025), memory_bytes=2**20
    )
    return Shown(
        plan=plan(),
        name="digits",
        candidates=[
            CandidatePoint(cascade=name, accuracy=0.9, mean_run_s=0.01, on_front=True, gears="0"),
            CandidatePoint(cascade="other", accuracy=0.8, mean_run_s=0.02),
        ],
        ranges=[point(name, 0, 50, 0.9, answered={name: 1}), point("small", 50, None, 0.8, cores=name)],
        models=[name],
        measured=[(curve, 0.9)],
        runs=[run(name, "predicted"), run(name, "measured"), run("largest model alone", "measured")],
    )


def page_of(shown: Shown, title: str = "Report", note: str = "") -> str:
    return html_page(title, note, operator_sections(shown))


def figures(page: str) -> dict[str, list[dict[str, Any]]]:
    """By panel what one sees where one points."""
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert found
    decoded: dict[str, list[dict[str, Any]]] = json.loads(found.group(1))
    return decoded


BARE = Shown(plan=plan(), name="digits")


def test_a_page_loads_nothing_from_elsewhere() -> None:
    page = page_of(full())
    for tag, attributes in Elements(page).found:
        assert tag not in ("link", "iframe", "img", "object", "embed")
        assert not {"src", "href", "data"} & set(attributes)
    assert "@import" not in page.split("</style>")[0]
    assert "url(" not in page.split("</style>")[0]


def test_a_page_is_small_and_has_one_script_where_there_are_charts() -> None:
    assert len(page_of(full())) < 100_000
    assert page_of(full()).count("<script>") == 1
    assert "<script" not in page_of(BARE)


def test_accuracy_over_time_is_that_of_enough_answers_and_nothing_where_there_are_few() -> None:
    arrivals_s, quality = np.repeat([0.5, 3.5], [60, 10]), np.r_[np.ones(30), np.zeros(30), np.ones(10)]
    found = mean_over_time(arrivals_s, quality, 5, 1.0)
    assert found[0] == 0.5
    assert np.isnan(found[3:]).all()


def test_gears_that_are_alike_make_no_steps_in_the_accuracy_in_force() -> None:
    back_and_forth = [(0.1 * n, n % 2) for n in range(40)]
    assert in_force(back_and_forth, [0.9, 0.9], course()).tolist() == pytest.approx([0.9] * 10)
    found = in_force([(1.0, 1), (2.5, 0)], [0.9, 0.8], course())
    assert found[:4] == pytest.approx([0.9, 0.8, 0.85, 0.9])


def test_the_five_questions_are_sections_in_this_order() -> None:
    headings = re.findall("<h2>(.*?)</h2>", page_of(full()))
    assert headings == [
        "What is promised", "How it works", "What happens over the trace", "How sure it is", "What was assumed"
    ]  # fmt: skip


def test_no_figure_has_an_exponent() -> None:
    page = page_of(full("plan"))
    assert not re.findall(r"\d[eE][-+]\d", page.split("</style>")[1].split("<script")[0])
    assert "0.0407 µs" in page


def test_every_run_is_in_the_summary_and_in_the_charts() -> None:
    page = page_of(full())
    for name in ("gearshift", "largest model alone"):
        assert f">{name}</th>" in page
    labels = {one["name"] for one in figures(page)["latency-0"]}
    assert labels == {"gearshift, predicted", "gearshift, measured", "largest model alone, measured"}


def test_all_charts_have_a_title_a_place_and_units_on_their_axes() -> None:
    page = page_of(full())
    charts = re.findall(r'<figure class="chart" id="(.*?)" role="img" aria-label=".+?">', page)
    assert charts == ["loads", "cascades", "day", "latency", "run-times"]
    titles = re.findall(r'<div class="(?:ptitle|xtitle)">(.*?)</div>', page)
    assert all("(" in title or "percentile" in title for title in titles)


def test_a_model_has_one_colour_on_all_charts() -> None:
    drawn = figures(page_of(full("tiny")))
    colours = {one["colour"] for panel in ("loads-0", "run-times-0") for one in drawn[panel] if one["name"] == "tiny"}
    assert len(colours) == 1


def test_text_of_others_is_escaped_in_the_page_and_in_the_charts() -> None:
    page = page_of(full(NASTY), NASTY, NASTY)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt; &amp;" in page
    tags = [tag for tag, _ in Elements(page).found]
    assert tags.count("script") == 2
    data = page.split('id="figures">')[1].split("</script>")[0]
    assert "<" not in data
    assert NASTY in json.dumps(figures(page)).replace('\\"', '"')


@given(name=st.text(max_size=20))
def test_any_name_leaves_the_page_whole(name: str) -> None:
    shown = replace(BARE, runs=[RunSeries(name=name, kind="measured", result=result())])
    tags = [tag for tag, _ in Elements(page_of(shown, name)).found]
    assert tags.count("section") == 4
    assert tags.count("script") == 0


def test_each_part_is_optional() -> None:
    alone = page_of(BARE)
    assert "Gears of digits" in alone
    assert ">digits</th>" in alone
    for content, charts in (
        (replace(BARE, ranges=full().ranges), ["loads"]),
        (replace(BARE, candidates=full().candidates), ["cascades"]),
        (replace(BARE, runs=full().runs), ["day", "latency"]),
    ):
        assert re.findall('<figure class="chart" id="(.*?)"', page_of(content)) == charts


def test_predicted_figures_stand_above_the_measured_ones() -> None:
    page = page_of(full())
    assert re.search(r'rowspan="2">gearshift</th><td class="kind">predicted.*?<td class="kind">measured', page)
    assert 'rowspan="1">largest model alone</th>' in page


def test_a_run_without_answers_has_no_latency_curve() -> None:
    silent = RunSeries(name="dead", kind="measured", result=result(), course=course(np.zeros(0)))
    assert re.findall('<figure class="chart" id="(.*?)"', page_of(replace(BARE, runs=[silent]))) == ["day"]


def test_latency_quantiles_follow_the_rule_for_percentiles() -> None:
    latencies = np.random.default_rng(0).exponential(0.05, 5000)
    shares, quantiles = latency_quantiles(latencies)
    assert np.all(np.diff(quantiles) >= 0)
    for share, latency in zip(shares[::20], quantiles[::20], strict=True):
        assert latency == percentile(latencies, float(share))
    assert shares[-1] == pytest.approx(0.999)


def policy_of(page: str) -> dict[str, list[str]]:
    (content,) = [
        attributes["content"]
        for tag, attributes in Elements(page).found
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert page.index("Content-Security-Policy") < page.index("<style>")
    return {name: values for name, *values in (each.split() for each in (content or "").split(";"))}


@pytest.mark.parametrize("content", [full(), full(NASTY), BARE])
def test_a_browser_runs_no_script_but_those_that_the_page_was_made_with_and_fetches_nothing(
    content: Shown,
) -> None:
    page = page_of(content, NASTY, NASTY)
    policy = policy_of(page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts]
    assert policy["script-src"] == (hashes or ["'none'"])
    assert policy["default-src"] == ["'none'"]
    assert {"base-uri", "form-action"} <= policy.keys()
    assert not any(key.startswith("on") for _, attributes in Elements(page).found for key in attributes)
