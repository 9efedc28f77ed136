"""An engine that Gearshift starts by a command, on a port of its own."""

import asyncio
import logging
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from gearshift.runtime.engines.replicas.own_key import with_key
from gearshift.runtime.engines.replicas.supervise import ANY_CORES, GRACE_S, kill
from gearshift.runtime.remote.masking import Mask

SUPERVISOR = "gearshift.runtime.engines.replicas.supervise"
LAST_LINES = 20
LONGEST_LINE = 500
LAST_WORDS_S = 0.5
"""For what an engine said last, after its end: others may hold its output open for ever."""

log = logging.getLogger(__name__)


class EngineProcess:
    """One run of `command`, which is made for a free port (of `find_port`); it ends with this process.

    Nobody keeps the port for it: another process may take it first.

    It is told `key` by its environment. `ended` is set when it has ended; `last_lines` are of its
    output, with the key hidden.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[int], Sequence[str]],
        *,
        folder: Path,
        environment: Mapping[str, str],
        cores: frozenset[int] = frozenset(),
        find_port: Callable[[], int] | None = None,
        key: str | None = None,
    ) -> None:
        self._mask = Mask(key)
        self._find_port = find_port or free_port
        self._name, self._command, self._folder = name, command, folder
        self._environment, self._cores = with_key(dict(environment), key), cores
        self.port = 0
        self.ended = asyncio.Event()
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.port = self._find_port()
        cores = ",".join(map(str, sorted(self._cores))) or ANY_CORES
        self._process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-P",
                "-m",
                SUPERVISOR,
                cores,
                *self._command(self.port),
            ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self._folder,
            env=self._environment,
            start_new_session=True,
        )
        self._watching = asyncio.create_task(self._watch(self._process))

    async def stop(self) -> None:
        """End it, and all that it has started; returns when it is gone.

        The process that looks after it ends it, and is killed where it does not.
        """
        process = self._process
        if process is None or self._watching is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(2 * GRACE_S):
                await asyncio.shield(self._watching)
        except TimeoutError:
            below = psutil.Process(process.pid).children(recursive=True) if process.returncode is None else []
            with suppress(ProcessLookupError):
                process.kill()
            kill(below)
            await self._watching

    @property
    def said(self) -> str:
        """The end of its output, for messages."""
        return " | ".join(line for line in list(self.last_lines)[-3:] if line)[-LONGEST_LINE:]

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Until it has ended: its output may end later, or earlier."""
        reading = asyncio.create_task(self._read(process))
        try:
            await process.wait()
            kill(_of_session(process.pid))
            await asyncio.wait({reading}, timeout=LAST_WORDS_S)
        finally:
            reading.cancel()
            self.ended.set()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        rest = b""
        assert process.stdout is not None
        while part := await process.stdout.read(1 << 16):
            *lines, rest = self._mask(rest + part).split(b"\n")  # before anything is cut off
            rest = rest[-LONGEST_LINE:]
            for line in lines:
                text = line[:LONGEST_LINE].decode(errors="replace").rstrip()
                self.last_lines.append(text)
                log.debug("%s: %s", self._name, text)


def _of_session(leader: int) -> Iterator[psutil.Process]:
    """Processes in the session of one that has ended, which has left them if it was killed."""
    for process in psutil.process_iter():
        with suppress(OSError):
            if os.getsid(process.pid) == leader and process.pid != leader:
                yield process


def free_port() -> int:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def is_taken(port: int) -> bool:
    """Whether a process listens on the port."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False


def engine_environment(cuda: str | None, threads: int) -> dict[str, str]:
    """This process's variables, without the server's own; with `CUDA_VISIBLE_DEVICES`, where given.

    Commands that are installed next to this Python are found by their name, after all others.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("GEARSHIFT_")}
    own["PATH"] = f"{own.get('PATH', os.defpath)}{os.pathsep}{Path(sys.executable).parent}"
    if threads:
        own["OMP_NUM_THREADS"] = str(threads)
    return own if cuda is None else own | {"CUDA_VISIBLE_DEVICES": cuda}
