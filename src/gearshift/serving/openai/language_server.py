"""`serve` for language models: start or find their engines, answer OpenAI's API, and shut down in order."""

import asyncio
import gc
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from gearshift.clock import WallClock
from gearshift.objective import Metric
from gearshift.observability.journal import ARRIVALS, Journal, JournalFile
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.observability.logs import LogSettings, logging_to_stderr
from gearshift.observability.recent_events import RecentEvents
from gearshift.observability.tracing import Tracing, tracing_if
from gearshift.runtime.backends.local import available_cores
from gearshift.runtime.engines.replicas.engine_replica import EngineReplica
from gearshift.runtime.service.room import HeldBytes, Unsent
from gearshift.serving.door.bounds import most_waiting_bytes, with_memory_bounds
from gearshift.serving.door.deadline_headers import SendingTimes
from gearshift.serving.door.keys import Keys, read_keys
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.sockets import bound_sockets, is_loopback
from gearshift.serving.http.application import Application
from gearshift.serving.http.handlers import Handlers
from gearshift.serving.http.server import HttpServer
from gearshift.serving.openai.deployment import Deployment
from gearshift.serving.openai.handlers import OpenAIHandlers
from gearshift.serving.openai.language_swap import LanguageSwaps
from gearshift.serving.openai.language_task import LanguageTask, read_language_task, require_servable, served_text
from gearshift.serving.operate.control import Control
from gearshift.serving.operate.promise import promise_of
from gearshift.serving.operate.start_progress import Bar, start_told
from gearshift.serving.operate.task import BackendKind
from gearshift.serving.pages.front_page import text_call
from gearshift.serving.pages.live import Live
from gearshift.serving.serve import (
    LONGEST_END_S,
    OPEN_TO_ALL,
    done_before,
    ending_signals,
    reached,
    require_usable_files,
    run_loop,
)
from gearshift.support.event_loop import allow_many_connections, most_open_files, require_own_process
from gearshift.support.files import PathLike
from gearshift.support.processors import pinned

Read = Callable[[Path], LanguageTask]
Say = Callable[[str], None]

STARTING = "starting engines: {} of {} answer"
OTHER_FILES = 512
"""Open files beside those of requests: engines' pipes, kept connections, logs."""

log = logging.getLogger(__name__)


def serve_language(
    plan_path: PathLike,
    *,
    settings: ServerSettings,
    backend: BackendKind = "local",
    profile_path: PathLike | None = None,
    project_path: PathLike | None = None,
    journal_path: PathLike | None = None,
    say: Say = log.info,
    bar: Bar | None = None,
) -> int:
    """Serve the plan of language models as `serve` does other plans."""
    require_own_process("a server")
    require_servable(settings)
    read = partial(
        read_language_task,
        backend=backend,
        profile_path=None if profile_path is None else Path(profile_path),
        project_path=None if project_path is None else Path(project_path),
        available=available_cores(),
    )
    task = read(Path(plan_path))
    settings = with_memory_bounds(settings)
    require_usable_files(settings)
    keys = read_keys(settings.api_keys, settings.admin_keys)
    allow_many_connections()
    settings, doubt = with_files_for_engines(settings, most_open_files())
    journal = RecentEvents(Journal() if journal_path is None else JournalFile(Path(journal_path)))
    logs = logging_to_stderr(LogSettings(settings.log_level, settings.log_format))
    traces = tracing_if(settings.otel)
    with bound_sockets(settings.host, settings.port) as socks, pinned(task.router_cores), logs, traces as tracing:
        try:
            if doubt:
                log.warning(doubt)
            journal.write("start", plan=str(plan_path), backend=backend)
            if settings.api_keys is None and not all(map(is_loopback, socks)):
                log.warning(OPEN_TO_ALL)

            async def main() -> int:
                return await LanguageServer(task, read, settings, keys, journal, socks, say, tracing, bar).main()

            return run_loop(main())
        finally:
            journal.close()


def with_files_for_engines(settings: ServerSettings, files: int) -> tuple[ServerSettings, str]:
    """With as many connections of clients as can each have one to an engine beside it, and why they are fewer."""
    most = max(1, (files - OTHER_FILES) // 2)
    if settings.most_connections <= most:
        return settings, ""
    doubt = (
        f"most_connections is {settings.most_connections}, and is taken as {most}: {files} files may be open, and each "
        "request may need one to its client and one to an engine; raise the bound (ulimit -n)"
    )
    return msgspec.structs.replace(settings, most_connections=most), doubt


class LanguageServer:
    """The HTTP server, the service behind it and its engines, from start to shutdown."""

    def __init__(
        self,
        task: LanguageTask,
        read: Read,
        settings: ServerSettings,
        keys: Keys | None,
        journal: RecentEvents,
        socks: Sequence[socket.socket],
        say: Say,
        tracing: Tracing | None = None,
        bar: Bar | None = None,
    ) -> None:
        self._bar = bar
        self._task, self._settings, self._socks, self._say = task, settings, socks, say
        tables = task.tables
        self._metrics = LanguageMetrics(tables.pipeline, tables.models, tables.replicas)
        self._held, self._clock = HeldBytes(most_waiting_bytes(settings)), WallClock()
        self._held.elsewhere = unsent = Unsent()
        deployment = self._make(task, journal, ())
        deployment.service.trace.record = partial(_record_arrivals, journal, tables.pipeline)
        control, times = Control(deployment.operated, task.served), SendingTimes(settings.trust_clock_s)
        openai = OpenAIHandlers(
            deployment.service, largest_body_bytes=settings.largest_body_bytes, times=times, tracing=tracing
        )
        self._swaps = LanguageSwaps(
            control,
            openai,
            deployment,
            plans=None if settings.plans is None else Path(settings.plans),
            read=read,
            make=self._make,
            metrics=self._metrics,
            journal=journal,
        )
        self._live = Live(control, self._metrics.glance, journal, metric=self._metric)
        handlers = Handlers(
            control,
            (),
            largest_body_bytes=settings.largest_body_bytes,
            metrics=self._metrics,
            tracing=tracing,
            swaps=self._swaps,
            times=times,
            events=journal,
            promise=lambda: promise_of(self._swaps.deployment.task.plan),
            live=self._live,
            has_dashboard=settings.dashboard,
        )
        application = Application(
            handlers, keys=keys, names=settings.names, others=openai.routes, texts=[served_text(task)]
        )
        self._http = HttpServer(application, settings, count_unsent=unsent.count)
        self._first_signal, self._second_signal = asyncio.Event(), asyncio.Event()

    def _make(self, task: LanguageTask, journal: Journal, running: Sequence[EngineReplica]) -> Deployment:
        return Deployment(
            task,
            self._settings,
            held=self._held,
            clock=self._clock,
            metrics=self._metrics,
            journal=journal,
            running=running,
        )

    def _metric(self) -> Metric:
        """The one that the objective of the plan in force is of."""
        metric = self._swaps.deployment.task.plan.pipeline.objective.metric
        return "latency" if metric is msgspec.UNSET else metric

    async def main(self) -> int:
        loop = asyncio.get_running_loop()
        ending = ending_signals()
        for number in ending:
            loop.add_signal_handler(number, self._signalled)
        await self._http.start(*self._socks)
        self._live.start()
        try:
            if not await done_before(self._start(), self._first_signal):
                return 0
            gc.collect()
            gc.freeze()  # existing objects stay: collections while serving are short
            self._say(self._ready_line())
            if self._settings.dashboard:
                self._say(f"watch it at {self._origin()}/dashboard")
            self._say(f"try: {self._example()}")
            await self._first_signal.wait()
            self._http.stop_listening()
            drained = await done_before(self._swaps.drain(self._settings.drain_s), self._second_signal)
            return 0 if drained else 1
        finally:
            self._live.stop()
            self._swaps.deployment.service.trace.end(self._clock.now_ns())
            await self._swaps.stop()
            await self._http.stop(0 if self._second_signal.is_set() else LONGEST_END_S)
            for number in ending:
                loop.remove_signal_handler(number)

    async def _start(self) -> None:
        """Start all engines; raises `ModelFailed` where one does not answer."""
        deployment = self._swaps.deployment
        async with start_told(STARTING, deployment.engines_ready, 0.0, self._say, self._bar):
            await deployment.start_engines()
        self._swaps.deployment.serve()

    def _signalled(self) -> None:
        if self._first_signal.is_set():
            self._second_signal.set()
        self._first_signal.set()

    def _origin(self) -> str:
        host, port = self._socks[0].getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        secure = "" if self._settings.tls_certificate is None else "s"
        return f"http{secure}://{host}:{port}"

    def _example(self) -> str:
        settings = self._settings
        has_keys, certificate = settings.api_keys is not None, settings.tls_certificate
        return text_call(served_text(self._task), reached(self._origin()), has_keys=has_keys, certificate=certificate)

    def _ready_line(self) -> str:
        tables = self._task.tables
        placed = [tables.models[model] for model in tables.replica_model]
        counts = [f"{placed.count(model)} of {model}" for model in tables.models if model in placed]
        return f"serving {tables.pipeline} at {self._origin()}/v1 (engines: {', '.join(counts)})"


def _record_arrivals(journal: Journal, pipeline: str, requests: list[int], past_s: float) -> None:
    """Plans swapped in later take this over with the counter."""
    journal.write(ARRIVALS, pipeline=pipeline, requests=requests, past_s=round(past_s, 3))
