"""llama.cpp's server, where it is installed (`pip install 'gearshift[llm-demo]'`) and runs on this processor."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from gearshift.measuring.engines.endpoint import Endpoint
from gearshift.models.language_config import EngineSettings
from gearshift.profiles.engines.prompts import Prompt
from gearshift.runtime.engines.replicas.engine_process import free_port

COMMAND = "llama-server-vulkan"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


@cache
def why_no_llama() -> str:
    """Empty where llama.cpp's server runs here; a build for another processor dies of an unknown instruction."""
    found = shutil.which(COMMAND, path=PATH)
    if found is None:
        return f"{COMMAND} is not installed"
    done = subprocess.run([found, "--version"], capture_output=True, timeout=60, check=False)
    return "" if done.returncode == 0 else f"{COMMAND} --version ended with {done.returncode}"


needs_llama = pytest.mark.skipif(bool(why_no_llama()), reason=why_no_llama() or "it is there")


@contextmanager
def llama_server(settings: EngineSettings, folder: Path) -> Iterator[str]:
    """The URL of an engine that was started by its command in `folder`."""
    port = free_port()
    words = settings.argv(port=port)
    environment = os.environ | {"PATH": PATH}
    program = shutil.which(words[0], path=PATH)
    assert program is not None
    with subprocess.Popen(
        [program, *words[1:]], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _until_healthy(process, port)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


def _until_healthy(process: subprocess.Popen[bytes], port: int) -> None:
    due_s = time.monotonic() + 60
    while time.monotonic() < due_s and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the engine does not answer")


def answers_of(url: str, model: str, prompts: Sequence[Prompt], *, most_tokens: int = 40) -> list[str]:
    settings = EngineSettings(url=url, model=model)

    async def ask() -> list[str]:
        endpoint = Endpoint(model, settings, url)
        try:
            return [(await endpoint.ask(prompt, most_tokens=most_tokens)).answer for prompt in prompts]
        finally:
            endpoint.close()

    return asyncio.run(ask())
