"""The simulator is compiled once after an install or an update: told with the time left, and begun early."""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gearshift.support.compiling.ready import Kernel, is_ready
from gearshift.support.numbers import MOST_SHARE

Tell = Callable[[str, float], None]

ABOUT_S = 20.0
"""It takes 10 to 30 s of a processor."""
SIMULATES: dict[str, Sequence[Kernel]] = {
    "plan": ("gears", "refinement"),
    **dict.fromkeys(("compare", "explain", "report", "simulate", "validate"), ("gears",)),
}
"""The kernels that verbs need at their defaults, for plans of one operator."""
EVERY_S = 0.5
COMPILING = "compiling the simulator, once after an install or an update"
RUN = (
    "import runpy, sys; from gearshift.support.process_end import die_with_parent\n"
    "if die_with_parent({}): sys.argv = {!r}; runpy.run_module({!r}, run_name='__main__')"
)
LOGGER = "gearshift.support.compiled"
KERNEL = "gearshift.simulator.warm_up"


@contextmanager
def compiling_told(tell: Tell) -> Iterator[Tell]:
    """A `tell` that also shows a compilation, which tells nothing of itself, until there is other progress."""
    told = _Compilation(tell)
    logger = logging.getLogger(LOGGER)
    logger.addHandler(told)
    try:
        yield told.progressed
    finally:
        logger.removeHandler(told)
        told.end()


class _Compilation(logging.Handler):
    """Hears that a compilation begins; its log message is written as before."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell, self._ended = tell, threading.Event()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def progressed(self, what: str, share: float) -> None:
        self.end()
        self._tell(what, share)

    def end(self) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread, self._ended = None, threading.Event()

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._ended.wait(EVERY_S):
            self._tell(COMPILING, min(MOST_SHARE, (time.monotonic() - began_s) / ABOUT_S))


class Meanwhile:
    """Compiles the simulator in another process, from `begin` on; not where the user's cache has it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._began_s = 0.0

    def begin(self, kernels: Sequence[Kernel] = ("gears", "refinement")) -> None:
        if self._process is None and not all(map(is_ready, kernels)):
            nothing = subprocess.DEVNULL
            code = RUN.format(os.getpid(), ["", *("--refine" for each in kernels if each == "refinement")], KERNEL)
            self._process = subprocess.Popen([sys.executable, "-P", "-c", code], stdout=nothing, stderr=nothing)
            self._began_s = time.monotonic()

    def wait(self, tell: Tell) -> None:
        while self._process is not None and self._process.poll() is None:
            tell(COMPILING, min(MOST_SHARE, (time.monotonic() - self._began_s) / ABOUT_S))
            try:
                self._process.wait(EVERY_S)
            except subprocess.TimeoutExpired:
                continue

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def compiled_meanwhile(verb: str | None) -> Iterator[None]:
    """Begin with what `verb` is going to simulate with, beside the reading of its input; its first simulation waits."""
    meanwhile = Meanwhile()
    if verb in SIMULATES:
        meanwhile.begin(SIMULATES[verb])
    try:
        yield
    finally:
        meanwhile.end()
