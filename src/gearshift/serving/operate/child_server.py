"""Run a server in a child process for the duration of a `with` block."""

import subprocess
import threading
from pathlib import Path
from types import TracebackType

from gearshift.errors import GearshiftError
from gearshift.serving.operate import with_parent
from gearshift.support.processors import pin

READY = " at http"
END_S = 20.0


class ServerEnded(GearshiftError):
    """The server ended before it was ready."""

    kind = "server_ended"


class ChildServer:
    """`gearshift serve` on a free port; `url` is set inside the block.

    It runs on `cores` only, if given, and ends when this process ends, in whatever way.
    """

    def __init__(self, plan: Path, *options: str, cores: frozenset[int] | None = None) -> None:
        self._command = with_parent.command("serve", str(plan), "--port", "0", *options)
        self._cores = cores
        self.url = ""
        self._reader: threading.Thread | None = None

    def __enter__(self) -> "ChildServer":
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        assert self._process.stderr is not None
        said = []
        try:
            if self._cores is not None:
                pin(self._cores, self._process.pid)
            for line in self._process.stderr:
                said.append(line.strip())
                if READY in line:
                    self.url = line.split(" at ")[1].split()[0]
                    self._reader = threading.Thread(target=self._process.stderr.read, daemon=True)
                    self._reader.start()
                    return self
        except BaseException:
            self._end()
            raise
        self._end()
        raise ServerEnded(f"the server ended before it was ready: {said[-1] if said else 'it said nothing'}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join(END_S)
        if self._process.stderr is not None:
            self._process.stderr.close()
