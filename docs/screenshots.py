"""Make the pictures of the documents anew: `python docs/screenshots.py`, with playwright and Chromium, two minutes.

All are of a project that `gearshift init` writes: measured, planned and served here, so figures differ from run to run.
Terminal output is SVG, pages are PNG; together they are to stay below 1.5 MB.  A page of the documents says where a
picture stands, in `<!-- picture: NAME.png: what it shows -->`; the line after that is written here.
"""

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

import gearshift

IMAGES = Path(__file__).parent / "images"
COLUMNS, ROWS = 100, 40
MOST_BYTES = 1_500_000
TRACE = [30] * 8 + [160] * 10 + [40] * 40
PLACE = re.compile(r"^<!-- picture: (\S+): (.*) -->\n(?:!\[.*\n)?", re.MULTILINE)
READY = re.compile(r"watch it at (http://\S+)/dashboard")
TERMINAL = {
    "terminal-plan": "gearshift plan profile --trace trace.csv --p95-ms 100 --ranges 4",
    "terminal-inspect": "gearshift inspect profile",
    "terminal-explain": "gearshift explain plan.json",
}


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as name:
        folder = Path(name)
        for line in ("gearshift init .", "gearshift profile"):
            run(line, folder)
        counts = "".join(f"{second},{count}\n" for second, count in enumerate(TRACE))
        (folder / "trace.csv").write_text(f"second,requests\n{counts}")
        for picture, line in TERMINAL.items():
            write_terminal(picture, line, run(line, folder))
        run("gearshift report plan.json --out report.html", folder)
        with served(folder) as url, chromium() as browser:
            write_terminal("terminal-status", "gearshift status", run(f"gearshift status --url {url}", folder))
            replay = subprocess.Popen(
                [sys.executable, "-m", "gearshift", "replay", url, "--trace", "trace.csv", "--slo-ms", "100"],
                cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            with page(browser, 1000) as opened:
                opened.goto(f"{url}/dashboard")
                replay.wait()
                opened.screenshot(path=IMAGES / "dashboard.png", full_page=True)
            with page(browser, 390, "dark") as opened:
                opened.goto(f"{url}/dashboard")
                opened.locator("#replicas tr").first.wait_for()
                opened.screenshot(path=IMAGES / "dashboard-narrow.png", full_page=True)
            for name, path in (("front-page", "/"), ("docs-page", "/docs")):
                with page(browser, 900) as opened:
                    opened.goto(url + path)
                    opened.screenshot(path=IMAGES / f"{name}.png")
            with page(browser, 1000) as opened:
                opened.goto((folder / "report.html").as_uri())
                opened.screenshot(path=IMAGES / "report.png")
            plan = gearshift.read_plan(folder / "plan.json")
            simulated = gearshift.simulate(plan, folder / "trace.csv", profile=folder / "profile")
            for name, shown in (("notebook-plan", plan), ("notebook-simulation", simulated)):
                with page(browser, 680) as opened:
                    opened.set_content(f'<body style="font:14px sans-serif">{shown._repr_html_()}')  # type: ignore[attr-defined]
                    opened.locator("body > div").screenshot(path=IMAGES / f"{name}.png")
    place_pictures()
    size = sum(path.stat().st_size for path in IMAGES.iterdir())
    sys.stdout.write(f"wrote {IMAGES}: {size:,} bytes\n")
    assert size <= MOST_BYTES, f"the pictures have more than {MOST_BYTES} bytes"


def place_pictures() -> None:
    """Write the line of each picture after the comment that says where it stands."""
    for document in (IMAGES.parents[1] / "README.md", *IMAGES.parent.glob("guides/*.md")):
        text = document.read_text()
        folder = os.path.relpath(IMAGES, document.parent)
        placed = PLACE.sub(rf"<!-- picture: \1: \2 -->\n![\2]({folder}/\1)\n", text)
        if placed != text:
            document.write_text(placed)


def run(line: str, folder: Path) -> str:
    """What a command writes to a terminal of `COLUMNS`; its progress on standard error is left out."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    words = [sys.executable, "-m", *line.split()]
    process = subprocess.Popen(words, cwd=folder, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    told = b""
    try:
        while part := os.read(ours, 1 << 16):
            told += part
    except OSError:  # the terminal's other end is closed
        pass
    os.close(ours)
    assert process.wait() == 0, f"{line}\n{told.decode()}"
    return told.decode().replace("\r\n", "\n")


def write_terminal(picture: str, line: str, told: str) -> None:
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere)
        console.print(Text.from_ansi(f"$ {line}\n{told}"))
        svg = console.export_svg(title="gearshift")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # no font from elsewhere
    (IMAGES / f"{picture}.svg").write_text("\n".join(each.rstrip() for each in svg.splitlines()) + "\n")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "gearshift", "serve", "plan.json", "--port", "0"]
    server = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        yield next(found[1] for line in server.stderr if (found := READY.search(line)))
    finally:
        server.terminate()
        server.communicate()


@contextmanager
def chromium() -> Iterator[Any]:
    with sync_playwright() as tool:
        found = shutil.which("chromium") or shutil.which("google-chrome")
        browser = tool.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextmanager
def page(browser: Any, width: int, scheme: str = "light") -> Iterator[Any]:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    yield context.new_page()
    context.close()


if __name__ == "__main__":
    main()
