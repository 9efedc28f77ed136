"""The worker: a separate process that loads the models of one device set and runs their batches.

`python -m gearshift.runtime.workers.worker --fd N --cores 1,3`, started by `worker_process.py`. It
ends when its socket does, and the kernel kills it with the thread that started it: no worker
outlives its router.
"""

import argparse
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from gearshift.errors import GearshiftError, ModelFailed
from gearshift.models.onnx_file import OnnxFile
from gearshift.models.user_model import UserModel
from gearshift.observability.logs import Form, Level, LogSettings, logging_to_stderr
from gearshift.runtime.actuators.affinity import AffinityActuator
from gearshift.runtime.actuators.cgroup import CgroupActuator
from gearshift.runtime.actuators.threads import SessionsByThreads, ThreadsActuator, torch_threads
from gearshift.runtime.wire.messages import (
    Adopt,
    Adopted,
    Load,
    Ping,
    Pong,
    Release,
    Run,
    SetThreads,
    Stop,
    ThreadsSet,
)
from gearshift.runtime.wire.transport import BlockingConnection, EndOfStream, shortened
from gearshift.runtime.workers.batch_run import run_batch
from gearshift.runtime.workers.cache_attendant import attend
from gearshift.runtime.workers.loading import Held, load_all
from gearshift.support.kept_memory import keep_freed_memory
from gearshift.support.process_end import die_with_parent
from gearshift.support.processors import pin, usable_processors


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


OOM_SCORE, MOST_OOM_SCORE, SOONER = Path("/proc/self/oom_score_adj"), 1000, 500
"""The score counts thousandths of memory: a worker is killed before a router with half of it."""
ORDERS = SetThreads, Release
"""Messages that may overtake a queued batch and set its core count."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="gearshift.runtime.workers.worker")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--cores", default="", help="processors to run on, by number")
    parser.add_argument("--parent", type=int, required=True, help="process that started this one")
    parser.add_argument("--log-level", choices=get_args(Level), default="info")
    parser.add_argument("--log-format", choices=get_args(Form), default="text")
    arguments = parser.parse_args()
    os.set_inheritable(arguments.fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not die_with_parent(arguments.parent):
        return 0
    be_killed_first()
    if arguments.cores:
        pin({int(core) for core in arguments.cores.split(",")})
    logs = LogSettings(arguments.log_level, arguments.log_format)
    with socket.socket(fileno=arguments.fd) as sock, logging_to_stderr(logs, process="worker"):
        try:
            return main_loop(BlockingConnection(sock))
        except (EndOfStream, OSError):
            return 0


def be_killed_first() -> None:
    """So that out of memory it is killed before its parent, which can start another."""
    with contextlib.suppress(OSError, ValueError):
        score = int(OOM_SCORE.read_text())
        OOM_SCORE.write_text(str(min(score + SOONER, MOST_OOM_SCORE)))


def main_loop(connection: BlockingConnection) -> int:
    """Return 1 if a model cannot be loaded; raises `EndOfStream` or `OSError` if the peer ends."""
    replicas: dict[int, Held] = {}
    threads = InferenceThreads(())
    while True:
        message, body = connection.receive()
        match message:
            case Load(adaptation=settings) if settings is not None:
                return attend(message, connection)
            case Load():
                keep_freed_memory()
                try:
                    load_all(message, replicas, connection)
                except ModelFailed:
                    return 1
                connection.awake_s = message.awake_s
                threads = InferenceThreads(message.thread_counts)
                for held in replicas.values():
                    threads.add(getattr(held.model, "model", None))
            case SetThreads() | Release():
                obey(message, threads, connection)
            case Run():
                for order in connection.take_arrived(ORDERS):  # sent after the batch, but for it
                    obey(order, threads, connection)
                threads.follow()
                held = replicas[message.replica]
                with held.stream:
                    run_batch(held.name, held.model, message, body, connection.send)
            case Adopt():
                held = replicas[message.replica]
                with held.stream:
                    adopted = adopt(held.model, message, body)
                connection.send(adopted)
            case Ping():
                connection.send(Pong())
            case Stop():
                return 0


def obey(order: SetThreads | Release, threads: InferenceThreads, connection: BlockingConnection) -> None:
    """Set the next batch's cores; later actuators report those that cannot be released."""
    if isinstance(order, SetThreads):
        connection.send(threads.ask(order.threads))
        return
    AffinityActuator(os.getpid(), order.processors).apply(len(order.processors))
    if order.group:
        with contextlib.suppress(GearshiftError, OSError, ValueError):
            CgroupActuator(Path(order.group)).apply(order.cores)


def adopt(model: UserModel, message: Adopt, weights: memoryview) -> Adopted:
    """Use another version of learned caches; on failure the model stays as it is."""
    own: Any = getattr(model, "model", None)
    if not hasattr(own, "adopt"):
        return Adopted(replica=message.replica, problem="the model has no learned caches")
    try:
        version = own.adopt(message.manifest, bytes(weights), message.off)
    except Exception as error:  # noqa: BLE001  user code may raise anything
        return Adopted(replica=message.replica, problem=shortened(f"{type(error).__name__}: {error}"))
    return Adopted(replica=message.replica, version=version)


if __name__ == "__main__":
    sys.exit(main())
