"""How engines on the same devices slow each other: decoding steps of each, alone and while the other is at work.

What is timed, and what keeps the other at work, are as many requests as were timed together at most.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from itertools import combinations
from math import ceil
from pathlib import Path
from statistics import median
from typing import NamedTuple

from gearshift.errors import InvalidInput
from gearshift.hardware import is_cuda, is_remote
from gearshift.measuring.engines.endpoint import BrokenAnswer, Endpoint
from gearshift.measuring.engines.kept import TimedBeside
from gearshift.measuring.engines.reached import running
from gearshift.measuring.engines.timing import MARGIN_TOKENS, EngineTimer, Work, step_seen
from gearshift.models.language_config import MEMORY_SHARE, EngineMeasuring, EngineSettings
from gearshift.profiles.engines.engine_profile import EngineProfile, Sharing

LEAST_S, LEAST_STEPS = 0.3, 32
"""The time that each engine would need alone for the steps that are timed, and the least number of steps."""
ANSWERS = 8
"""The most answers that a request is followed by while the other engine is timed."""
LEAVING_S = 0.2
"""For an engine to notice that its requests have left."""
BUSY = 0.9
"""A factor below says that others had the devices meanwhile."""


class Beside(NamedTuple):
    """One engine of a pair: the requests, contexts and longest answers (in tokens) that keep it at work."""

    name: str
    settings: EngineSettings
    requests: int
    context: int
    tokens: int

    @property
    def most_calls(self) -> int:
        """In one repeat: alone, beside the other, and to keep that one company."""
        return self.requests * (2 + ANSWERS)


class NotTimed(InvalidInput):
    """Too few tokens came to compare them."""


def beside_of(name: str, settings: EngineSettings, work: Work) -> Beside:
    """As many requests as were timed together at most, in their shortest context."""
    requests = max(count for count, _ in work.together)
    context = min(context for count, context in work.together if count == requests)
    room = min(settings.context_tokens, settings.held_tokens // requests)
    return Beside(name, settings, requests, context, max(1, room - context - 2 * MARGIN_TOKENS))


def may_share(one: EngineSettings, other: EngineSettings) -> bool:
    """Whether plans may put both on the same devices, which takes commands to start, and memory that is known."""
    known = all(each.command and each.weights_bytes and each.kv_bytes_per_token for each in (one, other))
    return known and one.kind == other.kind and one.degrees == other.degrees and not is_remote(one.kind)


def pairs_of(engines: Sequence[Beside]) -> list[tuple[Beside, Beside]]:
    return [pair for pair in combinations(engines, 2) if may_share(pair[0].settings, pair[1].settings)]


def calls_of_pair(pair: tuple[Beside, Beside], how: EngineMeasuring) -> int:
    """At most; two of each engine to reach it."""
    return 4 + how.repeats * sum(one.most_calls for one in pair)


def steps_of(pair: tuple[Beside, Beside], engines: tuple[EngineProfile, EngineProfile]) -> tuple[int, int]:
    """The steps of each that are timed."""
    steps_s = [one.decode.step_s[-1] for one in engines]
    wanted_s = max(LEAST_S, LEAST_STEPS * max(steps_s))
    first, second = (min(one.tokens, ceil(wanted_s / each)) for one, each in zip(pair, steps_s, strict=True))
    return first, second


def seconds_of_pair(pair: tuple[Beside, Beside], engines: tuple[EngineProfile, EngineProfile]) -> float:
    """About, of one repeat: each alone, and each half as fast beside the other."""
    steps = steps_of(pair, engines)
    return sum(3 * count * one.decode.step_s[-1] + LEAVING_S for count, one in zip(steps, engines, strict=True))


async def timed_beside(
    pair: tuple[Beside, Beside], timers: tuple[EngineTimer, EngineTimer], steps: tuple[int, int]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seconds of a step of both, alone and beside the other; raises `NotTimed`, and as `Endpoint.ask`."""
    alone, beside = [], []
    for i, other in ((0, 1), (1, 0)):
        alone.append(await _step_s(pair[i], timers[i], steps[i]))
        company = [asyncio.create_task(_keep_company(pair[other], timers[other])) for _ in range(pair[other].requests)]
        try:
            beside.append(await _step_s(pair[i], timers[i], steps[i]))
            ended = [task for task in company if task.done()]
            for task in ended:
                task.result()
            if ended:
                raise NotTimed(f"model {pair[other].name!r} ended its answers too early to be at work meanwhile")
        finally:
            for task in company:
                task.cancel()
            await asyncio.gather(*company, return_exceptions=True)
            await asyncio.sleep(LEAVING_S)
    return (alone[0], alone[1]), (beside[0], beside[1])


async def _step_s(one: Beside, timer: EngineTimer, steps: int) -> float:
    step_s = step_seen(await timer.together(one.requests, one.context, steps))
    if step_s is None:
        raise NotTimed(f"model {one.name!r} gave too few tokens for a step to be timed")
    return step_s


async def _keep_company(one: Beside, timer: EngineTimer) -> None:
    """Answers of one request after another."""
    for _ in range(ANSWERS):
        with suppress(BrokenAnswer):
            await timer.together(1, one.context, one.tokens)


class Started:
    """Both engines of a pair on the same devices, each with half of the memory."""

    def __init__(
        self, pair: tuple[Beside, Beside], folder: Path, *, chat: bool, available: Sequence[int] | None = None
    ) -> None:
        self._pair, self._folder, self._chat, self._available = pair, folder, chat, available
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> tuple[EngineTimer, EngineTimer]:
        timers = []
        try:
            for one in self._pair:
                start = running(
                    one.name, one.settings, self._folder, memory_share=MEMORY_SHARE / 2, available=self._available
                )
                endpoint = Endpoint(one.name, one.settings, await self._stack.enter_async_context(start))
                self._stack.callback(endpoint.close)
                timers.append(EngineTimer(endpoint, EngineMeasuring(), chat=self._chat))
                await timers[-1].probe()
        except BaseException:
            await self._stack.aclose()
            raise
        return timers[0], timers[1]

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()


def factors_of(engines: tuple[EngineProfile, EngineProfile], rows: Sequence[TimedBeside]) -> list[Sharing]:
    """The factor of each beside the other: the median of the repeats, and the least and the greatest.

    Processes on the same processors cannot have more than half of them each, so less than 1 is
    taken as 1 there; accelerators may work on several at a time.
    """
    found = []
    for i, (mine, other) in enumerate((engines, engines[::-1])):
        each = [row.together[i] / row.alone[i] / 2 for row in rows]
        least = 0.0 if is_cuda(mine.device_kind) else 1.0
        found.append(
            Sharing(
                model=mine.model,
                beside=other.model,
                device_kind=mine.device_kind,
                tensor_parallel=mine.tensor_parallel,
                factor=max(least, median(each)),
                interval=(min(each), max(each)),
            )
        )
    return found


def doubts_about_sharing(found: Sequence[Sharing]) -> list[str]:
    """Factors that tell of other work on the same processors."""
    return [
        f"steps of model {one.model!r} beside {one.beside!r} took at most {2 * one.interval[1]:.2f} times as long as "
        "alone, and processors allow no less than twice: other work had them meanwhile, so profile on an idle machine"
        for one in found
        if one.interval is not None and not is_cuda(one.device_kind) and one.interval[1] < BUSY
    ]
