"""Every page in a real browser: on a wide screen and a narrow one, light, dark and printed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gearshift.caches.store.manifest import Manifest, Variant
from gearshift.planner.compare import compared
from gearshift.planner.language.compared.explain import each_language_alone
from gearshift.reporting.caches_page import caches_page
from gearshift.reporting.comparison import comparison_sections
from gearshift.reporting.drawing.page import html_page
from gearshift.serving.http.openapi import describe
from gearshift.serving.openai.handlers import routes_of
from gearshift.serving.openai.served import shown_at
from gearshift.serving.pages.front_page import docs_page, front_page
from gearshift.traces.generate import steady
from tests.browser import NEEDS_CHROMIUM, browser, sync_api
from tests.unit.cli.little import planned_in, run
from tests.unit.planner.joint.mixed import write_mixed
from tests.unit.planner.test_compare import RUNS, WORST
from tests.unit.reporting.language.test_page import PLAN as LANGUAGE_PLAN
from tests.unit.reporting.language.test_page import PROFILE as LANGUAGE_PROFILE
from tests.unit.reporting.language.test_page import page_of as language_page
from tests.unit.reporting.language.test_page import run_of as language_run
from tests.unit.reporting.test_rows_page import NASTY, full, page_of

__all__ = ["browser"]

pytestmark = [pytest.mark.long, NEEDS_CHROMIUM]
LARGEST_BYTES = 1_000_000

OVERLAPS = """() => {
  const seen = (one) => one.checkVisibility() && one.getClientRects().length && one.textContent.trim();
  const cards = document.querySelectorAll("section, header, form");
  const words = cards.length
    ? ".area span, .ptitle, .xtitle, .legend li, .key li, h2, h3, p, dt, dd, summary, figcaption > span, caption, label"
    : "h1, h2, p, pre, li, th, td > code, summary";
  const found = [];
  for (const section of cards.length ? cards : [document.body]) {
    const boxes = [...section.querySelectorAll(words)].filter(seen).map((one) => {
      const range = document.createRange();
      range.selectNodeContents(one);
      return [one.textContent, range.getBoundingClientRect()];
    });
    const card = section.getBoundingClientRect();
    for (const [text, box] of boxes) {
      if (box.left < card.left - 1 || box.right > card.right + 1) found.push(`${text} leaves its section`);
    }
    for (let a = 0; a < boxes.length; a += 1) {
      for (let b = a + 1; b < boxes.length; b += 1) {
        const [one, other] = [boxes[a][1], boxes[b][1]];
        const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        if (wide > 1.5 && high > 3) found.push(`${boxes[a][0]} lies on ${boxes[b][0]}`);
      }
    }
  }
  return found;
}"""
"""Words that lie on each other (line boxes may touch by 3 pixels), or leave their card."""


def of_a_plan(folder: Path) -> str:
    done = run("report", planned_in(folder) / "plan.json", "--out", folder / "report.html")
    assert done.exit_code == 0, done.output
    return (folder / "report.html").read_text()


def of_runs(folder: Path) -> str:
    return page_of(full("a cascade > with a rather long name"))


def of_strange_names(folder: Path) -> str:
    return page_of(full(NASTY))


def of_a_comparison(folder: Path) -> str:
    return html_page("Planners", "", comparison_sections(compared(RUNS, WORST)))


def of_pipelines(folder: Path) -> str:
    done = run("report", write_mixed(folder, both=True), "--out", folder / "report.html")
    assert done.exit_code == 0, done.output
    return (folder / "report.html").read_text()


def of_language_models(folder: Path) -> str:
    alone = each_language_alone(LANGUAGE_PLAN, LANGUAGE_PROFILE, steady(60, 10, seed=1))
    return language_page(language_run(), alone)


def of_a_language_plan_without_a_run(folder: Path) -> str:
    return language_page()


def of_a_language_server(folder: Path) -> str:
    return front_page([shown_at("/v1/chat/completions", "chat")], has_keys=True).decode()


def of_its_api(folder: Path) -> str:
    return docs_page(describe([], keys=None, others=routes_of("chat"))).decode()


def of_caches(folder: Path) -> str:
    random, chosen = np.random.default_rng(0), ((1, "FC(16)"), (3, "KNN"))
    variants = tuple(
        Variant(
            layer=k,
            block=f"block-{k}",
            variant=kind,
            level=0.98,
            shape=(8,),
            hit_rate=float(random.uniform(0.1, 0.9)),
            accuracy=0.98,
            lookup_s=0.0001,
            memory_bytes=2**16,
            chosen=(k, kind) in chosen,
        )
        for k in range(6)
        for kind in ("FC(16)", "KNN", "Pool")
    )
    manifest = Manifest(
        weights_sha256="",
        blocks=tuple(f"block-{k}" for k in range(7)),
        blocks_named=True,
        logits=True,
        classes=3,
        target=0.98,
        confidence=None,
        lower_bound=None,
        samples=1000,
        segment_s=(0.001,) * 7,
        latency_s=0.004,
        accuracy=0.985,
        exits=(0.0, 0.5, 0.0, 0.25, 0.0, 0.0, 0.25),
        variants=variants,
        choices=(),
    )
    return caches_page(manifest, title="Caches")


PAGES = [of_a_plan, of_runs, of_strange_names, of_a_comparison, of_pipelines, of_caches, of_language_models]
PAGES += [of_a_language_plan_without_a_run, of_a_language_server, of_its_api]


@pytest.mark.parametrize("made", PAGES)
def test_a_page_fails_nowhere_asks_nobody_and_has_no_words_on_each_other(
    made: Callable[[Path], str], browser: Any, tmp_path: Path
) -> None:
    path, wrong = tmp_path / "page.html", list[str]()
    path.write_text(made(tmp_path))
    assert path.stat().st_size < LARGEST_BYTES
    for width, scheme, media in ((1100, "light", "screen"), (390, "dark", "screen"), (1000, "dark", "print")):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("request", lambda asked: None if asked.url.startswith("file:") else wrong.append(asked.url))
        page.emulate_media(media=media, color_scheme=scheme)
        page.goto(path.as_uri())
        for details in page.locator("summary").all():
            details.click()
        assert page.evaluate(OVERLAPS) == [], (width, scheme, media)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        edges = page.evaluate("[...document.querySelectorAll('.area')].map((a) => a.getBoundingClientRect().left)")
        assert len({round(edge) for edge in edges}) <= 1, "plots begin at one place"
        context.close()
    assert wrong == []


def test_what_one_points_at_is_said(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_of(full("tiny")))
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.goto(path.as_uri())
    area = page.locator('[data-panel="cascades-0"]')
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    x, y = (page.evaluate(f"JSON.parse(figures.textContent)['cascades-0'].at(-1).{axis}[0]") for axis in "xy")
    page.mouse.move(box["x"] + x * box["width"] + 3, box["y"] + y * box["height"] + 3)
    tip = page.locator(".tip")
    sync_api.expect(tip).to_contain_text("tiny")
    sync_api.expect(tip).to_contain_text("90.0 % right, 10 ms a request")
    page.mouse.move(0, 0)
    sync_api.expect(tip).to_have_count(0)
    page.close()


def test_a_printed_page_is_light_and_shows_its_tables(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_of(full("tiny")))
    page = browser.new_context(color_scheme="dark").new_page()
    page.goto(path.as_uri())
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    sync_api.expect(page.locator("details table")).to_be_visible()
    page.context.close()
