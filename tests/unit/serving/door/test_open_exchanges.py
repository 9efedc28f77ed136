"""What is open ends when its key is revoked, and only then."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from gearshift.serving.door.keys import Keys, read_keys
from gearshift.serving.door.open_exchanges import LOOK_S, MOST_AT_ONCE, OpenExchanges
from tests.unit.serving.leaping_loop import LeapingLoop

FIRST, SECOND, ADMIN = "the-first-key-of-all", "the-second-key-of-all", "the-key-of-admins"


def write(path: Path, *keys: str, end: str = "\n") -> None:
    """Put a new file in its place."""
    new = path.with_suffix(".new")
    new.write_text("\n".join(keys) + end)
    new.chmod(0o600)
    new.rename(path)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    users, admins = tmp_path / "users", tmp_path / "admins"
    write(users, FIRST, SECOND)
    write(admins, ADMIN)
    return users, admins


def asking(key: str) -> dict[bytes, bytes]:
    return {b"x-api-key": key.encode()}


def run(use: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        runner.run(use())  # type: ignore[arg-type]


def keys_in(files: tuple[Path, Path]) -> Keys:
    keys = read_keys(*map(str, files))
    assert keys is not None
    return keys


def test_those_of_a_revoked_key_end_within_a_second_and_others_go_on(files: tuple[Path, Path]) -> None:
    async def use() -> None:
        keys, ended = keys_in(files), list[str]()
        for key in (FIRST, SECOND, ADMIN):
            keys.admit_user(asking(key), lambda key=key: ended.append(key))  # type: ignore[misc]
        keys.admit_admin(asking(ADMIN), lambda: ended.append("admin"))
        await asyncio.sleep(10)
        assert ended == []
        write(files[0], SECOND)
        await asyncio.sleep(1)
        assert ended == [FIRST]
        write(files[1], "another-key-of-admins")
        await asyncio.sleep(1)
        assert ended == [FIRST, ADMIN, "admin"]

    run(use)


def test_one_that_is_over_is_not_ended(files: tuple[Path, Path]) -> None:
    async def use() -> None:
        keys, ended = keys_in(files), list[str]()
        over = keys.admit_user(asking(FIRST), lambda: ended.append(FIRST))
        over()
        write(files[0], SECOND)
        await asyncio.sleep(1)
        assert ended == []

    run(use)


def test_a_key_that_is_missing_for_a_moment_is_not_revoked(files: tuple[Path, Path]) -> None:
    async def use() -> None:
        keys, ended = keys_in(files), list[str]()
        keys.admit_user(asking(FIRST), lambda: ended.append(FIRST))
        files[0].write_text("")
        await asyncio.sleep(LOOK_S * 1.5)
        write(files[0], SECOND, FIRST, end="")  # which lets nobody in by the last line yet
        await asyncio.sleep(10)
        assert ended == []
        files[0].unlink()
        await asyncio.sleep(1)
        assert ended == [FIRST]

    run(use)


def test_a_server_without_keys_of_users_watches_nobody(files: tuple[Path, Path]) -> None:
    async def use() -> None:
        keys = read_keys(None, str(files[1]))
        assert keys is not None
        keys.admit_user({}, lambda: None)()
        assert len(asyncio.all_tasks()) == 1

    run(use)


def test_a_fault_of_one_does_not_keep_others_from_their_end_and_no_turn_ends_too_many() -> None:
    async def use() -> None:
        loop, turns, turn = asyncio.get_running_loop(), list[int](), 0
        known = {"a"}
        exchanges = OpenExchanges[str](lambda: len(known), known.__contains__)

        def next_turn() -> None:
            nonlocal turn
            turn += 1
            if turn < 10:
                loop.call_soon(next_turn)

        def end(number: int) -> None:
            if not turns:
                next_turn()
            turns.append(turn)
            if number == 1:
                raise ValueError

        for number in range(3 * MOST_AT_ONCE):
            exchanges.add("a", partial(end, number))
        known.clear()
        await asyncio.sleep(1)
        assert sorted(Counter(turns).values()) == [MOST_AT_ONCE] * 3
        assert len(exchanges) == 0

    run(use)
