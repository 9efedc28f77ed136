import asyncio

import pytest

from gearshift.measuring.engines.endpoint import Endpoint
from gearshift.measuring.engines.heard import Heard
from gearshift.measuring.engines.timing import EngineTimer, step_seen
from gearshift.models.language_config import EngineMeasuring, EngineSettings
from tests.stand_in_endpoint import Answer, as_words, asked_text, endpoint

SETTINGS = EngineSettings(url="http://a/v1", model="tiny", context_tokens=256, largest_batched_tokens=32)
HOW = EngineMeasuring(decoded_tokens=6)


def heard_at(*came_ms: float) -> Heard:
    return Heard(came_ns=[round(1e6 * ms) for ms in came_ms], output_tokens=len(came_ms))


def test_a_step_counts_while_all_requests_decode() -> None:
    first = heard_at(0, 100, 110, 120, 130)
    second = heard_at(90, 100, 110, 120, 130, 170)
    assert step_seen([first, second]) == pytest.approx(0.010)  # from 90 to 130 ms, four tokens each


def test_too_few_steps_together_are_no_time() -> None:
    assert step_seen([heard_at(0, 10, 20, 30), heard_at(15, 20, 40, 60)]) is None
    assert step_seen([heard_at(0, 10, 20, 30), heard_at(0)]) is None


def test_an_engine_is_never_sent_the_prompts_of_an_earlier_run() -> None:
    asked: list[str] = []

    def listening(body: dict[str, object]) -> Answer:
        asked.append(asked_text(body))
        return as_words(body)

    async def probe(url: str) -> None:
        one = Endpoint("small", SETTINGS, url)
        try:
            await EngineTimer(one, HOW, chat=True).probe()
        finally:
            one.close()

    with endpoint(listening) as url:
        for _ in range(2):
            asyncio.run(probe(url))
    assert len(set(asked)) == len(asked) == 4


def test_requests_together_are_timed_with_few_tokens_and_with_more() -> None:
    asked: list[int] = []

    def counting(body: dict[str, object]) -> Answer:
        asked.append(int(str(body["max_tokens"])))
        return as_words(body)

    async def run(url: str) -> object:
        one = Endpoint("small", SETTINGS, url)
        try:
            return await EngineTimer(one, HOW, chat=True).decode(3, 16)
        finally:
            one.close()

    with endpoint(counting) as url:
        found = asyncio.run(run(url))
    few = 2 + (3 - 1)  # a prompt of 16 tokens takes one step, so all have begun after three
    assert asked == [few] * 3 + [few + HOW.decoded_tokens] * 3
    assert (found.requests, found.context, found.steps) == (3, 16, 6)  # type: ignore[attr-defined]
    assert found.kv_tokens == 3 * 8 + 3 * (few + 6 / 2)  # type: ignore[attr-defined]  # eight words each
    assert found.ended_s is not None  # type: ignore[attr-defined]
