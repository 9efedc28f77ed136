"""What an ordinary server shows at `/` and `/docs`, and what objects show in notebooks, in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gearshift
from gearshift.planner.compare import compared
from gearshift.traces.generate import steady
from tests.browser import NEEDS_CHROMIUM, browser, sync_api
from tests.end_to_end.test_server import serving
from tests.little_task import two_gear_plan
from tests.unit.cli.little import planned_in
from tests.unit.planner.test_compare import RUNS, WORST

__all__ = ["browser"]

pytestmark = [pytest.mark.long, NEEDS_CHROMIUM]
LOOKS = ((1100, "light", "screen"), (390, "dark", "screen"), (1000, "dark", "print"))

LINES_ON_EACH_OTHER = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const lines = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.textContent.trim() || !node.parentElement.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) lines.push([node.textContent.trim(), box]);
  }
  const found = [];
  for (let a = 0; a < lines.length; a += 1) {
    for (let b = a + 1; b < lines.length; b += 1) {
      const [one, other] = [lines[a][1], lines[b][1]];
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (wide > 1.5 && high > 3) found.push(`${lines[a][0]} lies on ${lines[b][0]}`);
    }
  }
  return found;
}"""
"""Lines of text that lie on each other; line boxes may touch by 3 pixels."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("served"), make_plan=two_gear_plan) as server:
        yield server.url


def look(browser: Any, address: str, shown: str) -> None:
    """Fails on errors, requests to others, text upon text, and pages that are wider than the window."""
    wrong = list[str]()
    for width, scheme, media in LOOKS:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("request", lambda asked: None if asked.url.startswith(address) else wrong.append(asked.url))
        page.emulate_media(media=media, color_scheme=scheme)
        page.goto(address)
        sync_api.expect(page.locator("body")).to_contain_text(shown)
        for summary in page.locator("summary").all():
            summary.click()
        assert page.evaluate(LINES_ON_EACH_OTHER) == [], (width, scheme, media)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, scheme, media)
        context.close()
    assert wrong == []


@pytest.mark.parametrize(("path", "shown"), [("/", "/predict/sums"), ("/docs", "/v2/models/sums/infer")])
def test_the_pages_of_a_server_fail_nowhere_and_ask_nobody(path: str, shown: str, url: str, browser: Any) -> None:
    look(browser, f"{url}{path}", shown)


def test_the_test_sees_words_that_lie_on_each_other(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<p>one</p><p style="margin-top:-32px">another</p>')
    with pytest.raises(AssertionError, match="one lies on another"):
        look(browser, (tmp_path / "page.html").as_uri(), "one")


def test_what_objects_show_in_a_notebook_stands_well_in_a_browser(browser: Any, tmp_path: Path) -> None:
    place = planned_in(tmp_path)
    plan = gearshift.read_plan(place / "plan.json")
    run = gearshift.simulate(plan, steady(40, duration_s=20), profile=place / "profile")
    shown: list[tuple[Any, str]] = [
        (plan, "Gear plan of"),
        (run, "arrivals per second"),
        (next(iter(plan.predictions.values())), "Result"),
        (compared(RUNS, WORST), "Comparison of"),
    ]
    for number, (one, title) in enumerate(shown):
        cell = f'<!doctype html><meta charset="utf-8"><body style="font:14px sans-serif">{one._repr_html_()}'
        path = tmp_path / f"{number}.html"
        path.write_text(cell)
        look(browser, path.as_uri(), title)
