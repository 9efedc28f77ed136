"""The live page in a real browser, before a real server that is loaded, steered, ended and started again."""

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gearshift
from gearshift.plans.plan_file import read_plan, write_plan
from tests import language_server
from tests.browser import NEEDS_CHROMIUM, browser, sync_api
from tests.end_to_end.test_pages import OVERLAPS
from tests.end_to_end.test_server import Server, serving
from tests.graph_task import write_graph_plan
from tests.little_task import two_gear_plan
from tests.two_language_models import SMALL_ALONE, cascade, language_plan, language_profile, write_language_plan

__all__ = ["browser"]

pytestmark = NEEDS_CHROMIUM
LONGEST_MS = 60_000


@contextmanager
def verb(*words: str) -> Iterator[Callable[[str], str]]:
    """A verb that runs until it is ended; gives what finds a pattern in what it says."""
    process = subprocess.Popen([sys.executable, "-m", "gearshift", *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None

    def said(pattern: str) -> str:
        for line in process.stdout or ():
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError(f"it did not say {pattern!r}")

    try:
        yield said
        process.terminate()
        assert process.wait(LONGEST_MS / 1e3) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that must neither fail nor ask anybody but the server."""
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page, wrong = context.new_page(), []
    page.set_default_timeout(LONGEST_MS)
    sync_api.expect.set_options(timeout=LONGEST_MS)
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
        has(page.locator("#state")).to_contain_text("serving, plan")
        has(page.locator("#of-sums .cascade")).to_have_text("small > large")
        has(page.locator("#replicas tr")).to_have_count(2)
        with load(server):
            has(page.locator("#of-sums .facts")).to_contain_text("1 of 0 to 1")
            has(page.locator("#of-sums .cascade")).to_have_text("small")
            has(page.locator("#of-sums .tables")).to_contain_text(re.compile(r"p95\d+"))
            has(page.locator("#of-sums .tables")).to_contain_text("small")
        page.fill("#admin-key", "a-longer-admin-key")
        page.fill("#gear", "1")
        page.click("#pin")
        page.click("text=Leave it")
        has(page.locator("#steered-result")).to_have_text("")
        page.click("#pin")
        page.click("text=Do it")
        has(page.locator("#steered-result")).to_have_text("done")
        has(page.locator("#of-sums .facts")).to_contain_text("1 of 0 to 1, pinned")
        has(page.locator("#events")).to_contain_text("pin")
        page.fill("#admin-key", "another")
        page.click("#free")
        page.click("text=Do it")
        has(page.locator("#steered-result")).to_contain_text("key")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        port = int(server.url.rpartition(":")[2])
    has(page.locator("#state")).to_contain_text("does not answer")
    with serving(tmp_path, "emulated", two_gear_plan, port=port):
        has(page.locator("#state")).to_contain_text("serving, plan")


@pytest.mark.long
def test_the_page_of_a_server_elsewhere_shows_it_and_steers_it_with_a_key(page: Any, tmp_path: Path) -> None:
    users, admins = tmp_path / "users.txt", tmp_path / "admins.txt"
    users.write_text("a-longer-user-key\n")
    admins.write_text("a-longer-admin-key\n")
    has = sync_api.expect
    with (
        serving(tmp_path, "emulated", two_gear_plan, api_keys=str(users), admin_keys=str(admins)) as server,
        verb("dashboard", server.url, "--port", "0", "--key-file", str(users)) as said,
    ):
        page.goto(said(r"shown at (http://\S+)"))
        has(page.locator("#of-sums .cascade")).to_have_text("small > large")
        page.click("#drain")
        page.click("text=Do it")
        has(page.locator("#steered-result")).to_contain_text("key")
        page.fill("#admin-key", "a-longer-admin-key")
        page.click("#drain")
        page.click("text=Do it")
        has(page.locator("#state")).to_contain_text("draining")
        server.end()
        has(page.locator("#state")).to_contain_text("gives no answer")


@pytest.mark.long
def test_a_swap_begins_the_loads_anew_and_all_that_was_steered_can_be_undone(page: Any, tmp_path: Path) -> None:
    has, profile = sync_api.expect, language_profile(step_s=(0.002, 0.01), output_tokens=20)
    gears: list[Any] = [cascade(-0.5, 4), SMALL_ALONE], [0.0, 8.0]
    plan = write_language_plan(tmp_path, *gears, profile=profile)
    after = language_plan(*gears, load_unit="drain_s", profile_sha256=read_plan(plan).profile.sha256)
    write_plan(after, tmp_path / "next.json")
    admins = tmp_path / "admins.txt"
    admins.write_text("a-longer-admin-key\n")
    asked = ("--backend", "emulated", "--plans", str(tmp_path), "--admin-keys", str(admins))
    with language_server.serving(plan, *asked) as server:
        page.goto(f"http://127.0.0.1:{server.port}/dashboard")
        has(page.locator("#of-chat .unit")).to_have_text("in requests at engines")
        page.fill("#admin-key", "a-longer-admin-key")
        page.fill("#gear", "1")

        def press(button: str) -> None:
            page.click(button)
            page.click("text=Do it")
            has(page.locator("#steered-result")).to_have_text("done")

        press("#pin")
        has(page.locator("#of-chat .facts")).to_contain_text("1 of 0 to 1, pinned")
        press("#free")
        has(page.locator("#of-chat .facts")).not_to_contain_text("pinned")
        press("#drain")
        has(page.locator("#state")).to_contain_text("draining")
        press("#undo")
        has(page.locator("#state")).to_contain_text("serving, plan plan.json")
        latest = page.evaluate("past.get('chat').at(-1)[0]")
        page.fill("#plan", "next.json")
        press("#swap")
        has(page.locator("#state")).to_contain_text("plan next.json")
        has(page.locator("#of-chat .unit")).to_have_text("in s of work")
        assert page.evaluate("past.get('chat')[0][0]") > latest, "loads of both units would be in one line"
        language_server.streamed(server.port, language_server.chat(0))
        has(page.locator("#of-chat .tables")).to_contain_text(re.compile(r"first token p50\d"))
        for width, scheme in ((1100, "light"), (1100, "dark"), (390, "dark")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(OVERLAPS) == [], (width, scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.long
def test_the_pages_of_a_server_with_keys_ask_for_one(page: Any, tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    users.write_text("a-longer-user-key\n")
    has = sync_api.expect
    with serving(tmp_path, "emulated", api_keys=str(users)) as server:
        page.goto(server.url)
        has(page.locator("h1")).to_have_text("Gearshift")
        page.fill("input", "a-wrong-user-key")
        page.click("button")
        has(page.locator("[role=status]")).to_contain_text("does not know this key")
        page.fill("input", "a-longer-user-key")
        page.click("button")
        has(page.locator("h1")).to_have_text("Gearshift: sums")
        page.click("text=/docs")
        has(page.locator("h1")).to_contain_text("the API")
        page.goto(f"{server.url}/dashboard")
        has(page.locator("#of-sums .facts")).to_contain_text("arrivals")


@pytest.mark.long
def test_several_front_ends_show_it_one_look_at_a_time(page: Any, tmp_path: Path) -> None:
    has = sync_api.expect
    with serving(tmp_path, "emulated", front_ends=2) as server:
        page.goto(f"{server.url}/dashboard")
        has(page.locator("#state")).to_contain_text("up")
        before = page.locator("#state").inner_text()
        has(page.locator("#state")).not_to_have_text(before)


@pytest.mark.long
def test_the_nodes_of_a_pipeline_are_shown(page: Any, tmp_path: Path) -> None:
    server, has = Server(write_graph_plan(tmp_path), "local", {}), sync_api.expect
    try:
        page.goto(server.until_it_says(r"watch it at (http://\S+)")[1])
        has(page.locator("#of-pairs .cascade")).to_contain_text("read: read; check: check")
        with gearshift.Client(server.said[0].split(" at ")[1].split()[0], "pairs") as client:
            client.infer({"x": np.array([[1.0, 2, 3, 4, 5, 6]])})
        has(page.locator("#of-pairs .tables")).to_contain_text("join")
        has(page.locator("#of-pairs .tables")).to_contain_text(re.compile(r"Nodes.*Who answers"))
    finally:
        assert server.end() == 0


@pytest.mark.long
def test_language_models_show_their_first_tokens(page: Any, tmp_path: Path) -> None:
    has, profile = sync_api.expect, language_profile(step_s=(0.002, 0.01), output_tokens=20)
    plan = write_language_plan(tmp_path, [cascade(-0.5, 4), SMALL_ALONE], [0.0, 8.0], profile=profile)
    with language_server.serving(plan, "--backend", "emulated") as server:
        page.goto(f"http://127.0.0.1:{server.port}/dashboard")
        has(page.locator("#of-chat .cascade")).to_have_text("small > large")
        language_server.streamed(server.port, language_server.chat(0))
        has(page.locator("#of-chat .tables")).to_contain_text(re.compile(r"first token p50\d"))
        has(page.locator("#of-chat .tables")).to_contain_text("answers")


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
        has(page.locator("#of-sums .facts")).to_contain_text("arrivals")
