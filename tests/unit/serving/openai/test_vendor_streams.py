"""Answers of many vendors, as a client gets them that has not asked for a stream."""

import asyncio
import itertools
import json
from typing import Any

import pytest

from gearshift.runtime.engines.upstream.link import EngineLink
from gearshift.serving.openai.readers import WholeAnswer
from gearshift.support.event_loop import loop_factory
from tests.emulated_service import EmulatedService
from tests.raw_endpoint import event, raw_endpoint
from tests.two_language_models import SMALL_ALONE, language_plan, language_profile
from tests.unit.serving.openai.test_readers import Client, exchange_of, wanted
from tests.unit.serving.openai.vendor_streams import VENDORS, Vendor

PROFILE = language_profile(step_s=(0.0005, 0.001), output_tokens=10)
DONE = b"data: [DONE]\n\n"


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    """What the client gets of each vendor's stream."""
    found: dict[str, dict[str, Any]] = {}
    left = iter(VENDORS)

    def parts(_: dict[str, Any]) -> list[bytes]:
        chunks = [event({"model": "small", **chunk}) for chunk in next(left).chunks]
        return [*itertools.chain.from_iterable((b": wait\n\n", chunk) for chunk in chunks), DONE]

    async def main() -> None:
        async with (
            asyncio.timeout(30),
            EmulatedService(PROFILE, language_plan([SMALL_ALONE])) as service,
            raw_endpoint(parts) as url,
        ):
            service.all[0].link.close()
            service.all[0].link = EngineLink(url)
            for vendor in VENDORS:
                client, asked = Client(), wanted(logprobs=True)
                reader = WholeAnswer(exchange_of(client), "chat", ("small", "large"), asked)
                service.service.submit(asked, reader)
                await client.over.wait()
                head, _, body = client.got.partition(b"\r\n\r\n")
                found[vendor.name] = {"status": int(head.split()[1]), **json.loads(body)}
            service.all[0].link.close()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())
    return found


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
def test_a_client_gets_what_the_vendor_says_without_a_stream(
    vendor: Vendor, answers: dict[str, dict[str, Any]]
) -> None:
    answer = answers[vendor.name]
    assert (answer["status"], answer["model"], answer["object"]) == (200, "chat", "chat.completion")
    (choice,) = answer["choices"]
    assert choice["message"] == vendor.message
    assert choice["finish_reason"] == vendor.finish
    assert {name: choice[name] for name in vendor.choice} == vendor.choice
    assert {name: answer[name] for name in vendor.answer} == vendor.answer
    assert {name: answer["usage"][name] for name in vendor.usage} == vendor.usage
    assert "obfuscation" not in answer
