"""Who is let in: while a service accepts requests, something can answer them, and there is room."""

import asyncio
from collections.abc import Callable, Iterable
from typing import NoReturn

from gearshift.errors import NotReady
from gearshift.observability.journal import Journal
from gearshift.runtime.service.room import Client, Reading, Room

NOT_READY = "not_ready"
STOPPED = "the server stopped before this request was answered; send it again"


class Accepting:
    """Whether requests are let in `now`: from the start on, but for a drain, and never once the service is ending.

    `open_requests` counts those that were accepted and are not answered.
    """

    def __init__(self, journal: Journal, open_requests: Callable[[], int]) -> None:
        self._journal, self._open_requests = journal, open_requests
        self.now = self.started = self._drained = self._ending = False

    def start(self, replicas: int) -> None:
        self.started, self.now = True, not (self._drained or self._ending)
        self._journal.write("ready", replicas=replicas)

    def refuse_new(self) -> None:
        """Refuse new requests from now on; accepted ones are answered, however long that takes."""
        self._journal.write("drain", unanswered=self._open_requests())
        self._drained, self.now = True, False

    def undo_drain(self) -> None:
        """Accept new requests again; raises `NotReady` if the service is ending."""
        if self._ending:
            raise NotReady("the server is ending")
        if self._drained:
            self._journal.write("drain_undone")
            self._drained, self.now = False, self.started

    def end(self) -> None:
        self._ending, self.now = True, False

    async def drain(self, longest_s: float, none_open: Iterable[asyncio.Event], fail: Callable[[], None]) -> bool:
        """Refuse new requests and wait for the others; after `longest_s` `fail` them, and return False."""
        self._ending = True
        self.refuse_new()
        try:
            async with asyncio.timeout(longest_s):
                for event in none_open:
                    await event.wait()
        except TimeoutError:
            fail()
            return False
        return True


class Admission:
    """Lets requests of one pipeline into `room`, or bulk work into `bulk_room`.

    `lacking` is a model without which no request can begin, and that has no replica; empty if there is none.
    `refused` counts a refusal by its reason; that of lacking one is `no_worker`, told as `nobody`.
    """

    def __init__(
        self,
        accepting: Accepting,
        room: Room,
        bulk_room: Room,
        *,
        lacking: Callable[[], str],
        refused: Callable[[str], None],
        no_worker: str = NOT_READY,
        nobody: str = "no worker of model {!r} is running; try again later",
    ) -> None:
        self._accepting, self._room, self._bulk_room = accepting, room, bulk_room
        self._lacking, self._refused, self._no_worker, self._nobody = lacking, refused, no_worker, nobody

    def require_room(self, rows: int, held_bytes: int, client: Client | None = None, *, bulk: bool = False) -> None:
        """Raise `NotReady`, `QueueFull` or `TooLarge` if a request of `rows` would be refused."""
        self.require(self._bulk_room if bulk else self._room, rows, held_bytes, client)

    def reading(self, announced_bytes: int, *, bulk: bool = False) -> Reading:
        self.require_room(1, announced_bytes, bulk=bulk)
        return Reading(self._bulk_room if bulk else self._room)

    def require(self, room: Room, rows: int, held_bytes: int, client: Client | None) -> None:
        """As `require_room`, for another room."""
        if not self._accepting.now:
            self._refuse(NOT_READY, "the server is not accepting requests; try another one, or again later")
        if lacking := self._lacking():
            self._refuse(self._no_worker, self._nobody.format(lacking))
        room.require(rows, held_bytes, client)

    def _refuse(self, reason: str, why: str) -> NoReturn:
        self._refused(reason)
        raise NotReady(why)
