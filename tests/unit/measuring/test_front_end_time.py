"""The front end beside timed models: a real server, a real client, a measured time, and nothing left running."""

import asyncio

import numpy as np
import psutil

from gearshift.measuring.front_end_time import front_end_beside
from gearshift.measuring.measured_models import FrontEndTime
from gearshift.models.samples import Samples


def measured(samples: Samples) -> tuple[FrontEndTime, int]:
    """What was measured, and how many processes ran beside meanwhile."""

    async def main() -> tuple[FrontEndTime, int]:
        before = set(psutil.Process().children())
        async with front_end_beside(samples) as time:
            children = len(set(psutil.Process().children()) - before)
            await asyncio.sleep(0.3)
        return time, children

    return asyncio.run(main())


def test_the_front_end_is_timed_by_a_client_of_its_own() -> None:
    before = set(psutil.Process().children())
    time, children = measured(Samples(inputs=np.random.default_rng(0).random((10, 4)), labels=np.zeros(10)))
    assert 0 < time.mean_s < 1
    assert 0 < time.router_s < 0.1
    assert children == 1
    assert set(psutil.Process().children()) <= before


def test_samples_that_json_cannot_carry_leave_it_unmeasured() -> None:
    time, children = measured(Samples(inputs=np.array([b"\xff"] * 10, dtype=object), labels=np.zeros(10)))
    assert time.mean_s == time.router_s == 0
    assert children == 0
