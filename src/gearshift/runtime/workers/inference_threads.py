"""The threads that a worker's models compute with, changed in the thread that runs them."""

import sys
import time
from collections.abc import Sequence

from gearshift.models.onnx_file import OnnxFile
from gearshift.runtime.actuators.threads import SessionsByThreads, ThreadsActuator, torch_threads
from gearshift.runtime.wire.messages import ThreadsSet
from gearshift.runtime.wire.transport import shortened
from gearshift.support.processors import usable_processors


class InferenceThreads:
    """PyTorch's threads, and the sessions of ONNX files, made at once for each of `counts`."""

    def __init__(self, counts: Sequence[int]) -> None:
        self._counts = tuple(counts)
        self._sessions: list[tuple[OnnxFile, SessionsByThreads[object]]] = []
        self._actuator = ThreadsActuator(self._set)
        self._asked = self._in_use = 0
        self._since_ns = 0

    def add(self, model: object) -> None:
        if isinstance(model, OnnxFile) and self._counts:
            self._sessions.append((model, SessionsByThreads(model.make_session, self._counts)))

    def ask(self, threads: int) -> ThreadsSet:
        """Compute with this many threads, or with as many as this process may use processors."""
        self._asked = threads
        effect = self._actuator.apply(threads)
        return ThreadsSet(threads=int(effect.cores), since_ns=self._since_ns, problem=shortened(effect.problem))

    def follow(self) -> None:
        """Before a batch: adapt to processors gained or lost since the last request."""
        if self._asked and min(self._asked, usable_processors()) != self._in_use:
            self.ask(self._asked)

    def _set(self, threads: int) -> None:
        if threads == self._in_use:
            return
        if "torch" in sys.modules:
            torch_threads()(threads)
        for model, sessions in self._sessions:
            sessions.use(threads)
            model.session = sessions.session
        self._in_use, self._since_ns = threads, time.monotonic_ns()
