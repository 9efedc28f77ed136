"""The open-loop load generator: send when the workload says, and measure from that instant."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S, Clock, WallClock
from gearshift.errors import require
from gearshift.load_generator.http_target import target_at
from gearshift.load_generator.replay_result import (
    DEGRADED,
    FAILED,
    REFUSED,
    Effort,
    Replay,
    RequestLog,
    empty_log,
    gear_shifts,
    lateness_of,
    why_invalid,
)
from gearshift.load_generator.sender import Load, Progress, first_of, send
from gearshift.load_generator.sender_process import MOST_PROCESSES, send_apart
from gearshift.load_generator.sources import SampleSource
from gearshift.load_generator.targets import Counters, Sending, Target
from gearshift.request import NO_DEADLINE_NS
from gearshift.result import ServingResult, latency_summary, summarise
from gearshift.support.event_loop import loop_factory, much_load, run_in_own_loop
from gearshift.workload import Workload

HOW = Sending()
SendApart = Callable[..., Coroutine[Any, Any, Effort]]
"""As `send`, without a target, clock and begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The requests to one pipeline: when they are due, with which samples, and when they are late.

    With `under_way_s` (n,) each request is stamped as sent that long before it arrives.
    """

    workload: Workload
    source: SampleSource
    slo_s: float | None = None
    under_way_s: NDArray[np.float64] | None = None

    def deadline_s(self, sending: Sending) -> NDArray[np.float64] | None:
        """Seconds (n,) from sending to a request's deadline, NaN for none; None if `sending` sets it alone."""
        return _deadlines_s(self.workload, self.under_way_s, sending.deadline_s)


async def replay(
    target: str | Target,
    workload: Workload,
    source: SampleSource,
    *,
    sending: Sending = HOW,
    processes: int = 1,
    slo_s: float | None = None,
    largest_lateness_s: float | None = None,
    devices: int = 0,
    progress: Progress | None = None,
    clock: Clock | None = None,
    under_way_s: NDArray[np.float64] | None = None,
) -> Replay:
    """Send `workload` in an open loop to a V2 server's URL (http, https, grpc, grpcs) or a target.

    Requests are encoded before the first is sent.  If all connections are busy, a request waits
    for one, and that wait counts as lateness.  Status 429 and 503 are refusals; 504 is a late
    answer; any other status of 500 and above, a broken connection, or no answer within `longest_s`
    of sending is a failure: all of them count as late.  With several `processes` each sends every
    n-th request.  The run is valid if the generator's lateness at p50, p95 and p99 is within
    `replay_result.limit_s` of the latency measured there, or within `largest_lateness_s`.

    `progress` is called with (done, total) now and then; `devices` is copied into the result;
    without it, and for utilisation, the server's metrics are read before and after.  With
    `under_way_s` (n,) each request is stamped as sent that long before it arrives, and its latency
    counts from then.  Deadlines of the workload replace that of `sending`, and each request is
    then late by its own.

    Raises `InvalidInput` if nothing listens at the URL, if both target and workload set deadlines,
    if the server rejects a request as wrong (another status of 300 to 499), or if an answer cannot
    be judged.
    """
    require(1 <= processes <= MOST_PROCESSES, f"{processes} processes asked for", remedy=f"give 1 to {MOST_PROCESSES}")
    require(processes == 1 or isinstance(target, str), "only a URL can be sent to by several processes")
    require(
        under_way_s is None or processes == 1,
        "requests under way are stamped by one process",
        remedy="give --network without --processes",
    )
    require(largest_lateness_s is None or largest_lateness_s > 0, f"largest_lateness_s is {largest_lateness_s}")
    stream = Stream(workload=workload, source=source, slo_s=slo_s, under_way_s=under_way_s)
    name, plain, apart = source.operator, _without_deadline(stream, sending), None
    reached = target_at(target, name, source.output, plain) if isinstance(target, str) else target
    if isinstance(target, str) and min(processes, len(workload)) > 1:
        apart = partial(send_apart, target, name, source.output, processes=min(processes, len(workload)))
    replays = await replay_together(
        {name: reached},
        {name: stream},
        sending=sending,
        largest_lateness_s=largest_lateness_s,
        devices=devices,
        progress=progress,
        clock=clock,
        apart=apart,
        more_processes=isinstance(target, str),
    )
    return replays[name]


async def replay_together(
    targets: Mapping[str, Target],
    streams: Mapping[str, Stream],
    *,
    sending: Sending = HOW,
    largest_lateness_s: float | None = None,
    devices: int = 0,
    progress: Progress | None = None,
    clock: Clock | None = None,
    apart: SendApart | None = None,
    more_processes: bool = False,
) -> dict[str, Replay]:
    """Send the streams of several pipelines at once, on one clock, each to its target; see `replay`.

    The connections of `sending` are shared out. Utilisation and batches are those of the whole
    server. With `apart` loads are sent by that in place of this process; `more_processes` is whether
    that is offered. Raises as `replay`.
    """
    each = msgspec.structs.replace(sending, connections=max(1, sending.connections // len(streams)))
    clock, first = clock or WallClock(), next(iter(targets.values()))
    done = Done(progress, sum(len(stream.workload) for stream in streams.values()))
    rows = {name: _rows(targets[name], stream, each) for name, stream in streams.items()}
    try:
        for target in targets.values():
            await target.open()
        loads = {name: _load(targets[name], stream, each, rows[name]) for name, stream in streams.items()}
        before, begin_ns = await first.counters(), clock.now_ns()
        here = partial(send, clock=clock, begin_ns=begin_ns)
        try:
            async with asyncio.TaskGroup() as group:
                sent = {
                    name: group.create_task(
                        (apart or partial(here, targets[name]))(
                            load, _without_deadline(streams[name], each), progress=done.of(name)
                        )
                    )
                    for name, load in loads.items()
                }
        except ExceptionGroup as errors:
            raise first_of(errors) from None
        after = await first.counters()
    finally:
        for target in targets.values():
            await target.close()
    return {
        name: _replay_of(
            stream,
            loads[name].log,
            sent[name].result(),
            before,
            after,
            sending=each,
            devices=devices,
            largest_lateness_s=largest_lateness_s,
            more_processes=more_processes,
        )
        for name, stream in streams.items()
    }


class Done:
    """Adds up the progress of streams, of `total` requests."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total = progress, total
        self._done: dict[str, int] = {}

    def of(self, name: str) -> Progress | None:
        return None if self._progress is None else partial(self._told, name)

    def _told(self, name: str, done: int, total: int) -> None:
        self._done[name] = done
        if self._progress is not None:
            self._progress(sum(self._done.values()), self._total)


def _replay_of(
    stream: Stream,
    log: RequestLog,
    effort: Effort,
    before: Counters,
    after: Counters,
    *,
    sending: Sending,
    devices: int,
    largest_lateness_s: float | None,
    more_processes: bool,
) -> Replay:
    deadline_s, under_way_s = stream.deadline_s(sending), stream.under_way_s
    took_s = float(log.answered_s.max())
    utilisation = {device: busy_s / took_s for device, busy_s in after.busy_since(before).items()}
    here = latency_summary(log.latency_s[log.answered])
    lateness = lateness_of(log, here, largest_lateness_s)
    return Replay(
        result=_result(
            log,
            log.latency_s if under_way_s is None else log.latency_s + under_way_s,
            limit_s=stream.slo_s if deadline_s is None else _limits_s(stream.workload, deadline_s, stream.slo_s),
            duration_s=stream.workload.duration_s,
            devices=devices or len(utilisation),
            utilisation=utilisation,
        ),
        log=log,
        lateness=lateness,
        effort=effort,
        why_invalid=why_invalid(
            lateness,
            here,
            effort,
            answered=int(np.count_nonzero(log.answered)),
            processes=more_processes,
            largest_s=largest_lateness_s,
        ),
        failed=int(np.count_nonzero(log.outcome == FAILED)),
        gears=gear_shifts(log),
        runs=after.runs_since(before),
    )


def _rows(target: Target, stream: Stream, sending: Sending) -> dict[int, dict[str, NDArray[Any]]]:
    """The inputs of each sample; raises `InvalidInput` where they, or the deadlines, cannot be sent."""
    require(
        stream.deadline_s(sending) is None or target.encoded_deadline_s is None,
        f"each request would have a deadline of {target.encoded_deadline_s} s, and the workload has its own",
        where=target.where,
        remedy="make the target without deadline_s, and give that as `sending` to replay",
    )
    return {record: stream.source.inputs(record) for record in np.unique(stream.workload.record).tolist()}


def _load(reached: Target, stream: Stream, sending: Sending, rows: Mapping[int, dict[str, NDArray[Any]]]) -> Load:
    """The stream's requests, encoded for a target that is open."""
    workload, source = stream.workload, stream.source
    return Load(
        requests={record: reached.encode(inputs) for record, inputs in rows.items()},
        labels={record: source.label(record) for record in rows},
        log=empty_log(workload.arrivals_ns / NS_PER_S, workload.record),
        under_way_s=stream.under_way_s,
        deadline_s=stream.deadline_s(sending),
    )


def _without_deadline(stream: Stream, sending: Sending) -> Sending:
    """Deadlines of the workload replace that of `sending`."""
    return sending if stream.deadline_s(sending) is None else msgspec.structs.replace(sending, deadline_s=None)


def run_replay(target: str | Target, workload: Workload, source: SampleSource, **options: Any) -> Replay:
    with much_load():
        return run_in_own_loop(replay(target, workload, source, **options), loop_factory=loop_factory())


def run_replay_together(
    targets: Mapping[str, Target], streams: Mapping[str, Stream], **options: Any
) -> dict[str, Replay]:
    with much_load():
        return run_in_own_loop(replay_together(targets, streams, **options), loop_factory=loop_factory())


def _deadlines_s(
    workload: Workload, under_way_s: NDArray[np.float64] | None, else_s: float | None
) -> NDArray[np.float64] | None:
    """Return seconds (n,) from sending to deadline, else `else_s` or NaN; None without any."""
    if workload.deadline_ns is None or not np.any(workload.deadline_ns < NO_DEADLINE_NS):
        return None
    left_s = (workload.deadline_ns - workload.arrivals_ns) / NS_PER_S + (0.0 if under_way_s is None else under_way_s)
    return np.where(workload.deadline_ns < NO_DEADLINE_NS, left_s, np.nan if else_s is None else else_s)


def _limits_s(workload: Workload, deadline_s: NDArray[np.float64], slo_s: float | None) -> NDArray[np.float64]:
    own = np.asarray(workload.deadline_ns) < NO_DEADLINE_NS
    return np.where(own, deadline_s, np.inf if slo_s is None else slo_s)


def _result(
    log: RequestLog,
    latency_s: NDArray[np.float64],
    *,
    limit_s: float | NDArray[np.float64] | None,
    duration_s: float,
    devices: int,
    utilisation: dict[str, float],
) -> ServingResult:
    answered = log.answered
    return summarise(
        latency_s=latency_s[answered],
        quality=log.quality[answered],
        requests=len(log),
        refused=int(np.count_nonzero(log.outcome == REFUSED)),
        degraded=int(np.count_nonzero(log.outcome == DEGRADED)),
        by_time=int(np.count_nonzero(log.by_time)) or None,
        latency_objective_s=limit_s[answered] if isinstance(limit_s, np.ndarray) else limit_s,
        duration_s=duration_s,
        devices=devices,
        utilisation=utilisation,
        independent_samples=len(np.unique(log.record[answered])),
    )
