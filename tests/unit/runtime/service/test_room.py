from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from gearshift.errors import QueueFull, TooLarge
from gearshift.model import STRING_BYTES
from gearshift.runtime.service.room import ROW_BYTES, Client, HeldBytes, Room, memory_of


@dataclass
class Waiting:
    """Queues in which all that is held waits."""

    waiting: int = 0


def room_for(rows: int, size_bytes: int = 10**9) -> tuple[Room, Waiting]:
    queues = Waiting()
    return Room(queues, rows, HeldBytes(size_bytes), lambda: None), queues


def take(room: Room, queues: Waiting, rows: int, client: Client, size_bytes: int = 0) -> None:
    room.require(rows, size_bytes, client)
    room.take(rows, size_bytes, client)
    queues.waiting += rows


def test_one_client_may_fill_the_queues_and_others_still_find_half_of_the_room() -> None:
    room, queues = room_for(10)
    take(room, queues, 10, Client())
    other = Client()
    take(room, queues, 5, other)
    with pytest.raises(QueueFull):
        take(room, queues, 1, Client())
    with pytest.raises(QueueFull):
        take(room, queues, 1, other)


def test_whoever_asks_for_more_than_half_finds_room_only_beside_all_that_waits() -> None:
    room, queues = room_for(10)
    take(room, queues, 8, Client())
    with pytest.raises(QueueFull):
        take(room, queues, 6, Client())


def test_a_client_holds_no_more_than_may_wait_however_little_of_it_counts() -> None:
    room, queues = room_for(10)
    client = Client()
    take(room, queues, 9, client)
    take(room, queues, 1, client)
    with pytest.raises(QueueFull):
        take(room, queues, 1, client)


def test_a_request_that_could_never_wait_is_too_large_and_not_to_be_tried_again() -> None:
    room, _ = room_for(10, size_bytes=100)
    with pytest.raises(TooLarge, match="the request has 11 rows, at most 10 may wait; send fewer rows at once"):
        room.require(11, 0, Client())
    with pytest.raises(TooLarge, match="the request takes 101 bytes in memory, at most 100 may be held"):
        room.require(1, 101)


def test_more_than_half_of_the_bytes_are_held_by_a_single_request_alone() -> None:
    room, queues = room_for(10, size_bytes=100)
    client = Client()
    take(room, queues, 1, client, 40)
    with pytest.raises(QueueFull):
        take(room, queues, 1, client, 20)
    take(room, queues, 1, Client(), 60)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-4, 8)), max_size=60))
def test_what_counts_is_at_most_half_of_each_clients_rows(changes: list[tuple[int, int]]) -> None:
    room, queues = room_for(8)
    clients = [Client(), Client(), Client()]
    for number, rows in changes:
        client = clients[number]
        if rows > 0 and room.admits(rows, 0, client):
            take(room, queues, rows, client)
        elif rows < 0:
            given_back = min(-rows, client.rows.get(room, 0))
            room.give_back(given_back, 0, client)
            queues.waiting -= given_back
        assert room.waiting == sum(min(each.rows.get(room, 0), 4) for each in clients) <= 8
        assert queues.waiting <= 12


def test_memory_is_of_arrays_rows_and_strings_and_not_of_bytes_on_the_wire() -> None:
    assert memory_of({"x": np.zeros((3, 4), np.float32)}, 3, 10) == 3 * ROW_BYTES + 48
    assert memory_of({"x": np.zeros((3, 4), np.float32)}, 3, 100) == 3 * ROW_BYTES + 100
    text = np.array(["a", "b"], dtype=object)
    assert memory_of({"text": text}, 2, 10) == 2 * ROW_BYTES + 2 * STRING_BYTES + 10
