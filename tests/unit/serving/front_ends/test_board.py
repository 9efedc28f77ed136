import os

from gearshift.runtime.service.room import HeldBytes, Room
from gearshift.serving.front_ends.board import HELD_BYTES, MOST_WAITING, TAKING, WAITING, Board
from gearshift.serving.front_ends.front_end import FrontHeldBytes, FrontRoom


def boards(front_ends: int) -> list[Board]:
    router = Board.of_router(front_ends)
    return [router, *(Board(router.fd, 1 + number) for number in range(front_ends))]


def test_each_process_sees_what_all_others_hold():
    router, first, second = boards(2)
    for board, held in ((router, 1), (first, 20), (second, 300)):
        board.write(HELD_BYTES, held)
    assert [board.held_bytes for board in (router, first, second)] == [320, 301, 21]
    router.clear(2)
    assert [board.held_bytes for board in (router, first, second)] == [20, 1, 21]


def test_connections_are_counted_over_all_processes():
    _, first, second = boards(2)
    assert first.count_connections(3) == 3
    assert second.count_connections(4) == 7
    assert first.count_connections(0) == 4


def test_the_router_says_whether_anything_is_let_in():
    router, first = boards(1)
    assert not first.pipelines[0].taking
    router.pipelines[0].write(TAKING, True)
    assert first.pipelines[0].taking


def test_each_pipeline_has_its_own_numbers():
    router = Board.of_router(1, pipelines=2)
    first = Board(router.fd, 1, pipelines=2)
    for number, on_board in enumerate(router.pipelines):
        for column in (WAITING, TAKING, MOST_WAITING):
            on_board.write(column, 10 * number + column + 1)
    first.write(HELD_BYTES, 7)
    assert [(each.waiting, each.taking, each.most_waiting) for each in first.pipelines] == [
        (1, True, 3),
        (11, True, 13),
    ]
    assert (router.held_bytes, first.held_bytes) == (7, 0)


def test_a_room_is_full_of_what_others_hold():
    router, first, second = boards(2)
    here, there = (
        FrontRoom(board.pipelines[0], FrontHeldBytes(board, 1000), lambda: None) for board in (first, second)
    )
    router.pipelines[0].write(MOST_WAITING, 10)
    router.pipelines[0].write(WAITING, 6)
    held = HeldBytes(1000)
    held.elsewhere = router
    behind = Room(first.pipelines[0], 10, held, lambda: None)
    there.held.held_bytes = 600
    assert (first.pipelines[0].waiting, first.held_bytes) == (6, 600)
    for room in (here, behind):
        assert room.admits(1, 400)
        assert not room.admits(1, 401)
        assert not room.admits(5, 0)
        assert not room.admits(9, 0)
    router.pipelines[0].write(WAITING, 10)
    assert not here.admits(1, 0)


def test_the_memory_stays_as_long_as_somebody_looks_at_it():
    router, first = boards(1)
    router.pipelines[0].write(WAITING, 5)
    router.close()
    assert first.pipelines[0].waiting == 5
    assert not os.path.exists(f"/proc/self/fd/{router.fd}")
