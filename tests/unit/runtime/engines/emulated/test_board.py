import time
from pathlib import Path

from gearshift.runtime.engines.emulated.board import STALE_NS, Board


def two(folder: Path) -> tuple[Board, Board]:
    return Board(folder / "board", 0, [1.0, 1.5]), Board(folder / "board", 1, [1.0, 1.0])


def test_an_engine_is_slowed_by_its_own_factor_while_another_is_at_work(tmp_path: Path) -> None:
    one, other = two(tmp_path)
    assert one.stretch() == other.stretch() == 1.0
    other.work_until(time.monotonic_ns() + 60_000_000_000)
    assert one.stretch() == 3.0
    assert other.stretch() == 1.0
    other.rest()
    assert one.stretch() == 1.0


def test_an_engine_that_ended_without_a_word_is_soon_taken_to_rest(tmp_path: Path) -> None:
    one, other = two(tmp_path)
    other.work_until(time.monotonic_ns() - STALE_NS - 1)
    assert one.stretch() == 1.0


def test_an_engine_that_is_started_again_leaves_what_others_wrote(tmp_path: Path) -> None:
    one, _ = two(tmp_path)
    one.work_until(time.monotonic_ns() + 60_000_000_000)
    again = Board(tmp_path / "board", 1, [1.25, 1.0])
    assert again.stretch() == 2.5
