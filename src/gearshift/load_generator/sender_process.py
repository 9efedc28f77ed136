"""Send load from several processes: each sends every n-th request of the workload.

Parent and child (`python -m gearshift.load_generator.sender_process`) exchange frames over the child's
standard input and output: the length in 8 bytes, then msgpack.  The child receives Job and Go, and
sends Ready, Done repeatedly, then Finished or Failed.  Instants are those of the machine's
monotonic clock, which all processes share.
"""

import asyncio
import contextlib
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

import msgspec
import numpy as np

from gearshift.clock import NS_PER_S, WallClock
from gearshift.errors import GearshiftError, InvalidInput
from gearshift.load_generator.http_target import target_at
from gearshift.load_generator.replay_result import Effort, RequestLog, empty_log
from gearshift.load_generator.sender import Load, Progress, first_of, number_of, send
from gearshift.load_generator.targets import Sending
from gearshift.support.event_loop import allow_much_load, loop_factory

MOST_PROCESSES = 64
GO_AFTER_S = 0.05
MEASURED = ("sent_s", "answered_s", "outcome", "status", "gear", "model", "stage", "quality")
_LENGTH = struct.Struct("<Q")


class Job(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A process's part of the load; due times and deadlines are float64, samples int32."""

    url: str
    operator: str
    output: str
    sending: Sending
    due_s: bytes
    record: bytes
    deadline_s: bytes | None
    requests: dict[int, bytes]
    labels: dict[int, Any]


class Go(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Begin at this instant."""

    at_ns: int


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The target has been reached."""


class Done(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The number of requests done."""

    count: int


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All requests are done; columns of the log by name, as bytes."""

    columns: dict[str, bytes]
    models: list[str]
    wrong: list[str]
    processor_s: float
    waited: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An `InvalidInput` was raised."""

    what: str
    where: str
    remedy: str


Heard = Job | Go
Told = Ready | Done | Finished | Failed
_heard: msgspec.msgpack.Decoder[Heard] = msgspec.msgpack.Decoder(Heard)
_told: msgspec.msgpack.Decoder[Told] = msgspec.msgpack.Decoder(Told)


def _frame(message: Heard | Told) -> bytes:
    data = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(data)) + data


# The parent --------------------------------------------------------------------------------------


async def send_apart(
    url: str,
    operator: str,
    output: str,
    load: Load,
    sending: Sending,
    *,
    processes: int,
    progress: Progress | None,
) -> Effort:
    """Send as `sender.send`, but from several processes, which share the connections."""
    each = msgspec.structs.replace(sending, connections=max(1, sending.connections // processes))
    parts = [slice(number, None, processes) for number in range(processes)]
    jobs = [partial(_job, url, operator, output, load, each, part) for part in parts]  # made when sent
    parent = _Parent(processes, len(load.log), progress)
    children: list[asyncio.subprocess.Process] = []
    try:
        for _ in parts:
            children.append(await _start_child())  # noqa: PERF401  so that `finally` sees each at once
        async with asyncio.TaskGroup() as group:
            follows = [
                group.create_task(parent.follow(number, child, job))
                for number, (child, job) in enumerate(zip(children, jobs, strict=True))
            ]
            await parent.begin()
    except ExceptionGroup as errors:
        raise first_of(errors) from None
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    finished = [follow.result() for follow in follows]
    for part, result in zip(parts, finished, strict=True):
        _merge(load.log, part, result)
    return Effort(
        processes=processes,
        processor_s=sum(result.processor_s for result in finished),
        waited=sum(result.waited for result in finished),
        began_ns=parent.go.result(),
    )


def _job(url: str, operator: str, output: str, load: Load, sending: Sending, part: slice) -> Job:
    records = load.log.record[part]
    asked = np.unique(records).tolist()
    return Job(
        url=url,
        operator=operator,
        output=output,
        sending=sending,
        due_s=load.log.due_s[part].tobytes(),
        record=records.tobytes(),
        deadline_s=None if load.deadline_s is None else load.deadline_s[part].tobytes(),
        requests={record: load.requests[record] for record in asked},
        labels={record: load.labels[record] for record in asked},
    )


class _Parent:
    """Follows the children: all begin at one instant, once all are ready."""

    def __init__(self, processes: int, total: int, progress: Progress | None) -> None:
        self._total, self._progress = total, progress
        self._done = [0] * processes
        self._ready = asyncio.Barrier(processes + 1)
        self.go: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The instant at which all begin."""

    async def begin(self) -> None:
        await self._ready.wait()
        self.go.set_result(time.monotonic_ns() + round(GO_AFTER_S * NS_PER_S))

    async def follow(self, number: int, child: asyncio.subprocess.Process, job: Callable[[], Job]) -> Finished:
        await _tell_child(child, job())
        while True:
            match await _told_by(child):
                case Ready():
                    await self._ready.wait()
                    await _tell_child(child, Go(at_ns=await self.go))
                case Done(count=count):
                    self._done[number] = count
                    if self._progress:
                        self._progress(sum(self._done), self._total)
                case Finished() as finished:
                    return finished
                case Failed(what=what, where=where, remedy=remedy):
                    raise InvalidInput(what, where=where, remedy=remedy)


async def _start_child() -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", __name__, stdin=pipe, stdout=pipe, start_new_session=True
    )


async def _tell_child(child: asyncio.subprocess.Process, message: Heard) -> None:
    assert child.stdin is not None
    child.stdin.write(_frame(message))
    with contextlib.suppress(ConnectionError):  # it has ended; reading from it shows that
        await child.stdin.drain()


async def _told_by(child: asyncio.subprocess.Process) -> Told:
    assert child.stdout is not None
    try:
        (length,) = _LENGTH.unpack(await child.stdout.readexactly(_LENGTH.size))
        return _told.decode(await child.stdout.readexactly(length))
    except asyncio.IncompleteReadError:
        raise GearshiftError(f"a process of the load generator ended with status {await child.wait()}") from None


def _merge(log: RequestLog, part: slice, result: Finished) -> None:
    for name, data in result.columns.items():
        column = getattr(log, name)
        column[part] = np.frombuffer(data, dtype=column.dtype)
    numbers = {name: number for number, name in enumerate(log.models)}
    known = np.array([number_of(name, log.models, numbers) for name in result.models], dtype=np.int16)
    model = log.model[part]
    model[model >= 0] = known[model[model >= 0]]
    log.wrong.extend(result.wrong)


# The child ---------------------------------------------------------------------------------------


def main() -> None:
    with _told_to_parent() as out, asyncio.Runner(loop_factory=loop_factory()) as runner:
        allow_much_load()
        job = _hear()
        if isinstance(job, Job):
            out.write(_frame(runner.run(_work(job, out))))


@contextmanager
def _told_to_parent() -> Iterator[BinaryIO]:
    """Take over standard output; anything else that is printed goes to standard error."""
    with os.fdopen(os.dup(1), "wb", buffering=0) as out:
        os.dup2(2, 1)
        yield out


async def _work(job: Job, out: BinaryIO) -> Told:
    clock = WallClock()
    log = empty_log(np.frombuffer(job.due_s), np.frombuffer(job.record, dtype=np.int32))
    deadline_s = None if job.deadline_s is None else np.frombuffer(job.deadline_s)
    load = Load(requests=job.requests, labels=job.labels, log=log, deadline_s=deadline_s)
    target = target_at(job.url, job.operator, job.output, job.sending)
    try:
        await target.open()
        out.write(_frame(Ready()))
        go = await asyncio.to_thread(_hear)
        assert isinstance(go, Go)
        asyncio.get_running_loop().add_reader(0, os._exit, 1)  # the parent has ended
        begin_ns = clock.now_ns() + go.at_ns - time.monotonic_ns()

        def tell(done: int, total: int) -> None:
            out.write(_frame(Done(count=done)))

        effort = await send(target, load, job.sending, clock=clock, begin_ns=begin_ns, progress=tell)
    except InvalidInput as error:
        return Failed(what=error.what, where=error.where, remedy=error.remedy)
    finally:
        await target.close()
    columns = {name: getattr(log, name).tobytes() for name in MEASURED}
    return Finished(
        columns=columns, models=log.models, wrong=log.wrong, processor_s=effort.processor_s, waited=effort.waited
    )


def _hear() -> Heard | None:
    read = sys.stdin.buffer.read
    head = read(_LENGTH.size)
    return _heard.decode(read(_LENGTH.unpack(head)[0])) if len(head) == _LENGTH.size else None


if __name__ == "__main__":
    main()
