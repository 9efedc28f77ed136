"""Engines that leave processes behind, and what becomes of those."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import psutil
import pytest

from gearshift.runtime.engines.replicas.engine_process import EngineProcess, engine_environment
from gearshift.support.event_loop import loop_factory

CHILD = "import time; print('child is there', flush=True); time.sleep(600)"
LEAVES = f"""
import os, subprocess, sys, time
one = subprocess.Popen([sys.executable, "-c", {CHILD!r}], start_new_session=sys.argv[1] == "own session")
print("pid", one.pid, flush=True)
if sys.argv[2] == "stays":
    time.sleep(600)
"""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("pid", os.getpid(), flush=True)
time.sleep(600)
"""


KEY = "sk-very-secret"
TELLS_ITS_KEY = """
import os, sys
key = sys.argv[1]
for part in ("x" * 495 + key + "y" * 495 + "\\n", "api_key: ", key[:5], key[5:], "\\n"):
    os.write(1, part.encode())
"""


def with_engine(command: list[str], use: Callable[[EngineProcess], Awaitable[None]]) -> None:
    async def main() -> None:
        environment = engine_environment(None, 0)
        engine = EngineProcess("e-0", lambda port: command, folder=Path.cwd(), environment=environment, key=KEY)
        async with asyncio.timeout(30):
            await engine.start()
            try:
                await use(engine)
            finally:
                await engine.stop()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


async def child_of(engine: EngineProcess) -> int:
    """The process that it says it has started."""
    while True:
        for line in engine.last_lines:
            if line.startswith("pid "):
                return int(line.split()[1])
        await asyncio.sleep(0.005)


def supervisor_of(pid: int) -> psutil.Process:
    """The process that looks after the engine."""
    above = psutil.Process(pid).parents()
    return next(process for process in above if "gearshift.runtime.engines.replicas.supervise" in process.cmdline())


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("session", ["same session", "own session"])
def test_to_stop_an_engine_ends_all_that_it_has_started(session: str) -> None:
    async def use(engine: EngineProcess) -> None:
        child = await child_of(engine)
        assert lives(child)
        await engine.stop()
        assert engine.ended.is_set()
        assert not lives(child)

    with_engine([sys.executable, "-c", LEAVES, session, "stays"], use)


@pytest.mark.parametrize("session", ["same session", "own session"])
def test_an_engine_whose_child_keeps_its_output_open_has_ended(session: str) -> None:
    async def use(engine: EngineProcess) -> None:
        child = await child_of(engine)
        await engine.ended.wait()
        assert not lives(child)

    with_engine([sys.executable, "-c", LEAVES, session, "ends"], use)


def test_an_engine_that_outlives_the_process_that_looks_after_it_is_ended() -> None:
    async def use(engine: EngineProcess) -> None:
        child = await child_of(engine)
        supervisor = supervisor_of(child)
        os.kill(supervisor.pid, signal.SIGKILL)
        await engine.ended.wait()
        while lives(child):
            await asyncio.sleep(0.005)

    with_engine([sys.executable, "-c", LEAVES, "same session", "stays"], use)


@pytest.mark.long
def test_engines_that_ignore_every_signal_that_can_be_are_killed() -> None:
    async def use(engine: EngineProcess) -> None:
        own = await child_of(engine)
        supervisor = supervisor_of(own)
        await engine.stop()
        assert not lives(own)
        assert not lives(supervisor.pid)

    with_engine([sys.executable, "-c", STUBBORN], use)


@pytest.mark.long
def test_a_supervisor_that_hangs_is_killed_with_its_engine() -> None:
    async def use(engine: EngineProcess) -> None:
        child = await child_of(engine)
        supervisor = supervisor_of(child)
        os.kill(supervisor.pid, signal.SIGSTOP)
        await engine.stop()
        assert not lives(supervisor.pid)
        assert not lives(child)

    with_engine([sys.executable, "-c", LEAVES, "own session", "stays"], use)


def test_an_engine_that_tells_its_key_is_heard_without_it() -> None:
    async def use(engine: EngineProcess) -> None:
        await engine.ended.wait()
        assert list(engine.last_lines) == ["x" * 495 + "***yy", "api_key: ***"]

    with_engine([sys.executable, "-c", TELLS_ITS_KEY, KEY], use)


TELLS_WHERE = """
import hashlib, os
for name in ("GEARSHIFT_ENGINE_KEY", "VLLM_API_KEY", "LLAMA_API_KEY"):
    print(hashlib.sha256(os.environ[name].encode()).hexdigest())
"""


def test_an_engine_is_told_its_key_by_variables_and_no_argument() -> None:
    async def use(engine: EngineProcess) -> None:
        arguments = " ".join(word for one in psutil.Process().children(recursive=True) for word in one.cmdline())
        await engine.ended.wait()
        assert list(engine.last_lines) == [sha256(KEY.encode()).hexdigest()] * 3
        assert "GEARSHIFT_ENGINE_KEY" in arguments  # its own are among them
        assert KEY not in arguments

    with_engine([sys.executable, "-c", TELLS_WHERE], use)
