"""The open-loop load generator: sends when the workload says, whatever the answers do, and measures from then."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import numpy as np
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families

from gearshift.clock import NS_PER_S, Clock, WallClock
from gearshift.errors import InvalidInput, NoAnswer, require
from gearshift.result import ServingResult, percentile, summarise
from gearshift.runtime.fine_timer import FineSleeper
from gearshift.serving.http_client import HttpClient
from gearshift.serving.open_files import allow_many_connections
from gearshift.serving.replay_result import NO_ANSWER, NO_GEAR, OUTCOMES, Lateness, Replay, RequestLog, gear_shifts
from gearshift.serving.sources import SampleSource
from gearshift.workload import Workload

MOST_CONNECTIONS = 8192
DEFAULT_CONNECTIONS = 2048
BUSY = "gearshift_device_busy_seconds_total"
LARGEST_LATENESS_S = 0.010
LONGEST_S = 30.0
REACH_WITHIN_S = 5.0
PROGRESS_EVERY_S = 0.1
SEND_AT_ONCE = 32

Progress = Callable[[int, int], None]


async def replay(
    url: str,
    workload: Workload,
    source: SampleSource,
    *,
    slo_s: float | None = None,
    connections: int = DEFAULT_CONNECTIONS,
    longest_s: float = LONGEST_S,
    largest_lateness_s: float = LARGEST_LATENESS_S,
    devices: int = 0,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Replay:
    """Send `workload` to the V2 server at `url`, each request at its instant, over at most `connections` connections.

    Bodies are encoded before the first request is sent.  An instant that finds all connections busy waits for one, and
    that wait is lateness.  Status 429 and 503 are refusals; 504, an answer too late; any other of 500 and above, a
    broken connection, or no answer within `longest_s` of sending, a failure: all of them count as late.  `progress` is
    told (done, total) now and then; `devices` is copied into the result; without it, and for
    utilisation, the server's metrics are asked before and after.

    Raises `InvalidInput` where nothing listens at `url`, where the server rejects a request as wrong (another status
    of 300 to 499), and where an answer cannot be judged.
    """
    require(
        1 <= connections <= MOST_CONNECTIONS, f"connections is {connections}", remedy=f"give 1 to {MOST_CONNECTIONS}"
    )
    require(len(workload) > 0, "the workload has no requests")
    for name, seconds in (("longest_s", longest_s), ("largest_lateness_s", largest_lateness_s)):
        require(0 < seconds < 1e6, f"{name} is {seconds}", remedy="give a positive number of seconds")
    base = url.rstrip("/")
    async with HttpClient(base, connections=connections) as client:
        path = f"/v2/models/{source.operator}/infer"
        requests = {
            record: client.request_bytes("POST", path, source.body(record))
            for record in np.unique(workload.record).tolist()
        }
        await _reach(client, base)
        run = _Run(
            client, f"{base}{path}", workload, source, requests, clock or WallClock(),
            longest_s=longest_s, progress=progress,
        )  # fmt: skip
        before = await _busy_s(client)
        began_ns = run.now_ns()
        await run.serve()
        took_s = (run.now_ns() - began_ns) / NS_PER_S
        after = await _busy_s(client)
    utilisation = {device: (busy_s - before.get(device, 0.0)) / took_s for device, busy_s in after.items()}
    return run.settle(slo_s=slo_s, largest_lateness_s=largest_lateness_s, devices=devices, utilisation=utilisation)


def run_replay(
    url: str,
    workload: Workload,
    source: SampleSource,
    *,
    slo_s: float | None = None,
    connections: int = DEFAULT_CONNECTIONS,
    longest_s: float = LONGEST_S,
    largest_lateness_s: float = LARGEST_LATENESS_S,
    devices: int = 0,
    progress: Progress | None = None,
) -> Replay:
    """`replay` in an event loop of its own: uvloop where there is one."""
    allow_many_connections()
    with _no_collections(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(
            replay(
                url,
                workload,
                source,
                slo_s=slo_s,
                connections=connections,
                longest_s=longest_s,
                largest_lateness_s=largest_lateness_s,
                devices=devices,
                progress=progress,
            )
        )


@contextmanager
def _no_collections() -> Iterator[None]:
    """Keep the garbage collector off what is there already: in a large process it pauses for milliseconds."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _Parameters(msgspec.Struct, frozen=True):
    gear: int | None = None
    outcome: str = "answered"


class _Response(msgspec.Struct, frozen=True):
    parameters: _Parameters = _Parameters()


_responses = msgspec.json.Decoder(_Response)
_answered, _degraded, _late, _refused, _failed = range(len(OUTCOMES))
_UNSENT = -1


class _Run:
    """One replay under way: the schedule, who has been sent, and what came back."""

    def __init__(
        self,
        client: HttpClient,
        target: str,
        workload: Workload,
        source: SampleSource,
        requests: dict[int, bytes],
        clock: Clock,
        *,
        longest_s: float,
        progress: Progress | None,
    ) -> None:
        n = len(workload)
        self._client, self._target, self._source, self._requests = client, target, source, requests
        self._workload, self._clock, self._progress = workload, clock, progress
        self._records = workload.record.tolist()
        self._longest_s, self._longest_ns = longest_s, round(longest_s * NS_PER_S)
        self._due_ns: NDArray[np.int64] = workload.arrivals_ns
        self._sent_ns = np.full(n, _UNSENT, dtype=np.int64)
        self._done_ns = np.zeros(n, dtype=np.int64)
        self._outcome = np.full(n, _failed, dtype=np.int8)
        self._status = np.full(n, NO_ANSWER, dtype=np.int16)
        self._gear = np.full(n, NO_GEAR, dtype=np.int32)
        self._quality = np.full(n, np.nan)
        self._done = 0
        self._next_progress_ns = 0

    def now_ns(self) -> int:
        """The time on the run's clock."""
        return self._clock.now_ns()

    async def serve(self) -> None:
        """Send everything and wait for every answer; raises `InvalidInput` at the first that shows a wrong set-up."""
        self._due_ns = self._workload.arrivals_ns + self._clock.now_ns()
        try:
            async with asyncio.TaskGroup() as group:
                await self._send_all(group)
        except ExceptionGroup as errors:
            raise _first_of(errors) from None
        if self._progress:
            self._progress(self._done, len(self._due_ns))

    async def _send_all(self, group: asyncio.TaskGroup) -> None:
        """Start each request at its instant: sleep until the next is due, then send all that are."""
        sleeper = FineSleeper()
        try:
            for i, due in enumerate(self._due_ns.tolist()):
                if due > self._clock.now_ns():
                    while (ahead_ns := due - self._clock.now_ns()) > 0:
                        await sleeper.sleep(ahead_ns)
                elif i % SEND_AT_ONCE == 0:
                    await asyncio.sleep(0)  # behind schedule: let answers in between
                group.create_task(self._request(i, due))
        finally:
            sleeper.stop()

    async def _request(self, i: int, due_ns: int) -> None:
        await self._client.acquire()
        try:
            self._sent_ns[i] = sent_ns = self._clock.now_ns()
            if sent_ns - due_ns < self._longest_ns:
                await self._exchange(i)
        finally:
            self._client.release()
        self._done_ns[i] = self._clock.now_ns()
        self._tell()

    async def _exchange(self, i: int) -> None:
        """Send request `i` and note its answer; a request without one stays failed."""
        record = self._records[i]
        try:
            status, payload = await self._client.exchange(self._requests[record], within_s=self._longest_s)
        except NoAnswer:
            return
        self._status[i] = status
        if status == 200:
            self._note_answer(i, record, payload)
        elif status in (429, 503):
            self._outcome[i] = _refused
        elif status == 504:
            self._outcome[i] = _late
        elif 300 <= status < 500 and status != 408:
            raise InvalidInput(
                f"the server answers status {status}: {payload[:300].decode('utf-8', 'replace').strip()}",
                where=self._target,
                remedy="check the URL and the operator's name, and that the samples are those of its profile",
            )

    def _note_answer(self, i: int, record: int, payload: bytes) -> None:
        try:
            parameters = _responses.decode(payload).parameters
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidInput(
                f"the answer is no V2 JSON ({error})", where=self._target, remedy="replay against a V2 server"
            ) from None
        self._quality[i] = self._source.quality(record, payload)
        self._outcome[i] = _degraded if parameters.outcome == "degraded" else _answered
        self._gear[i] = NO_GEAR if parameters.gear is None else parameters.gear

    def _tell(self) -> None:
        self._done += 1
        if self._progress and self._clock.now_ns() >= self._next_progress_ns:
            self._progress(self._done, len(self._due_ns))
            self._next_progress_ns = self._clock.now_ns() + round(PROGRESS_EVERY_S * NS_PER_S)

    def settle(
        self, *, slo_s: float | None, largest_lateness_s: float, devices: int, utilisation: dict[str, float]
    ) -> Replay:
        """The figures of the finished run."""
        late_s = (self._sent_ns - self._due_ns) / NS_PER_S
        log = RequestLog(
            arrival_s=self._workload.arrivals_ns / NS_PER_S,
            lateness_s=late_s,
            latency_s=(self._done_ns - self._due_ns) / NS_PER_S,
            outcome=self._outcome,
            status=self._status,
            gear=self._gear,
            quality=self._quality,
            record=self._workload.record,
        )
        lateness = Lateness(p50_s=percentile(late_s, 0.50), p99_s=percentile(late_s, 0.99), max_s=float(late_s.max()))
        return Replay(
            result=_summarise(
                log,
                slo_s=slo_s,
                duration_s=self._workload.duration_s,
                devices=devices or len(utilisation),
                utilisation=utilisation,
            ),
            log=log,
            lateness=lateness,
            valid=lateness.p99_s <= largest_lateness_s,
            failed=int(np.count_nonzero(log.outcome == _failed)),
            gears=gear_shifts(log),
        )


def _summarise(
    log: RequestLog, *, slo_s: float | None, duration_s: float, devices: int, utilisation: dict[str, float]
) -> ServingResult:
    answered = log.answered
    return summarise(
        latency_s=log.latency_s[answered],
        quality=log.quality[answered],
        requests=len(log),
        refused=int(np.count_nonzero(log.outcome == _refused)),
        latency_objective_s=slo_s,
        duration_s=duration_s,
        devices=devices,
        utilisation=utilisation,
        independent_samples=len(np.unique(log.record[answered])),
    )


async def _reach(client: HttpClient, base: str) -> None:
    """Raise `InvalidInput` unless something at `base` answers HTTP, whatever it says."""
    try:
        await client.exchange(client.request_bytes("GET", "/v2/health/ready"), within_s=REACH_WITHIN_S)
    except NoAnswer as error:
        raise InvalidInput(
            f"cannot be reached ({error})",
            where=base,
            remedy="start it with `gearshift serve`, or give the URL as http://HOST:PORT",
        ) from None


async def _busy_s(client: HttpClient) -> dict[str, float]:
    """Seconds that each device of a Gearshift server was busy so far; empty where another server listens."""
    try:
        status, text = await client.exchange(client.request_bytes("GET", "/metrics"), within_s=REACH_WITHIN_S)
        families = list(text_string_to_metric_families(text.decode())) if status == 200 else []
    except (NoAnswer, ValueError):
        return {}
    samples = (sample for family in families for sample in family.samples)
    return {sample.labels["device"]: sample.value for sample in samples if sample.name == BUSY}


def _first_of(errors: ExceptionGroup[Exception]) -> Exception:
    first = errors.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
