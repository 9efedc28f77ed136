"""The live page in a real browser, before a real server that is loaded, steered, ended and started again."""

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gearshift
from tests.end_to_end.test_server import Server, serving
from tests.little_task import two_gear_plan

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (`pip install playwright`)")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
LONGEST_MS = 60_000
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that must neither fail nor ask anybody but the server."""
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page, wrong = context.new_page(), []
    page.set_default_timeout(LONGEST_MS)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if "//127.0.0.1:" not in request.url else None)
    yield page
    context.close()
    assert wrong == []


@contextmanager
def load(server: Server) -> Iterator[None]:
    """Requests one after another on four connections: far more than the edge between the gears."""
    ended = threading.Event()

    def ask() -> None:
        with gearshift.Client(server.url, "sums") as client:
            while not ended.is_set():
                client.infer({"sample": np.array([3])})

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_traffic_a_shift_a_pin_and_a_server_that_comes_back(page: Any, tmp_path: Path) -> None:
    admins = tmp_path / "admins.txt"
    admins.write_text("a-longer-admin-key\n")
    has = sync_api.expect
    with serving(tmp_path, "emulated", two_gear_plan, admin_keys=str(admins)) as server:
        page.goto(f"{server.url}/dashboard")
        has(page.locator("#state")).to_contain_text("serving, plan", timeout=LONGEST_MS)
        has(page.locator("#of-sums .cascade")).to_have_text("small > large")
        has(page.locator("#replicas tr")).to_have_count(2)
        with load(server):
            has(page.locator("#of-sums .facts")).to_contain_text("1 of 0 to 1", timeout=LONGEST_MS)
            has(page.locator("#of-sums .cascade")).to_have_text("small")
            has(page.locator("#of-sums .tables")).to_contain_text(re.compile(r"p95\d+"), timeout=LONGEST_MS)
            has(page.locator("#of-sums .tables")).to_contain_text("small")
        page.fill("#admin-key", "a-longer-admin-key")
        page.fill("#gear", "1")
        page.click("#pin")
        page.click("text=Leave it")
        has(page.locator("#steered-result")).to_have_text("")
        page.click("#pin")
        page.click("text=Do it")
        has(page.locator("#steered-result")).to_have_text("done", timeout=LONGEST_MS)
        has(page.locator("#of-sums .facts")).to_contain_text("1 of 0 to 1, pinned", timeout=LONGEST_MS)
        has(page.locator("#events")).to_contain_text("pin", timeout=LONGEST_MS)
        page.fill("#admin-key", "another")
        page.click("#free")
        page.click("text=Do it")
        has(page.locator("#steered-result")).to_contain_text("key", timeout=LONGEST_MS)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        port = int(server.url.rpartition(":")[2])
    has(page.locator("#state")).to_contain_text("does not answer", timeout=LONGEST_MS)
    with serving(tmp_path, "emulated", two_gear_plan, port=port):
        has(page.locator("#state")).to_contain_text("serving, plan", timeout=LONGEST_MS)


def test_a_server_with_keys_shows_nothing_without_one(page: Any, tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    users.write_text("a-longer-user-key\n")
    has = sync_api.expect
    with serving(tmp_path, "emulated", api_keys=str(users)) as server:
        page.goto(f"{server.url}/dashboard")
        has(page.locator("#key-form")).to_be_visible(timeout=LONGEST_MS)
        has(page.locator("#pipelines section")).to_have_count(0)
        page.fill("#key", "a-longer-user-key")
        page.click("#key-form button")
        has(page.locator("#of-sums .facts")).to_contain_text("arrivals", timeout=LONGEST_MS)
