"""What this machine's front end takes for a request, measured as `gearshift profile` measures it.

A profile made from records of other machines lacks it, and a simulation without it is early by a millisecond.
"""

import asyncio
from dataclasses import replace

import numpy as np
import uvloop

from gearshift.loading import Samples
from gearshift.profiles.profile import Profile
from gearshift.runtime.backends.emulated import SAMPLE
from gearshift.serving.beside import front_end_beside

SECONDS = 5.0


def with_front_end(profile: Profile, seconds: float = SECONDS) -> Profile:
    """The profile with the mean time of this machine's front end, over a model that answers at once."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return replace(profile, front_end_s=runner.run(_front_end_s(seconds)))


async def _front_end_s(seconds: float) -> float:
    async with front_end_beside(Samples(inputs={SAMPLE: np.arange(64)})) as time:
        await asyncio.sleep(seconds)
    return time.mean_s
