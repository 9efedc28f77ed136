import re

from gearshift.planner.compare import Run, compared
from gearshift.reporting.comparison_page import comparison_page
from tests.unit.planner.test_compare import RUNS, WORST, run
from tests.unit.reporting.test_report_page import NASTY, Elements, figures


def page(runs: list[Run], **changed: object) -> str:
    return comparison_page(compared(runs, WORST, **changed), title="Planners", note=NASTY)  # type: ignore[arg-type]


def test_there_is_a_frontier_per_device_count_with_a_line_per_planner() -> None:
    drawn = figures(page(RUNS))
    assert list(drawn) == ["frontier-1", "frontier-2", "frontier-4"]
    lines = {str(t["name"]): (t["x"], t["y"]) for t in drawn["frontier-1"]["data"]}
    assert lines == {"ours": ([50.0, 100.0], [80.0, 85.0]), "single": ([100.0], [70.0])}


def test_a_dominated_plan_is_not_on_the_line() -> None:
    (ours, _) = figures(page(RUNS))["frontier-4"]["data"]
    assert (ours["x"], ours["y"]) == ([50.0], [95.0])


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
    assert shown.count("<td class='text'>") == len(RUNS) + 1
    assert "<td class='text'>no</td>" in shown


def test_a_page_loads_nothing_from_elsewhere_and_escapes_the_text_of_others() -> None:
    shown = page([*RUNS, run(NASTY, 1, 50, (30, 0.9))])
    for tag, attributes in Elements(shown).found:
        assert tag not in ("link", "iframe", "img", "object", "embed")
        assert not {"src", "href", "data"} & set(attributes)
    assert [tag for tag, _ in Elements(shown).found].count("script") == 3
    assert "<script>alert" not in shown


def test_where_nothing_was_planned_there_are_no_charts() -> None:
    shown = page([run("ours", 1, 50, None)])
    assert 'id="figures"' not in shown
    assert "Fewest devices" in shown
