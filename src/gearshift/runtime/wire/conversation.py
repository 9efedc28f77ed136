"""Checks that each message of a worker answers a request, as an attacker may own the model."""

import math
from collections import deque
from collections.abc import Sequence

from gearshift.runtime.wire.messages import (
    Adopt,
    Adopted,
    Attended,
    Done,
    DonePart,
    Event,
    InUse,
    Load,
    Loaded,
    LoadFailed,
    Message,
    Ping,
    Pong,
    Run,
    SetThreads,
    ThreadsSet,
)
from gearshift.runtime.wire.transport import LONGEST_TEXT, FrameError

MOST_SEGMENTS = 10_000
MOST_THREADS = 1 << 16
MOST_COUNTED = 1 << 53

OF_AN_ATTENDANT = InUse, Event, Attended
"""Messages that a process which attends to learned caches sends unasked."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise FrameError(what)


class _Running:
    __slots__ = ("left", "segments", "through")

    def __init__(self, rows: set[int], segments: int, through: bool) -> None:
        self.left, self.segments, self.through = rows, segments, through


class Conversation:
    """The requests to a worker that it has not answered yet.

    Each message answers one request, once. With `attends`, the process attends to learned caches.
    """

    def __init__(self, *, attends: bool) -> None:
        self._attends = attends
        self._loading: set[int] = set()
        self._segments: dict[int, int] = {}
        self._running: dict[int, _Running] = {}
        self._threads = self._probes = 0
        self._adopting: deque[int] = deque()

    def said(self, message: Message) -> None:
        match message:
            case Run():
                rows = {row for part in message.parts for row in part.rows}
                segments = self._segments.get(message.replica, 1)
                self._running[message.batch] = _Running(rows, segments, message.through)
            case Ping():
                self._probes += 1
            case SetThreads():
                self._threads += 1
            case Adopt():
                self._adopting.append(message.replica)
            case Load():
                self._loading |= {replica.replica for replica in message.replicas}

    def heard(self, message: Message, body_bytes: int) -> None:
        """Raise `FrameError` if the worker may not send this now."""
        match message:
            case Done():
                self._check_done(message, body_bytes)
            case Pong():
                require(self._probes > 0, "an answer to a probe that was not sent")
                self._probes -= 1
            case ThreadsSet():
                require(self._threads > 0, "an answer to an order of threads that was not given")
                require(0 <= message.threads <= MOST_THREADS, f"{message.threads} threads")
                require(0 <= message.since_ns < 1 << 63, "a time that is none")
                _check_text(message.problem)
                self._threads -= 1
            case Adopted():
                asked = self._adopting.popleft() if self._adopting else None
                require(message.replica == asked, "an answer of a replica that was not to adopt caches")
                _check_text(message.problem)
            case Loaded():
                self._check_loading(message.replica)
                require(math.isfinite(message.load_s), "a time that is none")
                require(0 <= message.memory_bytes < 1 << 63, "an amount of memory that is none")
                require(0 <= message.cold_sizes < MOST_COUNTED, f"{message.cold_sizes} batch sizes")
                require(1 <= message.segments <= MOST_SEGMENTS, f"a model of {message.segments} segments")
                _check_text(message.warm_up_failure)
                self._segments[message.replica] = message.segments
            case LoadFailed():
                self._check_loading(message.replica)
                _check_text(message.model, message.reason)
            case _:
                attends = self._attends and isinstance(message, OF_AN_ATTENDANT)
                require(attends, f"{type(message).__name__}, which is not for it to say")

    def _check_loading(self, replica: int) -> None:
        require(replica in self._loading, "news of a replica that it is not loading")
        self._loading.discard(replica)

    def _check_done(self, done: Done, body_bytes: int) -> None:
        running = self._running.get(done.batch)
        if running is None:
            raise FrameError("news of a batch that it does not run")
        before, end = len(running.left), 0
        for part in done.parts:
            _take_rows(running, part.rows)
            end += _check_part(part, running.segments)
        if end != body_bytes:
            raise FrameError(f"tensors of {end} bytes in a body of {body_bytes}")
        if done.failed:
            _take_rows(running, done.failed)
        if done.unanswered and not set(done.unanswered) <= set(done.failed):
            raise FrameError("rows without an answer that have not failed")
        if done.unusable and not set(done.unusable) <= set(done.failed):
            raise FrameError("unusable rows that have not failed")
        if not (_is_time(done.run_s) and all(map(_is_time, done.segment_s))):
            raise FrameError("a time that is none")
        if len(done.segment_s) not in (0, running.segments * running.through):
            raise FrameError("times of segments that there are not")
        if not 0 <= done.not_finite < MOST_COUNTED:
            raise FrameError(f"{done.not_finite} lookups")
        if done.first_failure:
            _check_text(done.first_failure)
        left = len(running.left)
        if done.more:
            require(0 < left < before, "a part of a batch of no rows, or of all")
        elif left:
            raise FrameError(f"the end of a batch of which {left} rows have none")
        else:
            del self._running[done.batch]


def _take_rows(running: _Running, rows: Sequence[int]) -> None:
    told = set(rows)
    if len(told) != len(rows) or not told <= running.left:
        raise FrameError("rows that its batch does not have, or twice")
    running.left -= told


def _check_part(part: DonePart, segments: int) -> int:
    """The bytes of its tensors; their content is checked when they are unpacked."""
    rows, size_bytes = len(part.rows), 0
    if not part.tensors:
        raise FrameError("rows without a certainty")
    certainty, *outputs = part.tensors
    if certainty.datatype != "FP64" or certainty.shape != (rows,):
        raise FrameError("a certainty of another form")
    for tensor in part.tensors:
        if not tensor.shape or tensor.shape[0] != rows:
            raise FrameError(f"outputs of not {rows} rows")
        if tensor.size_bytes < 0:
            raise FrameError("a tensor of fewer than no bytes")
        size_bytes += tensor.size_bytes
    if len(outputs) > 1 and len({tensor.name for tensor in outputs}) != len(outputs):
        raise FrameError("two outputs of one name")
    if part.exits:
        exits = segments if segments > 1 else MOST_SEGMENTS  # one segment may still report exits
        if len(part.exits) != rows:
            raise FrameError(f"exits of not {rows} rows")
        if min(part.exits) < 0 or max(part.exits) >= exits:
            raise FrameError("an exit that there is not")
    return size_bytes


def _check_text(*texts: str) -> None:
    fits = all(len(text) <= LONGEST_TEXT + len("...") and text.isprintable() for text in texts)
    require(fits, "text that is too long for a line, or holds what no line may")


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds >= 0
