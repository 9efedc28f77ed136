import re

import msgspec
import pytest

from gearshift.planner.compare import Run, compared
from gearshift.reporting.comparison import comparison_sections, cost_chart, frontier_chart
from gearshift.reporting.drawing.page import html_page
from tests.unit.planner.test_compare import RUNS, WORST, run
from tests.unit.reporting.test_rows_page import NASTY, Elements, figures


def page(runs: list[Run], **changed: object) -> str:
    return html_page("Planners", NASTY, comparison_sections(compared(runs, WORST, **changed)))  # type: ignore[arg-type]


def test_there_is_a_frontier_per_device_count_with_a_line_per_planner_on_the_same_axes() -> None:
    shown = page(RUNS)
    drawn = figures(shown)
    assert list(drawn) == ["frontier-1-0", "frontier-2-0", "frontier-4-0"]
    lines = {one["name"]: one["text"] for one in drawn["frontier-1-0"]}
    assert lines == {
        "ours": ["80.0 % within 50 ms", "85.0 % within 100 ms"],
        "single": ["70.0 % within 100 ms"],
    }
    axes = {tuple(re.findall('class="[xy]t.*?">(.*?)<', part)) for part in shown.split("<figure")[1:]}
    assert len(axes) == 1


def test_where_prices_are_known_accuracy_and_p95_are_drawn_against_money_with_a_line_per_planner() -> None:
    priced = [msgspec.structs.replace(one, price_per_hour=0.5 * one.devices) for one in RUNS]
    drawn = figures(page(priced))
    lines = {one["name"]: one["text"] for one in drawn["cost-1-0"]}
    assert lines["ours"] == [
        "1 device, 0.50 an hour\naccuracy 80.0 %, p95 40 ms",
        "2 devices, 1.00 an hour\naccuracy 90.0 %, p95 45 ms",
        "4 devices, 2.00 an hour\naccuracy 95.0 %, p95 45 ms",
    ]
    assert {one["name"] for one in drawn["cost-2-1"]} == {"ours", "single"}
    assert "what the devices cost an hour" not in page(RUNS)
    same = [msgspec.structs.replace(one, price_per_hour=1.0) for one in RUNS]
    assert "what the devices cost an hour" not in page(same)


def test_no_axis_of_accuracy_goes_beyond_all() -> None:
    alike = [run("ours", devices, 50, (40, 0.998)) for devices in (1, 2)]
    found = compared([msgspec.structs.replace(one, price_per_hour=one.devices) for one in alike], WORST)
    for chart in (frontier_chart(found, 1), cost_chart(found, 0.05)):
        assert chart is not None
        assert chart.panels[0].y.high == pytest.approx(100)


def test_a_dominated_plan_is_not_on_the_line() -> None:
    (ours, _) = figures(page(RUNS))["frontier-4-0"]
    assert ours["text"] == ["95.0 % within 50 ms"]


def test_the_grid_shows_devices_and_savings() -> None:
    shown = page(RUNS, accuracies=[0.8, 0.95])
    grids = re.findall(r"<thead><tr><th>(ours|single)</th>.*?</table>", shown)
    assert grids == ["ours", "single"]
    assert ">1 (2x)</td>" in shown
    assert ">2 (≥2x)</td>" in shown
    assert ">none</td>" in shown


def test_every_run_is_a_row_and_a_failed_one_says_why() -> None:
    failed = run(NASTY, 1, 50, None)
    shown = page([*RUNS, failed])
    rows = shown[shown.index("<h2>Runs</h2>") :].count("<tr><td>")
    assert rows == len(RUNS) + 1
    assert '<td class="text" colspan="4">no</td>' in shown


def test_a_page_loads_nothing_from_elsewhere_and_escapes_the_text_of_others() -> None:
    shown = page([*RUNS, run(NASTY, 1, 50, (30, 0.9))])
    for tag, attributes in Elements(shown).found:
        assert tag not in ("link", "iframe", "img", "object", "embed")
        assert not {"src", "href", "data"} & set(attributes)
    assert [tag for tag, _ in Elements(shown).found].count("script") == 2
    assert "<script>alert" not in shown


def test_where_nothing_was_planned_there_are_no_charts() -> None:
    shown = page([run("ours", 1, 50, None)])
    assert 'id="figures"' not in shown
    assert "Fewest devices" in shown
