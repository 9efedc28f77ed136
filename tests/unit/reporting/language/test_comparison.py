"""A comparison of planners of language models in words and as a page."""

from gearshift.planner.language.compared.compare import LanguageComparison, LanguageRun
from gearshift.reporting.drawing.page import html_page
from gearshift.reporting.language.comparison import language_comparison_sections, worth_text

RUN = LanguageRun(planner="optimal", devices=1, limit_s=0.3, planning_s=1.0, error={"kind": "K", "message": "too few"})
FOUND = LanguageComparison(
    metric="ttft", percentile=0.99, runs=(RUN,), worth=((1, 0.3, 0.0125), (2, 0.3, -0.5))
)  # fmt: skip


def test_devices_are_counted_in_words() -> None:
    one, two = worth_text(FOUND)
    assert one.startswith("1 device, 300 ms: certainty is worth +0.0125 of quality")
    assert two.startswith("2 devices, 300 ms: certainty is worth -0.5000 of quality")


def test_a_page_tells_what_certainty_is_worth() -> None:
    assert f"or why there is none. {'; '.join(worth_text(FOUND))}" in html_page(
        "compared", "", language_comparison_sections(FOUND)
    )


def test_a_run_without_a_plan_has_the_reason_in_place_of_its_figures() -> None:
    page = html_page("compared", "", language_comparison_sections(FOUND))
    assert '<td>300 ms</td><td class="text" colspan="4">too few</td><td>K</td></tr>' in page
