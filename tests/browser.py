"""A headless Chromium for tests of pages; modules that use it are skipped where it or Playwright is not installed."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (`pip install playwright`)")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()
