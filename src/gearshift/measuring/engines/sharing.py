"""How engines on the same devices slow each other: tokens a second of both, each alone and both at work.

Each engine is kept at work by as many requests as were timed together at most, whose answers are as
long as its context allows. The first is at work alone, then both are, then the second alone.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import NamedTuple

from gearshift.errors import InvalidInput
from gearshift.hardware import is_remote
from gearshift.measuring.engines.endpoint import BrokenAnswer, Endpoint
from gearshift.measuring.engines.heard import Heard
from gearshift.measuring.engines.kept import TimedBeside
from gearshift.measuring.engines.reached import running
from gearshift.measuring.engines.timing import MARGIN_TOKENS, EngineTimer, Work
from gearshift.models.language_config import MEMORY_SHARE, EngineMeasuring, EngineSettings
from gearshift.profiles.engines.engine_profile import EngineProfile, Sharing

LEAST_WINDOW_S, LONGEST_WINDOW_S = 0.3, 20.0
STEPS = 64
"""Steps of the slower engine, alone, in the time for which tokens are counted."""
ANSWERS = 8
"""The most answers that a request is followed by, in one repeat."""
LEAST_TOKENS = 16
LEAVING_S = 0.2
"""For an engine to notice that its requests have left."""


class Beside(NamedTuple):
    """One engine of a pair: its settings, and the requests, contexts and answers (in tokens) that keep it at work."""

    name: str
    settings: EngineSettings
    requests: int
    context: int
    tokens: int

    @property
    def most_calls(self) -> int:
        return self.requests * ANSWERS


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


def window_s(engines: tuple[EngineProfile, EngineProfile]) -> float:
    """The time for which tokens are counted."""
    slower_s = max(one.decode.step_s[-1] for one in engines)
    return min(max(STEPS * slower_s, LEAST_WINDOW_S), LONGEST_WINDOW_S)


def seconds_of_pair(engines: tuple[EngineProfile, EngineProfile], how: EngineMeasuring) -> float:
    """About, beside the engines' start."""
    return how.repeats * (3 * window_s(engines) + 2 * LEAVING_S)


class _AtWork:
    """Requests that are answered one after another, as soon as the one before is."""

    def __init__(self, timer: EngineTimer, how: Beside) -> None:
        self._timer, self._how = timer, how
        self._heard: list[Heard] = []
        self.tasks = [asyncio.create_task(self._go_on()) for _ in range(how.requests)]

    @property
    def tokens(self) -> int:
        return sum(len(one.came_ns) for one in self._heard)

    async def begun(self) -> None:
        """Until each of its requests has a token, or one has no more answers."""
        while not any(task.done() for task in self.tasks):
            if sum(bool(one.came_ns) for one in self._heard) >= self._how.requests:
                return
            await asyncio.sleep(0.001)

    async def leave(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _go_on(self) -> None:
        for _ in range(ANSWERS):
            heard = Heard()
            self._heard.append(heard)
            with suppress(BrokenAnswer):
                await self._timer.answer(self._how.context, self._how.tokens, heard)


async def _rates(seconds: float, *engines: _AtWork) -> tuple[float, ...]:
    """Tokens a second of each, until one of their requests has had all its answers."""
    for one in engines:
        await one.begun()
    before, begun_ns = [one.tokens for one in engines], time.perf_counter_ns()
    tasks = [task for one in engines for task in one.tasks]
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    took_s = (time.perf_counter_ns() - begun_ns) / 1e9
    for task in done:
        task.result()
    came = [one.tokens - tokens for one, tokens in zip(engines, before, strict=True)]
    if min(came) < LEAST_TOKENS:
        raise NotTimed(f"{min(came)} tokens came in {took_s:.2g} s, and {LEAST_TOKENS} are needed")
    return tuple(count / took_s for count in came)


async def timed_beside(
    pair: tuple[Beside, Beside], timers: tuple[EngineTimer, EngineTimer], seconds: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Tokens a second of both, alone and together; raises `NotTimed`, and as `Endpoint.ask`."""
    first = second = None
    try:
        first = _AtWork(timers[0], pair[0])
        (first_alone,) = await _rates(seconds, first)
        second = _AtWork(timers[1], pair[1])
        of_first, of_second = await _rates(seconds, first, second)
        await first.leave()
        await asyncio.sleep(LEAVING_S)
        (second_alone,) = await _rates(seconds, second)
    finally:
        for one in (first, second):
            if one is not None:
                await one.leave()
        await asyncio.sleep(LEAVING_S)
    return (first_alone, second_alone), (of_first, of_second)


class Started:
    """Both engines of a pair on the same devices, each with half of the memory."""

    def __init__(self, pair: tuple[Beside, Beside], folder: Path, *, chat: bool) -> None:
        self._pair, self._folder, self._chat = pair, folder, chat
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> tuple[EngineTimer, EngineTimer]:
        timers = []
        try:
            for one in self._pair:
                start = running(one.name, one.settings, self._folder, memory_share=MEMORY_SHARE / 2)
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
    """The factor of each beside the other: the median of the repeats, and the least and the greatest."""
    found = []
    for i, (mine, other) in enumerate((engines, engines[::-1])):
        each = [row.alone[i] / row.together[i] / 2 for row in rows]
        found.append(
            Sharing(
                model=mine.model,
                beside=other.model,
                device_kind=mine.device_kind,
                tensor_parallel=mine.tensor_parallel,
                factor=median(each),
                interval=(min(each), max(each)),
            )
        )
    return found
