"""Bounds on what a service holds: waiting samples of each pipeline, and bytes of requests."""

import math
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import QueueFull, TooLarge
from gearshift.model import STRING_BYTES, Arrays
from gearshift.policies.admission import admits, fair_share, retry_after_s

ROW_BYTES = 1 << 10
"""Memory of a waiting row besides its tensors; 780 to 1050 were measured, for 1 to 3 inputs."""


def memory_of(inputs: Arrays, rows: int, payload_bytes: int) -> int:
    """Bytes in memory of a request with these arrays, whose body had `payload_bytes`."""
    tensor_bytes = text_bytes = 0
    for array in inputs.values():
        tensor_bytes += array.nbytes
        if array.dtype.hasobject:
            text_bytes += array.size * STRING_BYTES
    if text_bytes:
        text_bytes += payload_bytes
    return rows * ROW_BYTES + max(payload_bytes, tensor_bytes, text_bytes)


def bytes_of(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Bytes in memory of outputs of models."""
    size_bytes = 0
    for array in arrays.values():
        size_bytes += array.nbytes
        if array.dtype.hasobject:
            size_bytes += sum(STRING_BYTES + len(text) for text in array.flat)
    return size_bytes


class Client:
    """A client connection: the rows of its unanswered requests in each room, and their bytes."""

    __slots__ = ("__weakref__", "held_bytes", "rows")

    def __init__(self) -> None:
        self.rows: dict[Room, int] = {}
        self.held_bytes = 0


FEWER = "send fewer rows at once"
UNBOUNDED = 1 << 62


class Queues(Protocol):
    @property
    def waiting(self) -> int: ...


class Elsewhere(Protocol):
    """Bytes held outside a service: in front ends, and as answers not yet sent."""

    @property
    def held_bytes(self) -> int:
        """Bytes of requests being read, and of answers that clients have not taken yet."""
        ...


class Nowhere:
    """Nothing is held in other processes."""

    held_bytes: int = 0


class Unsent(Nowhere):
    """No other processes, but answers that clients have not taken yet."""

    def count(self, unsent_bytes: int) -> int:
        self.held_bytes = unsent_bytes
        return unsent_bytes


class HeldBytes:
    """Bytes of requests that are being read or not answered, of all pipelines; at most `most_bytes`.

    What is held `elsewhere` counts too. `held_bytes` includes `reading_bytes`.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.elsewhere: Elsewhere = Nowhere()
        self.held_bytes = self.reading_bytes = 0

    @property
    def all_held_bytes(self) -> int:
        return self.held_bytes + self.elsewhere.held_bytes


def has_room(held: HeldBytes, more_bytes: int) -> bool:
    """Whether requests that are let in may grow: to twice the bound at which new ones are refused."""
    return held.all_held_bytes + more_bytes <= 2 * held.most_bytes


LONGEST_DRAIN_S = 60


def whole_seconds(drain_ns: int) -> int:
    """The `Retry-After` where what is there is predicted to be answered in this time."""
    return max(1, min(LONGEST_DRAIN_S, -(-drain_ns // NS_PER_S)))


class Room:
    """Bounds on samples in the `queues` of a pipeline, and on the bytes that all hold together.

    `refused` is called at each refusal. No client connection shuts out the others: of a
    connection's rows, at most half of `most_requests` count against clients that ask for less than
    half (`fair_share`), and only a single request may hold more than half of the bytes. Waiting
    samples leave at `capacity_qps`, from which the `Retry-After` of a refused request is computed,
    unless `drain_ns` tells in what time all that waits is answered.
    """

    def __init__(
        self,
        queues: Queues,
        most_requests: int,
        held: HeldBytes,
        refused: Callable[[], None],
        capacity_qps: float = math.inf,
        drain_ns: Callable[[], int] | None = None,
    ) -> None:
        self.most_requests, self.held = most_requests, held
        self._capacity_qps, self._drain_ns = capacity_qps, drain_ns
        self._share = fair_share(most_requests)
        self._queues, self._refused = queues, refused
        self._uncounted_rows = 0
        """Rows of all clients beyond the number that counts for each of them."""

    @property
    def waiting(self) -> int:
        return max(0, self._queues.waiting - self._uncounted_rows)

    def admits(self, rows: int, held_bytes: int, client: Client | None = None) -> bool:
        clients_rows, waiting, held = rows, self._queues.waiting, self.held
        if client is not None and client.held_bytes and client.held_bytes + held_bytes > held.most_bytes // 2:
            return False
        if client is not None and client.rows:
            clients_rows += client.rows.get(self, 0)
        if self._uncounted_rows and clients_rows <= self._share:  # else all rows count against it
            waiting = self.waiting
        all_bytes = held.held_bytes + held.elsewhere.held_bytes
        return admits(waiting, all_bytes, rows, held_bytes, self.most_requests, held.most_bytes)

    def require(self, rows: int, held_bytes: int, client: Client | None = None) -> None:
        """Raise `QueueFull` if there is no room now, `TooLarge` if there never would be."""
        if not self.admits(rows, held_bytes, client):
            self._require_possible(rows, held_bytes)
            raise self.full(rows, held_bytes)

    def require_more(self, read_bytes: int, more_bytes: int) -> None:
        """Like `require`, for more bytes of a request of which `read_bytes` have arrived.

        Requests being read take half of the bytes at most, unless one is read alone, so that slow
        clients with large bodies do not shut out those whose requests arrive at once.
        """
        held = self.held
        others_too = held.reading_bytes > read_bytes
        too_many = others_too and held.reading_bytes + more_bytes > held.most_bytes // 2
        if too_many or held.all_held_bytes + more_bytes > held.most_bytes:
            self._require_possible(1, read_bytes + more_bytes)
            raise self.full(0, more_bytes)

    def take(self, rows: int, held_bytes: int, client: Client) -> None:
        before = client.rows.get(self, 0)
        now = client.rows[self] = before + rows
        if now > self._share:
            self._uncounted_rows += now - max(before, self._share)
        self.held.held_bytes += held_bytes
        client.held_bytes += held_bytes

    def give_back(self, rows: int, held_bytes: int, client: Client) -> None:
        before = client.rows.pop(self, 0)
        now = before - rows
        if now:
            client.rows[self] = now
        if before > self._share:
            self._uncounted_rows -= before - max(now, self._share)
        self.held.held_bytes -= held_bytes
        client.held_bytes -= held_bytes

    def _require_possible(self, rows: int, held_bytes: int) -> None:
        if rows > self.most_requests:
            raise TooLarge(f"the request has {rows} rows, at most {self.most_requests} may wait", remedy=FEWER)
        most_bytes = self.held.most_bytes
        if held_bytes > most_bytes:
            raise TooLarge(
                f"the request takes {held_bytes} bytes in memory, at most {most_bytes} may be held", remedy=FEWER
            )

    def full(self, rows: int, held_bytes: int) -> QueueFull:
        self._refused()
        waiting, all_bytes = self.waiting, self.held.all_held_bytes
        if self._drain_ns is not None:
            again_s = whole_seconds(self._drain_ns())
        else:
            again_s = retry_after_s(
                waiting, all_bytes, rows, held_bytes, self.most_requests, self.held.most_bytes, self._capacity_qps
            )
        return QueueFull(
            f"{waiting} requests wait and {all_bytes} bytes are held already; try again in {again_s} s", again_s
        )


class OpenRows:
    """Counts rows that are not answered yet, as `Queues` does those that wait."""

    def __init__(self) -> None:
        self.waiting = 0


class RoomOfItsOwn(Room):
    """Bounds on rows that are not answered yet, apart from those that wait in queues."""

    def __init__(
        self, most_requests: int, held: HeldBytes, refused: Callable[[], None], capacity_qps: float = math.inf
    ) -> None:
        self._open, self._held_bytes = OpenRows(), 0
        super().__init__(self._open, most_requests, held, refused, capacity_qps)

    def take(self, rows: int, held_bytes: int, client: Client) -> None:
        self._open.waiting += rows
        self._held_bytes += held_bytes
        super().take(rows, held_bytes, client)

    def give_back(self, rows: int, held_bytes: int, client: Client) -> None:
        self._open.waiting -= rows
        self._held_bytes -= held_bytes
        super().give_back(rows, held_bytes, client)


class BulkRoom(RoomOfItsOwn):
    """Bounds on the rows of bulk work that are not answered yet: their own, and half of all bytes.

    Refusals are not counted: who sends bulk work finds out with them how much there is room for.
    """

    def __init__(self, most_requests: int, held: HeldBytes, capacity_qps: float) -> None:
        super().__init__(most_requests, held, lambda: None, capacity_qps)

    def admits(self, rows: int, held_bytes: int, client: Client | None = None) -> bool:
        enough = self._held_bytes + held_bytes <= self.held.most_bytes // 2
        return enough and super().admits(rows, held_bytes, client)


class WideRoom(RoomOfItsOwn):
    """Room for a request of more rows than may wait in the `beside` room: one at a time, up to the bound on bytes."""

    def __init__(self, beside: Room, refused: Callable[[], None], capacity_qps: float) -> None:
        self._beside = beside
        super().__init__(UNBOUNDED, beside.held, refused, capacity_qps)

    def admits(self, rows: int, held_bytes: int, client: Client | None = None) -> bool:
        return not self._open.waiting and super().admits(rows, held_bytes, client)

    def full(self, rows: int, held_bytes: int) -> QueueFull:
        left = self._open.waiting
        if not left:
            return super().full(rows, held_bytes)
        self._refused()
        again_s = retry_after_s(left, 0, 0, 0, 0, self.held.most_bytes, self._capacity_qps)
        return QueueFull(
            f"requests of more than {self._beside.most_requests} rows are taken one at a time, and one has {left} rows "
            f"left; try again in {again_s} s, or send fewer rows at once",
            again_s,
        )


class Reading:
    """The bytes of a request being read, held as they arrive until the block ends, or `close`."""

    __slots__ = ("_bytes", "_room")

    def __init__(self, room: Room) -> None:
        self._room: Room | None = room
        self._bytes = 0

    def hold(self, more_bytes: int) -> None:
        """Hold further bytes; raises `QueueFull` or `TooLarge`."""
        if self._room is not None:
            self._room.require_more(self._bytes, more_bytes)
            self._bytes += more_bytes
            self._room.held.held_bytes += more_bytes
            self._room.held.reading_bytes += more_bytes

    def close(self) -> None:
        if self._room is not None:
            self._room.held.held_bytes -= self._bytes
            self._room.held.reading_bytes -= self._bytes
            self._room = None

    def __enter__(self) -> "Reading":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
