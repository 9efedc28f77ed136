"""The commands that README and guides show work as they are written."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

import pytest

from tests.llama import COMMAND, why_no_llama
from tests.scaled_task import write_scaled_task

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^<!-- (?:run|file: (\S+)) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LONGEST_S = 600.0
SHORT = ("README",)
"""Pages that `make test` runs too; the others take ten seconds to half a minute each."""
NOT_VALID = 4
ENGINE = "tests.programs.orders_engine"
"""Stands in for llama.cpp's server where that is not installed."""
MEASURING = ("gearshift replay", "gearshift validate")
PORTS = ("8000", "8001")
"""Those that pages show; a free one stands in for each."""


def commands_of(page: Path) -> list[str]:
    """The command lines of a page's blocks that are marked to be run."""
    lines = [line for file, block in BLOCK.findall(page.read_text()) if not file for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines), "a block that is run holds commands alone"
    return [line.removeprefix("$ ") for line in lines]


def files_of(page: Path) -> dict[str, str]:
    """The files that a page shows, by name."""
    return {file: block for file, block in BLOCK.findall(page.read_text()) if file}


def pages() -> list[Path]:
    return [p for p in (ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))) if commands_of(p)]


class Shell:
    """Runs command lines one after another as a person would, with servers in the background, jobs from 1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "work").mkdir()
        self.place = folder / "work"
        for name, arguments in (("gearshift", "-m gearshift"), ("python", "")):
            program = folder / "bin" / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
            program.chmod(0o755)
        if why_no_llama():
            program = folder / "bin" / COMMAND
            program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}:$PYTHONPATH" exec "{sys.executable}" -m {ENGINE} "$@"\n')
            program.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        self.ports = {port: free_port() for port in PORTS}
        self.jobs: dict[int, subprocess.Popen[str]] = {}

    def run(self, line: str) -> str:
        """What the line prints, where it is not one of a server."""
        line = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda shown: self.ports[shown[0]], line)
        if line.startswith("cd "):
            self.place /= line.removeprefix("cd ")
        elif line.endswith("&"):
            self.serve(line.removesuffix("&").strip())
        elif line.startswith("kill %"):
            job = int(line.removeprefix("kill %"))
            assert job in self.jobs, line
            assert self.end(job) == 0
        elif not line.startswith("curl ") or shutil.which("curl"):
            return self.do(line)
        return ""

    def do(self, line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.place, env=self.environment, capture_output=True, text=True,
            timeout=LONGEST_S, check=False,
        )  # fmt: skip
        busy = done.returncode == NOT_VALID and line.startswith(MEASURING)  # the machine, not the command
        assert done.returncode == 0 or busy, f"{line}\n{done.stdout}\n{done.stderr}"
        assert '"error"' not in done.stdout, f"{line}\n{done.stdout}"
        return done.stdout

    def serve(self, line: str) -> None:
        server = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=self.place, env=self.environment, stderr=subprocess.PIPE, text=True
        )
        self.jobs[max(self.jobs, default=0) + 1] = server
        assert server.stderr is not None
        said = []
        for told in server.stderr:
            said.append(told)
            if "serving " in told:
                return
        raise AssertionError("".join(said))

    def end(self, job: int = 1) -> int:
        server = self.jobs.pop(job, None)
        if server is None:
            return 0
        assert server.stderr is not None
        server.send_signal(signal.SIGTERM)
        with server.stderr:
            return server.wait(LONGEST_S)

    def end_all(self) -> None:
        for job in list(self.jobs):
            self.end(job)


def free_port() -> str:
    """A free one of those that the system gives to nobody who asks for any, so that it is free later too."""
    first_of_any = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = SystemRandom().randrange(first_of_any // 2, first_of_any)
        with suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", port))
            return str(port)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.long] * (page.stem not in SHORT), id=page.stem) for page in pages()],
)
def test_commands_of_a_page_work_in_the_order_in_which_they_stand(page: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for name, text in files_of(page).items():
        (shell.place / name).write_text(text)
    try:
        for line in commands_of(page):
            shell.run(line)
    finally:
        shell.end_all()


def test_the_simulation_with_deadlines_that_is_shown_tells_how_requests_end(tmp_path: Path) -> None:
    write_scaled_task(tmp_path)
    (tmp_path / "trace.csv").write_text("second,requests\n0,20\n1,400\n")
    (program,) = files_of(ROOT / "docs" / "guides" / "deadlines.md").values()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = dict(line.split() for line in done.stdout.splitlines())
    answered, infeasible = int(told["answered"]), int(told["infeasible"])
    assert min(answered, infeasible) > 0
    assert told["late"] == f"{infeasible / (answered + infeasible):.1%}"


def test_readme_shows_every_verb_of_the_path_from_models_to_answers() -> None:
    shown = " ".join(commands_of(ROOT / "README.md"))
    for verb in ("init", "profile", "plan", "simulate", "inspect", "report", "serve", "replay", "validate"):
        assert f"gearshift {verb}" in shown
