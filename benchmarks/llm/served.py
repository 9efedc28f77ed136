"""A server of language models over engines at URLs, emulated or llama.cpp's: it has the first core, they the others."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

import psutil
from tests.two_language_models import write_language_plan

from gearshift.cascade import Cascade
from gearshift.demo.language import ENGINE
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.runtime.engines.replicas.engine_process import engine_environment, free_port

START_S = 120.0
PYTHON = (sys.executable, "-P", "-m")
LLAMAS = {"small": "small.gguf", "large": "medium.gguf"}
LLAMA_RUNNING = 8

Engines = Literal["emulated", "llama"]


@dataclass(frozen=True, slots=True)
class Served:
    """Ports of the server, and of the engine of each model; and the server's process."""

    port: int
    engines: dict[str, int]
    process: psutil.Process
    emulated: bool = True


def cores_of_all() -> tuple[set[int], set[int]]:
    """The server's core, and the others'; the same one where there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    return {cores[0]}, set(cores[1:] or cores)


@contextmanager
def served(
    profile: LanguageProfile, cascades: Sequence[Cascade], *options: str, most: int, engines: Engines = "emulated"
) -> Iterator[Served]:
    """`most` bounds the requests that an engine has at a time."""
    own, others = cores_of_all()
    with tempfile.TemporaryDirectory() as name:
        folder, running, ports = Path(name), list[subprocess.Popen[bytes]](), dict[str, int]()
        plan = write_language_plan(folder, cascades, profile=profile, most_outstanding=most)
        try:
            for model in profile.models:
                log = folder / f"{model}.log"
                if engines == "llama":
                    ports[model] = free_port()
                    running.append(_started(llama_command(model, ports[model]), log, others))
                    _await_health(ports[model], running[-1], log)
                    continue
                command = [*PYTHON, "gearshift.runtime.engines.emulated", str(folder / "profile"), "--model", model]
                running.append(_started(command, log, others))
                ports[model] = _port(log, running[-1])
            (folder / "gearshift.toml").write_text(_project(ports))
            serve = [
                *PYTHON,
                "gearshift",
                "serve",
                str(plan),
                "--port",
                "0",
                "--project",
                str(folder / "gearshift.toml"),
            ]
            running.append(_started([*serve, *options], folder / "serve.log", own))
            port = _port(folder / "serve.log", running[-1])
            yield Served(port, ports, psutil.Process(running[-1].pid), engines == "emulated")
        finally:
            for process in reversed(running):
                process.terminate()
            for process in running:
                process.wait(30)


def llama_command(model: str, port: int) -> list[str]:
    """llama.cpp's server with the tiny Llama that stands for the model."""
    file = files("gearshift.verbs.init") / "order_models" / LLAMAS[model]
    program = shutil.which(ENGINE, path=engine_environment(None, 0)["PATH"])
    if program is None:
        raise SystemExit(f"{ENGINE} is not installed (pip install 'gearshift[llm-demo]')")
    words = f"--alias {model} --host 127.0.0.1 --port {port} -t 1 -np {LLAMA_RUNNING} -c 4096 --metrics"
    return [program, "-m", str(file), *words.split(), "--skip-chat-parsing"]


def _await_health(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    due_s = time.monotonic() + START_S
    while time.monotonic() < due_s and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
            return
        time.sleep(0.05)
    raise SystemExit(f"llama.cpp's server did not start: {log.read_text(errors='replace')[-2000:]}")


def _project(ports: dict[str, int]) -> str:
    models = "".join(
        f'[models.{model}.engine]\nurl = "http://127.0.0.1:{port}/v1"\nmodel = "{model}"\n'
        for model, port in ports.items()
    )
    return f'operator = "chat"\nprompts = "prompts.jsonl"\n{models}'


def _started(command: Sequence[str], log: Path, cores: set[int]) -> subprocess.Popen[bytes]:
    pinned = ["taskset", "-c", ",".join(map(str, sorted(cores)))]
    with log.open("w") as file:
        return subprocess.Popen([*pinned, *command], stdout=file, stderr=file)


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    due_s = time.monotonic() + START_S
    while time.monotonic() < due_s:
        if found := re.search(r"at http://127\.0\.0\.1:(\d+)", log.read_text()):
            return int(found[1])
        if process.poll() is not None:
            raise SystemExit(f"it ended: {log.read_text()}")
        time.sleep(0.05)
    raise SystemExit(f"it did not start: {log.read_text()}")
