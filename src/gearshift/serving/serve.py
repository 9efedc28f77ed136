"""`serve`: read a plan, load its models, answer requests and shut down in order."""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gearshift.clock import WallClock
from gearshift.errors import require
from gearshift.models.loaded_from import changes
from gearshift.observability.journal import ARRIVALS, Journal, JournalFile
from gearshift.observability.logs import LogSettings, logging_to_stderr
from gearshift.observability.metrics import Metrics
from gearshift.observability.recent_events import RecentEvents
from gearshift.observability.tracing import Tracing, tracing_if
from gearshift.runtime.actuators.cgroup import quota_cores, quota_warning
from gearshift.runtime.backends.local import available_cores
from gearshift.runtime.backends.workers_backend import WorkersBackend
from gearshift.runtime.service.answers import QUEUE_FULL
from gearshift.runtime.service.room import Unsent
from gearshift.runtime.service.service import Service
from gearshift.serving.door.bounds import limits_of, with_memory_bounds
from gearshift.serving.door.deadline_headers import SendingTimes
from gearshift.serving.door.keys import Keys, read_keys
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.sockets import bound_sockets, is_loopback, server_context
from gearshift.serving.front_ends.front_ends import FrontEnds
from gearshift.serving.front_ends.front_messages import Serve
from gearshift.serving.http.application import Application
from gearshift.serving.http.handlers import Handlers
from gearshift.serving.http.server import HttpServer
from gearshift.serving.operate.assembly import make_cache_adaptation, make_service
from gearshift.serving.operate.control import Control
from gearshift.serving.operate.promise import promise_of
from gearshift.serving.operate.replan import Replans
from gearshift.serving.operate.scaling import holds_cores
from gearshift.serving.operate.start_progress import Bar, expected_start_s, start_told
from gearshift.serving.operate.swap import Swaps
from gearshift.serving.operate.task import BackendKind, Read, ServingTask, read_task
from gearshift.serving.pages.front_page import example_call
from gearshift.serving.pages.live import Live
from gearshift.support.event_loop import allow_many_connections, require_own_process
from gearshift.support.extras import load_extra
from gearshift.support.files import PathLike
from gearshift.support.processors import pin, pinned

if TYPE_CHECKING:
    from gearshift.serving.grpc.server import GrpcServer

MIB = 1 << 20
Say = Callable[[str], None]

LOADING = "loading models: {} of {} replicas are ready"
MOST_EXAMPLES = 5
LONGEST_END_S = 5
"""Bound on closing HTTP connections after all accepted requests have ended."""

OPEN_TO_ALL = (
    "warning: other machines can reach this server, and it asks nobody for a key; "
    "give --api-keys, or listen on 127.0.0.1 alone"
)

log = logging.getLogger(__name__)


def serve(
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
    """Serve the plan until SIGTERM or SIGINT; return the exit code.

    The plan names its profile, and the profile its project; `profile_path` (a folder) and
    `project_path` (a `gearshift.toml`) override where these are.  After the first signal every
    accepted request is answered within `settings.drain_s`, and the exit code is 0; a second signal
    ends the server at once, with 1.  Raises `InvalidInput` for an unusable plan, profile, port,
    key file or certificate, `ModelFailed` for a model that cannot be loaded; nothing is left
    running.  How far loading is shows on a `bar`, or without one is told by `say`.
    """
    require_own_process("a server")
    read = partial(
        read_task,
        backend=backend,
        profile_path=None if profile_path is None else Path(profile_path),
        project_path=None if project_path is None else Path(project_path),
        available=available_cores(),
        scaled=holds_cores(settings),
        core_share=settings.core_share,
    )
    task = read(Path(plan_path))
    require_replannable(task, settings)
    settings = with_memory_bounds(settings)
    require_usable_files(settings)
    keys = read_keys(settings.api_keys, settings.admin_keys)
    allow_many_connections()
    journal = RecentEvents(Journal() if journal_path is None else JournalFile(Path(journal_path)))
    logs = logging_to_stderr(LogSettings(settings.log_level, settings.log_format))
    traces = tracing_if(settings.otel)
    bound = bound_sockets(settings.host, settings.port, shared=settings.front_ends > 1)
    with bound as socks, pinned(task.router_cores), logs, traces as tracing:
        try:
            journal.write("start", plan=str(plan_path), backend=backend)
            if settings.api_keys is None and not all(map(is_loopback, socks)):
                log.warning(OPEN_TO_ALL)
            tell_changes(task)
            tell_quota(task, quota_cores())

            async def main() -> int:
                later = partial(_read_and_tell, read)
                return await ServerProcess(task, later, settings, keys, journal, socks, say, tracing, bar).main()

            return run_loop(main())
        finally:
            journal.close()


def require_usable_files(settings: ServerSettings) -> None:
    if settings.plans is not None:
        require(Path(settings.plans).is_dir(), "no such folder", where=settings.plans, remedy="make it, for plans")
    if settings.tls_certificate is not None and settings.tls_key is not None:
        server_context(settings.tls_certificate, settings.tls_key)


def require_replannable(task: ServingTask, settings: ServerSettings) -> None:
    """Raise `InvalidInput` if anything but an operator under its own name is to be planned anew in the background."""
    names = [each.name for each in task.signatures]
    require(
        settings.replan == "off" or len(names) == 1,
        f"replan is {settings.replan!r}, and the plan has pipelines {names}: one can be planned anew while serving",
        remedy="serve with --replan off; plan anew from a trace of each, and use `gearshift swap`",
    )
    nodes = {name: node.operator for name, node in task.plan.pipelines[names[0]].nodes.items()}
    require(
        settings.replan == "off" or nodes == {names[0]: names[0]},
        f"replan is {settings.replan!r}, and pipeline {names[0]!r} has the nodes {sorted(nodes)}: "
        "an operator under its own name can be planned anew while serving",
        remedy="serve with --replan off; plan anew from a trace, and use `gearshift swap`",
    )


def _read_and_tell(read: Read, path: Path) -> ServingTask:
    task = read(path)
    tell_changes(task)
    return task


def tell_changes(task: ServingTask) -> None:
    for operator in task.operators.values():
        if operator.project is not None:
            for sentence in changes(operator.profile.loaded_from, operator.project):
                log.warning(sentence)


def tell_quota(task: ServingTask, quota: float) -> None:
    """Log if the plan's devices use more processors than control groups allow."""
    if task.device_cores is not None:
        planned = task.plan.hardware.pool_cores or task.plan.hardware.cores
        if sentence := quota_warning(planned + 1, "the plan", quota=quota):
            log.warning(sentence)


# The process -------------------------------------------------------------------------------------


def run_loop(main: Coroutine[Any, Any, int]) -> int:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


class ServerProcess:
    """The HTTP server and the service behind it, from start to shutdown."""

    def __init__(
        self,
        task: ServingTask,
        read: Read,
        settings: ServerSettings,
        keys: Keys | None,
        journal: RecentEvents,
        socks: Sequence[socket.socket],
        say: Say,
        tracing: Tracing | None = None,
        bar: Bar | None = None,
    ) -> None:
        self._task, self._settings, self._socks, self._say = task, settings, socks, say
        self._keys, self._journal, self._tracing = keys, journal, tracing
        self._clock, self._unsent = WallClock(), Unsent()
        self._metrics = Metrics([each.name for each in task.signatures])
        self._caches = make_cache_adaptation(task, settings, self._metrics.caches, journal)
        self._service = self._make_service(task, journal, self._metrics, self._drifted)
        self._record_arrivals()
        self._control = Control(self._service, task.served)
        self._swaps = Swaps(
            self._control,
            plans=None if settings.plans is None else Path(settings.plans),
            task=task,
            read=read,
            make=self._make_service,
            metrics=self._metrics,
            journal=journal,
            pin=self._pin,
        )
        self._replans = self._make_replans()
        self._times = SendingTimes(settings.trust_clock_s, self._metrics.deadlines)
        self._live = Live(self._control, self._metrics.glance, journal)
        self._http = self._make_http()
        self._grpc = None if settings.grpc_port is None else self._make_grpc()
        self._grpc_port = 0
        self._first_signal, self._second_signal = asyncio.Event(), asyncio.Event()
        self._bar = bar

    def _make_service(
        self,
        task: ServingTask,
        journal: Journal,
        metrics: Metrics | None = None,
        drifts: Callable[[], None] = lambda: None,
    ) -> Service:
        """Return a service, not started; the metrics are those of the first one."""
        service = make_service(task, self._settings, metrics, journal, self._clock, drifts, self._caches)
        service.held.elsewhere = self._unsent
        return service

    def _record_arrivals(self) -> None:
        """Have the journal get the arrivals of all pipelines; plans swapped in later take them over."""

        def record(name: str, requests: list[int], past_s: float) -> None:
            self._journal.write(ARRIVALS, pipeline=name, requests=requests, past_s=round(past_s, 3))

        for name, pipeline in self._service.pipelines.items():
            pipeline.adapting.trace.record = partial(record, name)

    def _make_replans(self) -> Replans | None:
        settings = self._settings
        if settings.replan == "off" or settings.plans is None:
            return None
        return Replans(
            self._control,
            plans=Path(settings.plans),
            task=lambda: self._swaps.served,
            longest_s=settings.replan_longest_s,
            metrics=self._metrics,
            journal=self._journal,
            swap=self._swaps.swap if settings.replan == "swap" else None,
        )

    def _make_http(self) -> HttpServer | FrontEnds:
        served, settings = self._task.signatures, self._settings
        handlers = Handlers(
            self._control,
            served,
            largest_body_bytes=settings.largest_body_bytes,
            limits=limits_of(settings),
            metrics=self._metrics,
            tracing=self._tracing,
            swaps=self._swaps,
            times=self._times,
            events=self._journal,
            promise=lambda: promise_of(self._swaps.served.plan),
            live=self._live,
            has_dashboard=settings.dashboard,
        )
        application = Application(handlers, keys=self._keys, names=settings.names)
        if settings.front_ends == 1:
            return HttpServer(application, settings, count_unsent=self._unsent.count)
        serve = Serve(settings=settings, served=served, origin_ns=self._clock.origin_ns)
        return FrontEnds(
            self._control,
            application,
            serve,
            refused=partial(self._metrics.refused, reason=QUEUE_FULL),
            distrusted=self._times.count_distrust,
            journal=self._journal,
        )

    def _make_grpc(self) -> "GrpcServer":
        """Return the gRPC server, not started; raises `InvalidInput` if grpcio is missing."""
        load_extra("grpc", extra="grpc", where="--grpc-port")
        from gearshift.serving.grpc.server import GrpcServer

        return GrpcServer(
            self._control,
            self._task.signatures,
            settings=self._settings,
            limits=limits_of(self._settings),
            metrics=self._metrics,
            keys=self._keys,
            tracing=self._tracing,
            times=self._times,
        )

    async def main(self) -> int:
        loop = asyncio.get_running_loop()
        ending = ending_signals()
        for number in ending:
            loop.add_signal_handler(number, self._signalled)
        await self._http.start(*self._socks)
        self._live.start()
        try:
            if self._grpc is not None:
                self._grpc_port = await self._grpc.start()
            if not await done_before(self._start(), self._first_signal):
                return 0
            gc.collect()
            gc.freeze()  # existing objects stay: collections while serving are short
            self._say(self._ready_line())
            self._say(self._bounds_line())
            if self._settings.dashboard:
                self._say(f"watch it at {self._origin()}/dashboard")
            for line in self._examples():
                self._say(line)
            await self._first_signal.wait()
            self._http.stop_listening()
            await self._end_replans()
            drained = await done_before(self._swaps.drain(self._settings.drain_s), self._second_signal)
            return 0 if drained else 1
        finally:
            await self._end_replans()
            for pipeline in self._control.service.pipelines.values():
                pipeline.adapting.trace.end(self._clock.now_ns())
            await self._swaps.stop()
            if self._caches is not None:
                await self._caches.stop()
            longest_s = 0 if self._second_signal.is_set() else LONGEST_END_S
            self._live.stop()
            if self._grpc is not None:
                await self._grpc.stop(longest_s)
            await self._http.stop(longest_s)
            for number in ending:
                loop.remove_signal_handler(number)

    async def _start(self) -> None:
        backend, replicas = self._service.driver.backend, len(self._task.tables.replica_ids)
        if not isinstance(backend, WorkersBackend):  # emulated replicas are there at once
            await self._service.start()
            return
        about_s = expected_start_s(backend, self._task.profiles.values())
        ready = lambda: (backend.replicas_loaded, replicas)  # noqa: E731
        async with start_told(LOADING, ready, about_s, self._say, self._bar):
            await self._service.start()

    def _pin(self, cores: frozenset[int]) -> None:
        pin(cores)
        self._http.pin(cores)

    def _drifted(self) -> None:
        if self._replans is not None:
            self._replans.drifted()

    async def _end_replans(self) -> None:
        if self._replans is not None:
            await self._replans.stop()

    def _signalled(self) -> None:
        if self._first_signal.is_set():
            self._second_signal.set()
        self._first_signal.set()

    def _origin(self, protocol: str = "http", port: int | None = None) -> str:
        host, http_port = self._socks[0].getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        secure = "" if self._settings.tls_certificate is None else "s"
        return f"{protocol}{secure}://{host}:{http_port if port is None else port}"

    def _reached(self) -> str:
        return reached(self._origin())

    def _examples(self) -> Iterator[str]:
        """A request that works for each pipeline, at most `MOST_EXAMPLES`."""
        served, settings = self._task.signatures, self._settings
        for each in served[:MOST_EXAMPLES]:
            has_keys, certificate = settings.api_keys is not None, settings.tls_certificate
            yield f"try: {example_call(each, self._reached(), has_keys=has_keys, certificate=certificate)}"
        if len(served) > MOST_EXAMPLES:
            yield f"{self._reached()}/ has a request for each of the {len(served)} pipelines"

    def _ready_line(self) -> str:
        where = self._origin()
        if self._grpc is not None:
            where += f" and {self._origin('grpc', self._grpc_port)}"
        replicas, devices = len(self._task.tables.replica_ids), len(self._task.tables.device_ids)
        counted = f"{_count(replicas, 'replica')} on {_count(devices, 'device')}"
        names = ", ".join(each.name for each in self._task.signatures)
        return f"serving {names} at {where} ({counted})"

    def _bounds_line(self) -> str:
        mib, pipelines = self._service.held.most_bytes / MIB, self._service.pipelines
        if len(pipelines) == 1:
            samples = _count(next(iter(pipelines.values())).most_waiting, "sample")
        else:
            samples = ", ".join(f"{_count(each.most_waiting, 'sample')} of {name}" for name, each in pipelines.items())
        return f"up to {samples} and {mib:.4g} MiB of requests may wait; beyond that they get 429"


def reached(origin: str) -> str:
    """An origin as this machine reaches it: an address of all interfaces is none to ask."""
    return origin.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def ending_signals() -> list[signal.Signals]:
    """Return the signals that start shutdown; SIGHUP only if `nohup` does not ignore it."""
    hidden = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([] if hidden else [signal.SIGHUP])]


async def done_before(work: Coroutine[Any, Any, object], end: asyncio.Event) -> bool:
    """Whether `work` ended before `end` and did not return False; otherwise cancel it."""
    task, waiter = asyncio.ensure_future(work), asyncio.ensure_future(end.wait())
    await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
    for pending in (task, waiter):
        pending.cancel()
    await asyncio.gather(task, waiter, return_exceptions=True)
    return not task.cancelled() and task.result() is not False
