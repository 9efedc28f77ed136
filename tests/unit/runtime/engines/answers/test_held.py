"""Chunks that are held until a stage has decided."""

from gearshift.runtime.engines.answers.held import LARGEST_HELD_BYTES, MOST_HELD_CHUNKS, Held
from gearshift.runtime.service.room import HeldBytes


def test_no_more_chunks_are_held_than_can_be_shown_at_once() -> None:
    memory = HeldBytes(1 << 30)
    held = Held(memory)
    assert all(held.add(b"x") for _ in range(MOST_HELD_CHUNKS))
    assert not held.add(b"x")
    assert len(held.take()) == MOST_HELD_CHUNKS
    assert memory.held_bytes == 0
    assert held.add(b"x")


def test_the_bytes_of_one_answer_and_of_all_have_bounds() -> None:
    assert not Held(HeldBytes(1 << 30)).add(b"x" * LARGEST_HELD_BYTES)
    assert not Held(HeldBytes(1000)).add(b"x" * 2000)
