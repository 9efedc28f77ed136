"""Hold the bytes of gRPC answers until clients have read them; disconnect slow clients."""

import asyncio
import logging
from collections.abc import Callable

from gearshift.runtime.service.room import Room
from gearshift.serving.grpc.sockets import GrpcSockets

LOOK_S = 0.25
"""Interval at which unread answers are checked."""

log = logging.getLogger(__name__)


class Unread:
    """Answers that one call's client has not read; the current one was offered at `since_s`."""

    __slots__ = ("_answers", "_room", "held_bytes", "peer", "since_s")

    def __init__(self, answers: "Answers", peer: str, room: Room) -> None:
        self._answers, self._room = answers, room
        self.peer, self.held_bytes = peer, 0
        self.since_s: float | None = None

    def add(self, answer_bytes: int) -> None:
        self.held_bytes += answer_bytes
        self._room.held_bytes += answer_bytes
        self._answers.added(self, answer_bytes)

    def offer(self) -> None:
        self.since_s = asyncio.get_running_loop().time()

    def take(self, answer_bytes: int) -> None:
        self.since_s = None
        self.held_bytes -= answer_bytes
        self._room.held_bytes -= answer_bytes
        self._answers.removed(self, answer_bytes)

    def close(self, call: object = None) -> None:
        self.take(self.held_bytes)


class Answers:
    """Answers that clients have not read, held in the room that `room` returns.

    A client that has not read an answer after `longest_s` is disconnected, and so is the slowest
    one while all hold more than `most_bytes`.  That ends all calls of its connection: the library
    does not end a call before its answer is read.
    """

    def __init__(self, room: Callable[[], Room], sockets: GrpcSockets, *, most_bytes: int, longest_s: float) -> None:
        self._room, self._sockets = room, sockets
        self._most_bytes, self._longest_s = most_bytes, longest_s
        self._unread: dict[Unread, None] = {}
        self._unread_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def of(self, peer: str) -> Unread:
        return Unread(self, peer, self._room())

    def added(self, unread: Unread, answer_bytes: int) -> None:
        self._unread[unread] = None
        self._unread_bytes += answer_bytes
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def removed(self, unread: Unread, answer_bytes: int) -> None:
        self._unread_bytes -= answer_bytes
        if unread.held_bytes == 0:
            self._unread.pop(unread, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now_s, left_bytes = loop.time(), self._unread_bytes
        offered = [(one.since_s, one) for one in self._unread if one.since_s is not None]
        for since_s, unread in sorted(offered, key=lambda pair: pair[0]):
            longest_s = LOOK_S if left_bytes > self._most_bytes else self._longest_s
            if now_s < since_s + longest_s:
                break
            log.debug("a client that does not take its answer is cut off: %d bytes are left", unread.held_bytes)
            self._sockets.cut(unread.peer)
            left_bytes -= unread.held_bytes
        self._timer = loop.call_later(LOOK_S, self._look) if self._unread else None
