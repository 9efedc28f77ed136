"""The processor time that the live page costs: of an idle server that is watched, and of the browser that watches.

`gearshift serve` runs a little plan on emulated devices.  Its processor time is taken without viewers, with one stream
and with ten; with playwright and Chromium, that of the browser's processes with the page open, too, less what they
take with an empty one.  The bar is 1 % of a core for the server with one viewer; without any it looks at itself once a
second, too, for the ten minutes that the page begins with.  `--warm-s 600` fills the charts first.
"""

import argparse
import http.client
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.little_task import two_gear_plan, write_little_task

from benchmarks.shared.bars import Bars

BAR_PERCENT = 1.0
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement")
    parser.add_argument("--warm-s", type=float, default=0.0, help="before them")
    given, bars = parser.parse_args(), Bars()
    with TemporaryDirectory() as folder, served(Path(folder)) as (pid, port):
        time.sleep(given.warm_s)
        for viewers in (0, 1, 10):
            with ExitStack() as stack:
                for _ in range(viewers):
                    stack.enter_context(viewing(port))
                percent = percent_of([pid], given.seconds)
            print(f"server, {viewers:2d} streams: {percent:.2f} % of a core")
            if viewers == 1:
                bars.at_most("server with one viewer, % of a core", percent, BAR_PERCENT)
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        if chromium and find_spec("playwright"):
            empty, page = (
                browser(chromium, "about:blank", given.seconds),
                browser(chromium, url_of(port), given.seconds),
            )
            print(f"browser: {page:.2f} % of a core with the page, {empty:.2f} % with an empty one")
    print(bars)


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, int]]:
    """A server's process and port."""
    plan = write_little_task(folder, two_gear_plan)
    command = [sys.executable, "-m", "gearshift", "serve", str(plan), "--port", "0", "--backend", "emulated"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    lines = iter(server.stderr)
    port = next(int(found[1]) for line in lines if (found := re.search(r"watch it at http://[^:]+:(\d+)", line)))
    reader = threading.Thread(target=lambda: [None for _ in lines])
    reader.start()
    try:
        yield server.pid, port
    finally:
        server.terminate()
        server.wait(20)
        reader.join()


@contextmanager
def viewing(port: int) -> Iterator[None]:
    """A client that reads the stream, in a thread of this process."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/v2/gearshift/live", headers={"Accept": "text/event-stream"})
    answer, over = connection.getresponse(), threading.Event()

    def read() -> None:
        while not over.is_set():
            answer.readline()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        connection.close()


def browser(chromium: str, url: str, seconds: float) -> float:
    from playwright.sync_api import sync_playwright

    before = set(children_of(os.getpid()))
    with sync_playwright() as tool:
        opened = tool.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = opened.new_page()
        page.goto(url)
        page.wait_for_timeout(3000)
        percent = percent_of([pid for pid in children_of(os.getpid()) if pid not in before], seconds)
        opened.close()
    return percent


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}/dashboard"


def children_of(pid: int) -> list[int]:
    """All processes below `pid`."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *children_of(child)]
    return found


def percent_of(pids: list[int], seconds: float) -> float:
    """The processor time of processes over the next seconds, in percent of a core."""
    before = sum(map(processor_s, pids))
    started_s = time.monotonic()
    time.sleep(seconds)
    return 100 * (sum(map(processor_s, pids)) - before) / (time.monotonic() - started_s)


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
