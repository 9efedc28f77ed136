import asyncio

import pytest

from gearshift.measuring.turnaround import Turnaround


@pytest.mark.parametrize("size", [1, 3, 64])
def test_a_batch_that_ends_has_the_next_one_of_its_size_started_behind_it(size: int) -> None:
    async def turned() -> list[tuple[int, int]]:
        async with Turnaround(64) as turnaround:
            seen = []
            for _ in range(3):
                turnaround.hold(size)
                before = turnaround.running
                turnaround.turn()
                seen.append((before, turnaround.running))
                await asyncio.sleep(0)  # the answers are given
            return seen

    assert asyncio.run(turned()) == [(size, size)] * 3


def test_nothing_ends_where_nothing_runs() -> None:
    async def turned() -> int:
        async with Turnaround(8) as turnaround:
            turnaround.turn()
            return turnaround.running

    assert asyncio.run(turned()) == 0
