"""Make the pictures of the documents anew: `python docs/screenshots.py`, with playwright and Chromium, some minutes.

All but one are of projects that `gearshift init` writes: measured, planned and served here, so figures differ from run
to run; the page about language models is of made-up ones, as their engines are not everywhere.  Each page is taken
wide and light, narrow and dark, and as it is printed; `docs/images` gets the pictures that documents name.  Terminal
output is SVG, pages are PNG; together they are to stay below 1.5 MB.  A page of the documents says where a picture
stands, in `<!-- picture: NAME.png: what it shows -->`; the line after that is written here.  With `--whole FOLDER`
whole pages are written there too, to look at.
"""

import argparse
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
from gearshift.cascade import Cascade
from gearshift.traces.generate import steady
from gearshift.traces.read import write_trace

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.two_language_models import SMALL_ALONE, cascade, language_profile, write_language_plan

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
COLUMNS, ROWS = 100, 40
MOST_BYTES = 1_500_000
TRACE = [30] * 8 + [160] * 10 + [40] * 40
PLACE = re.compile(r"^<!-- picture: (\S+): (.*) -->\n(?:!\[.*\n)?", re.MULTILINE)
READY = re.compile(r"watch it at (http://\S+)/dashboard")
LOOKS = {
    "": (1100, 900, "light", "screen"),
    "-narrow": (390, 844, "dark", "screen"),
    "-print": (794, 1123, "light", "print"),
}
"""A window, a phone, and a sheet of A4."""
TERMINAL = {
    "terminal-plan": "gearshift plan profile --trace trace.csv --p95-ms {p95_ms} --ranges 4",
    "terminal-inspect": "gearshift inspect profile",
    "terminal-explain": "gearshift explain plan.json",
}

REPORTS = (
    "gearshift plan profile/read --trace trace.csv --rate-scale 2 --p95-ms {p95_ms} --devices 2 --ranges 4"
    " --budget-s 20 --what-if --out what-if.json",
    "gearshift report what-if.json --out report.html",
    "gearshift compare profile/read --trace trace.csv --rate-scale 2 --p95-ms {less_ms},{p95_ms},{more_ms}"
    " --devices 1,2 --ranges 4 --budget-s 10"
    " --planners optimal,coordinate,static-cascade,model-switching --out comparison.html",
)
"""Of the models that read digits, in the project of a graph: they differ more in time than those of one operator."""


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--whole", type=Path)
    arguments.add_argument("--p95-ms", type=int, default=100, help="longer where other programs keep the machine busy")
    asked = arguments.parse_args()
    whole: Path | None = asked.whole
    objective = {"less_ms": asked.p95_ms // 2, "p95_ms": asked.p95_ms, "more_ms": 2 * asked.p95_ms}
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as name:
        folder = Path(name)
        for line in ("gearshift init .", "gearshift profile"):
            run(line, folder)
        counts = "".join(f"{second},{count}\n" for second, count in enumerate(TRACE))
        (folder / "trace.csv").write_text(f"second,requests\n{counts}")
        for picture, form in TERMINAL.items():
            line = form.format(**objective)
            write_terminal(picture, line, run(line, folder))
        strips = project_of_strips(folder)
        pipeline = report_of_pipeline(strips, 2 * asked.p95_ms)
        for form in REPORTS:
            run(form.format(**objective), strips)
        reports = {
            "report": strips / "report.html",
            "comparison": strips / "comparison.html",
            "report-pipeline": pipeline,
            "report-language": report_of_language(folder),
        }
        with served(folder) as url, chromium() as browser:
            write_terminal("terminal-status", "gearshift status", run(f"gearshift status --url {url}", folder))
            sending = f"-m gearshift replay {url} --trace trace.csv --slo-ms {asked.p95_ms}".split()
            nowhere = subprocess.DEVNULL
            replay = subprocess.Popen([sys.executable, *sending], cwd=folder, stdout=nowhere, stderr=nowhere)
            with page(browser, 1000) as opened:
                opened.goto(f"{url}/dashboard")
                replay.wait()
                opened.screenshot(path=IMAGES / "dashboard.png", full_page=True)
            with page(browser, 390, "dark") as opened:
                opened.goto(f"{url}/dashboard")
                opened.locator("#replicas tr").first.wait_for()
                opened.screenshot(path=IMAGES / "dashboard-narrow.png", full_page=True)
            for name, path, height in (("front-page", "/", 560), ("docs-page", "/docs", 900)):
                with page(browser, 900, height=height) as opened:
                    opened.goto(url + path)
                    opened.screenshot(path=IMAGES / f"{name}.png")
            for name, path in reports.items():
                take_looks(browser, name, path, whole)
            with page(browser, 1100) as opened:
                opened.goto(reports["report"].as_uri())
                opened.locator("section").first.screenshot(path=IMAGES / "report-what-if.png")
            plan = gearshift.read_plan(folder / "plan.json")
            simulated = gearshift.simulate(plan, folder / "trace.csv", profile=folder / "profile")
            for name, shown in (("notebook-plan", plan), ("notebook-simulation", simulated)):
                with page(browser, 680) as opened:
                    opened.set_content(f'<body style="font:14px sans-serif;margin:20px">{shown._repr_html_()}')  # type: ignore[attr-defined]
                    opened.locator("body > div").screenshot(path=IMAGES / f"{name}.png")
    place_pictures()
    size = sum(path.stat().st_size for path in IMAGES.iterdir())
    sys.stdout.write(f"wrote {IMAGES}: {size:,} bytes\n")
    assert size <= MOST_BYTES, f"the pictures have more than {MOST_BYTES} bytes"


def project_of_strips(folder: Path) -> Path:
    """The project that `gearshift init --pipeline` writes, measured, with the trace."""
    place = folder / "strips"
    run("gearshift init --pipeline strips", folder)
    run("gearshift profile", place)
    shutil.copy(folder / "trace.csv", place)
    return place


def report_of_pipeline(place: Path, p95_ms: int) -> Path:
    """The page about a plan of the graph."""
    objective = f"--rate-scale 0.2 --p95-ms {p95_ms} --devices 2 --ranges 3"
    run(f"gearshift plan profile --trace trace.csv {objective} --out graph.json", place)
    run("gearshift report graph.json --out graph.html", place)
    return place / "graph.html"


def report_of_language(folder: Path) -> Path:
    """The page about three gears of two made-up language models."""
    place = folder / "language"
    place.mkdir()
    split = Cascade(models=("small", "large"), thresholds=(0.25,), decide_at_tokens=(0,))
    cascades = [cascade(-0.5, 4), split, SMALL_ALONE]
    write_language_plan(place, cascades, [0.0, 4.0, 9.0], profile=language_profile())
    write_trace(steady(150, 30, seed=1), place / "trace.csv")
    run("gearshift report plan.json --trace trace.csv --out report.html", place)
    return place / "report.html"


def take_looks(browser: Any, name: str, path: Path, whole: Path | None) -> None:
    """The head of a page as each of `LOOKS` has it, and the whole page for one who wants to see it."""
    wanted = named_pictures()
    for look, (width, height, scheme, media) in LOOKS.items():
        with page(browser, width, scheme, height) as opened:
            opened.goto(path.as_uri())
            if media == "print":
                opened.evaluate("dispatchEvent(new Event('beforeprint'))")
            opened.emulate_media(media=media, color_scheme=scheme)
            if f"{name}{look}.png" in wanted:
                opened.screenshot(path=IMAGES / f"{name}{look}.png")
            if whole is not None:
                whole.mkdir(parents=True, exist_ok=True)
                opened.screenshot(path=whole / f"{name}{look}.png", full_page=True)


def documents() -> list[Path]:
    return [DOCS.parent / "README.md", *DOCS.glob("guides/*.md")]


def named_pictures() -> set[str]:
    text = "".join(document.read_text() for document in documents())
    return {*re.findall(r"images/([\w-]+\.\w+)", text), *(found[1] for found in PLACE.finditer(text))}


def place_pictures() -> None:
    """Write the line of each picture after the comment that says where it stands."""
    for document in documents():
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
    with (folder / "said.txt").open("wb") as said:
        process = subprocess.Popen(words, cwd=folder, stdout=theirs, stderr=said)
    os.close(theirs)
    told = b""
    try:
        while part := os.read(ours, 1 << 16):
            told += part
    except OSError:  # the terminal's other end is closed
        pass
    os.close(ours)
    assert process.wait() == 0, f"{line}\n{told.decode()}\n{(folder / 'said.txt').read_text()}"
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
def page(browser: Any, width: int, scheme: str = "light", height: int = 900) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    yield context.new_page()
    context.close()


if __name__ == "__main__":
    main()
