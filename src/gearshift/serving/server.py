"""A server from start to shutdown, of any kind of plan."""

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET

from gearshift.clock import WallClock
from gearshift.objective import Metric
from gearshift.observability.journal import ARRIVALS
from gearshift.observability.recent_events import RecentEvents
from gearshift.observability.tracing import Tracing
from gearshift.runtime.service.answers import QUEUE_FULL
from gearshift.runtime.service.room import Unsent
from gearshift.serving.door.bounds import limits_of
from gearshift.serving.door.deadline_headers import SendingTimes
from gearshift.serving.door.keys import Keys
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.front_ends.front_ends import FrontEnds
from gearshift.serving.front_ends.front_messages import Serve
from gearshift.serving.http.application import Application
from gearshift.serving.http.handlers import Handlers
from gearshift.serving.http.server import HttpServer
from gearshift.serving.operate.control import Control
from gearshift.serving.operate.kind import ServedKind, Shared, Task
from gearshift.serving.operate.promise import promise_of
from gearshift.serving.operate.start_progress import Bar, start_told
from gearshift.serving.operate.swap import Swaps
from gearshift.serving.pages.front_page import example_call
from gearshift.serving.pages.live import Live
from gearshift.serving.rows.replan import Replans
from gearshift.support.extras import load_extra
from gearshift.support.numbers import counted
from gearshift.support.processors import pin

MIB = 1 << 20
Say = Callable[[str], None]
MOST_EXAMPLES = 5
LONGEST_END_S = 5
"""Bound on closing HTTP connections after all accepted requests have ended."""


class Server:
    """The HTTP server and the deployment behind it; `read` reads the plans that are swapped in."""

    def __init__(
        self,
        kind: ServedKind[Any, Any],
        task: Task,
        read: Callable[[Path], Task],
        settings: ServerSettings,
        keys: Keys | None,
        journal: RecentEvents,
        socks: Sequence[socket.socket],
        say: Say,
        tracing: Tracing | None = None,
        bar: Bar | None = None,
    ) -> None:
        self._kind, self._task, self._settings = kind, task, settings
        self._journal, self._socks, self._say, self._bar = journal, socks, say, bar
        self._clock, unsent, metrics = WallClock(), Unsent(), kind.metrics(task)
        times = SendingTimes(settings.trust_clock_s, metrics.deadlines)
        shared = Shared(
            settings=settings,
            metrics=metrics,
            times=times,
            journal=journal,
            tracing=tracing,
            clock=self._clock,
            unsent=unsent,
            drifted=self._drifted,
        )
        deployment = kind.deploy(task, shared, journal)
        for name, trace in deployment.traces.items():  # plans swapped in later take them over
            trace.record = partial(self._record_arrivals, name)
        self._control = control = Control(deployment.operated, task.served)
        self._swaps = Swaps(kind, control, deployment, shared, read=read, keep_to=self._keep_to)
        self._replans = None
        if settings.replan != "off" and settings.plans is not None:
            self._replans = Replans(
                control,
                plans=Path(settings.plans),
                task=lambda: self._swaps.deployment.task,
                longest_s=settings.replan_longest_s,
                metrics=metrics,
                journal=journal,
                swap=self._swaps.swap if settings.replan == "swap" else None,
            )
        self._live = Live(control, metrics.glance, journal, metric=self._metric)
        limits = limits_of(settings)
        handlers = Handlers(
            control,
            task.signatures,
            largest_body_bytes=settings.largest_body_bytes,
            limits=limits,
            metrics=metrics,
            tracing=tracing,
            swaps=self._swaps,
            times=times,
            events=journal,
            promise=lambda: promise_of(self._swaps.deployment.task.plan),
            live=self._live,
            has_dashboard=settings.dashboard,
        )
        self._shown = kind.shown(task)
        routes = kind.routes(deployment)
        application = Application(handlers, keys=keys, names=settings.names, others=routes, shown=self._shown)
        self._http: HttpServer | FrontEnds = (
            HttpServer(application, settings, count_unsent=unsent.count)
            if settings.front_ends == 1
            else FrontEnds(
                control,
                application,
                Serve(settings=settings, served=tuple(task.signatures), origin_ns=self._clock.origin_ns),
                refused=partial(metrics.refused, reason=QUEUE_FULL),
                distrusted=times.count_distrust,
                journal=journal,
            )
        )
        self._grpc = None
        if settings.grpc_port is not None:
            load_extra("grpc", extra="grpc", where="--grpc-port")
            from gearshift.serving.grpc.server import GrpcServer

            self._grpc = GrpcServer(
                control,
                task.signatures,
                settings=settings,
                limits=limits,
                metrics=metrics,
                keys=keys,
                tracing=tracing,
                times=times,
            )
        self._first_signal, self._second_signal = asyncio.Event(), asyncio.Event()

    def _record_arrivals(self, pipeline: str, requests: list[int], past_s: float) -> None:
        self._journal.write(ARRIVALS, pipeline=pipeline, requests=requests, past_s=round(past_s, 3))

    def _metric(self) -> Metric:
        """The one that the objective of the plan in force is of; several pipelines have one."""
        pipeline = next(iter(self._swaps.deployment.task.plan.pipelines.values()))
        return "latency" if pipeline.objective.metric is UNSET else pipeline.objective.metric

    async def main(self) -> int:
        with signals_to(self._signalled):
            await self._http.start(*self._socks)
            self._live.start()
            try:
                grpc_port = None if self._grpc is None else await self._grpc.start()
                if not await done_before(self._start(), self._first_signal):
                    return 0
                gc.collect()
                gc.freeze()  # existing objects stay: collections while serving are short
                for line in self._first_lines(grpc_port):
                    self._say(line)
                await self._first_signal.wait()
                self._http.stop_listening()
                await self._end_replans()
                drained = await done_before(self._swaps.drain(self._settings.drain_s), self._second_signal)
                return 0 if drained else 1
            finally:
                await self._end_replans()
                for trace in self._swaps.deployment.traces.values():
                    trace.end(self._clock.now_ns())
                await self._swaps.stop()
                longest_s = 0 if self._second_signal.is_set() else LONGEST_END_S
                self._live.stop()
                if self._grpc is not None:
                    await self._grpc.stop(longest_s)
                await self._http.stop(longest_s)

    async def _start(self) -> None:
        deployment = self._swaps.deployment
        loading = deployment.loading
        telling = nullcontext() if loading is None else start_told(*loading, self._say, self._bar)
        async with telling:
            await deployment.start()
        deployment.serve()

    def _keep_to(self, cores: frozenset[int]) -> None:
        pin(cores)
        self._http.pin(cores)

    async def _end_replans(self) -> None:
        if self._replans is not None:
            await self._replans.stop()

    def _drifted(self) -> None:
        if self._replans is not None:
            self._replans.drifted()

    def _signalled(self) -> None:
        if self._first_signal.is_set():
            self._second_signal.set()
        self._first_signal.set()

    def _first_lines(self, grpc_port: int | None) -> Iterator[str]:
        """What is served where, within which bounds, and a request that works for each pipeline, at most some."""
        settings, status, shown = self._settings, self._control.status(), self._shown
        is_secure = settings.tls_certificate is not None
        http = origin_of(self._socks[0], is_secure=is_secure)
        where = http + self._kind.path
        if grpc_port is not None:
            where += f" and {origin_of(self._socks[0], 'grpc', grpc_port, is_secure=is_secure)}"
        yield f"serving {', '.join(each.name for each in shown)} at {where} ({self._kind.placed(self._task)})"
        bounds = {each.name: counted(each.most_waiting, self._kind.unit) for each in status.pipelines}
        several = ", ".join(f"{bound} of {name}" for name, bound in bounds.items())
        waiting = several if len(bounds) > 1 else "".join(bounds.values())
        mib = status.most_held_bytes / MIB
        yield f"up to {waiting} and {mib:.4g} MiB of requests may wait; beyond that they get 429"
        if settings.dashboard:
            yield f"watch it at {http}/dashboard"
        reached = http.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
        for each in shown[:MOST_EXAMPLES]:
            has_keys, certificate = settings.api_keys is not None, settings.tls_certificate
            yield f"try: {example_call(each, reached, has_keys=has_keys, certificate=certificate)}"
        if len(shown) > MOST_EXAMPLES:
            yield f"{reached}/ has a request for each of the {len(shown)} pipelines"


def origin_of(sock: socket.socket, protocol: str = "http", port: int | None = None, *, is_secure: bool = False) -> str:
    host, http_port = sock.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    return f"{protocol}{'s' if is_secure else ''}://{host}:{http_port if port is None else port}"


@contextmanager
def signals_to(handler: Callable[[], None]) -> Iterator[None]:
    """Call `handler` at SIGTERM, SIGINT and, unless `nohup` ignores it, SIGHUP, in a running event loop."""
    loop, hidden = asyncio.get_running_loop(), signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    numbers = [signal.SIGTERM, signal.SIGINT, *([] if hidden else [signal.SIGHUP])]
    for number in numbers:
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def done_before(work: Coroutine[Any, Any, object], end: asyncio.Event) -> bool:
    """Whether `work` ended before `end` and did not return False; otherwise cancel it."""
    task, waiter = asyncio.ensure_future(work), asyncio.ensure_future(end.wait())
    await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
    for pending in (task, waiter):
        pending.cancel()
    await asyncio.gather(task, waiter, return_exceptions=True)
    return not task.cancelled() and task.result() is not False
