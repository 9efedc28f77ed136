"""A server of language models over emulated engines at URLs: the server on the first core, all else on the others."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.two_language_models import write_language_plan

from gearshift.cascade import Cascade
from gearshift.profiles.engines.language_profile import LanguageProfile

START_S = 120.0


@dataclass(frozen=True, slots=True)
class Served:
    """Ports of the server, and of the engine of each model; and the server's process."""

    port: int
    engines: dict[str, int]
    process: psutil.Process


def cores_of_all() -> tuple[set[int], set[int]]:
    """The server's core, and the others'; the same one where there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    return {cores[0]}, set(cores[1:] or cores)


@contextmanager
def served(profile: LanguageProfile, cascades: Sequence[Cascade], *options: str, most: int) -> Iterator[Served]:
    """`most` bounds the requests that an engine has at a time."""
    own, others = cores_of_all()
    with tempfile.TemporaryDirectory() as name:
        folder, running, ports = Path(name), list[subprocess.Popen[bytes]](), dict[str, int]()
        plan = write_language_plan(folder, cascades, profile=profile, most_outstanding=most)
        try:
            for model in profile.models:
                command = ["gearshift.runtime.engines.emulated", str(folder / "profile"), "--model", model]
                running.append(_started(command, folder / f"{model}.log", others))
                ports[model] = _port(folder / f"{model}.log", running[-1])
            (folder / "gearshift.toml").write_text(_project(ports))
            serve = ["gearshift", "serve", str(plan), "--port", "0", "--project", str(folder / "gearshift.toml")]
            running.append(_started([*serve, *options], folder / "serve.log", own))
            port = _port(folder / "serve.log", running[-1])
            yield Served(port, ports, psutil.Process(running[-1].pid))
        finally:
            for process in reversed(running):
                process.terminate()
            for process in running:
                process.wait(30)


def _project(ports: dict[str, int]) -> str:
    models = "".join(
        f'[models.{model}.engine]\nurl = "http://127.0.0.1:{port}/v1"\nmodel = "{model}"\n'
        for model, port in ports.items()
    )
    return f'operator = "chat"\nprompts = "prompts.jsonl"\n{models}'


def _started(command: Sequence[str], log: Path, cores: set[int]) -> subprocess.Popen[bytes]:
    pinned = ["taskset", "-c", ",".join(map(str, sorted(cores)))]
    with log.open("w") as file:
        return subprocess.Popen([*pinned, sys.executable, "-P", "-m", *command], stdout=file, stderr=file)


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    due_s = time.monotonic() + START_S
    while time.monotonic() < due_s:
        if found := re.search(r"at http://127\.0\.0\.1:(\d+)", log.read_text()):
            return int(found[1])
        if process.poll() is not None:
            raise SystemExit(f"it ended: {log.read_text()}")
        time.sleep(0.05)
    raise SystemExit(f"it did not start: {log.read_text()}")
