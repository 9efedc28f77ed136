"""Streams of engines that have no end, or are no text, end all the same."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from gearshift.cascade import Cascade
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.runtime.engines.replicas.identity import FINGERPRINT
from gearshift.runtime.engines.upstream.link import EngineLink
from gearshift.serving.openai.chunks import usage_of
from gearshift.support.event_loop import loop_factory
from tests.emulated_service import EmulatedService, Reading
from tests.raw_endpoint import delta, event, raw_endpoint
from tests.two_language_models import SMALL_ALONE, cascade, engine, language_plan, language_profile

BASE = language_profile(step_s=(0.0005, 0.001), output_tokens=10)
LITTLE = LanguageProfile(
    operator="chat", engines=tuple(engine(one, 0.001, kv_blocks=10) for one in BASE.models), answers=BASE.answers
)
DONE = b"data: [DONE]\n\n"


def answered(
    parts: Callable[[dict[str, Any]], Iterable[bytes]], *, silence_s: float = 60.0, pause_s: float = 0.0, **asked: Any
) -> Reading:
    """One request to an engine of 160 tokens whose stream has these parts."""
    found = Reading()

    async def ask() -> None:
        async with (
            EmulatedService(LITTLE, language_plan([SMALL_ALONE])) as service,
            raw_endpoint(parts, pause_s=pause_s) as url,
        ):
            service.all[0].link.close()
            service.all[0].link = EngineLink(url, longest_silence_s=silence_s)
            service.submit(1, found, **asked)
            while not found.over.is_set():
                service.all[0].link.look()
                await asyncio.sleep(0.005)
            service.all[0].link.close()

    run(ask)
    return found


def run(use: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await use()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


def forever(*parts: bytes) -> Callable[[dict[str, Any]], Iterable[bytes]]:
    return lambda _: itertools.cycle(parts)


def test_an_answer_has_no_more_tokens_than_its_engine_holds() -> None:
    reading = answered(forever(delta("so ")))
    assert reading.fault is not None
    assert "gave 385 tokens, and it holds 160 as it was profiled" in reading.fault.reason
    assert len(reading.chunks) == 384


@pytest.mark.parametrize(("choices", "told", "counted"), [(2, 2, 4), (2, 9, 9), (1, 2, 2)])
def test_usage_has_the_tokens_of_all_choices_also_where_an_engine_tells_those_of_one(
    choices: int, told: int, counted: int
) -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": told}})
    texts = [delta(text, index=index) for index in range(choices) for text in ("so ", "it")]
    ends = [delta(finish="stop", index=index) for index in range(choices)]
    stream = answered(lambda _: [*texts, *ends, usage, DONE], choices=choices, most_tokens=20).stream
    assert stream is not None
    assert stream.output_tokens == counted
    usage_told = usage_of(stream)
    assert usage_told is not None
    assert (usage_told["completion_tokens"], usage_told["total_tokens"]) == (counted, 5 + counted)


def test_choices_that_do_not_decide_have_an_end_too() -> None:
    endless = lambda _: itertools.chain([delta("one", finish="stop")], itertools.cycle([delta("so ", index=1)]))  # noqa: E731
    reading = answered(endless, choices=2, most_tokens=20)
    assert reading.fault is not None
    assert "gave 209 tokens, and 20 were asked for in each of 2 answers" in reading.fault.reason


def test_an_answer_that_repeats_its_prompt_has_an_end_too() -> None:
    reading = answered(forever(delta("so ")), echo=True, max_tokens=1)
    assert reading.fault is not None
    assert "it holds 160" in reading.fault.reason


@pytest.mark.parametrize(
    "part",
    [b": still here\n\n", event({"choices": []}), delta(), delta(role="assistant"), delta("", finish="")],
    ids=["comments", "no choices", "no delta", "roles", "empty texts"],
)
def test_an_engine_that_sends_no_tokens_is_silent_whatever_else_it_sends(part: bytes) -> None:
    paused = lambda _: itertools.chain([delta("so")], itertools.repeat(part))  # noqa: E731
    reading = answered(paused, silence_s=0.2, pause_s=0.002)
    assert reading.fault is not None
    assert "sent nothing of an answer for 0.2 s" in reading.fault.reason


def test_an_answer_that_told_why_it_ended_is_whole_where_its_engine_goes_on_with_comments() -> None:
    reading = answered(
        lambda _: itertools.chain([delta("so", finish="stop")], itertools.repeat(b": more\n\n")), silence_s=0.1
    )
    assert (reading.fault, reading.text) == (None, "so")


def test_an_engine_that_gives_a_token_now_and_then_is_not_silent() -> None:
    moments = 0

    def parts(_: dict[str, Any]) -> Iterable[bytes]:
        nonlocal moments
        loop = asyncio.get_running_loop()
        for _ in range(5):
            due_s = loop.time() + 0.06
            while loop.time() < due_s:
                moments += 1
                yield b": wait\n\n"
            yield delta("so ")
        yield delta(finish="stop")
        yield DONE

    reading = answered(parts, silence_s=0.2)
    assert (reading.fault, reading.text) == (None, "so " * 5)
    assert moments > 5


def test_bytes_that_are_no_text_have_a_bound() -> None:
    reading = answered(forever(delta(role="assistant", padding="x" * 100_000)))
    assert reading.stream is not None
    assert "bytes in 0 tokens, which is no text" in reading.stream.fault.reason
    assert "large" in reading.text, "another model answers"


# Characters that are split ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("halves", "text"),
    [
        ((rb'"\ud83d"', rb'"\ude00!"'), "\N{GRINNING FACE}!"),
        ((rb'"a\ud83d"', rb'"b"'), "a\ufffdb"),
        ((rb'"\ude00"', rb'"b"'), "\ufffdb"),
        ((b'"\xf0\x9f"', b'"\x98\x80!"'), "\N{GRINNING FACE}!"),
        ((b'"\xf0\x9f"', b'"\x98"'), "\ufffd"),
        ((rb'"\ud83d\ude00"', rb'"\\ud83d"'), "\N{GRINNING FACE}\\ud83d"),
        ((rb'"a\ud83d"',), "a\ufffd"),
    ],
)
def test_a_character_that_is_split_over_chunks_is_put_together_or_replaced(
    halves: tuple[bytes, ...], text: str
) -> None:
    parts = [event(b'{"model": "small", "choices": [{"index": 0, "delta": {"content": %b}}]}' % one) for one in halves]
    reading = answered(lambda _: [*parts, delta(finish="stop"), DONE])
    assert (reading.fault, reading.error, reading.text) == (None, None, text)


def test_what_is_no_chunk_is_the_fault_of_its_engine() -> None:
    for bad in (b"[" * 100_000, b'{"choices": 7}', b'{"choices": [{"delta": {"content": "\\ud83d"}'):
        reading = answered(lambda _, bad=bad: [delta("so"), event(bad)])
        assert reading.fault is not None
        assert "cannot be read" in reading.fault.reason


@pytest.mark.parametrize(("fingerprint", "told"), [("fp_1", 0), ("fp_2", 1)])
def test_an_engine_that_was_replaced_since_it_was_profiled_is_told_at_its_first_answer(
    fingerprint: str, told: int
) -> None:
    said = {"model": "small-2026-01-01", "system_fingerprint": fingerprint}
    text = {"choices": [{"index": 0, "delta": {"content": "so"}, "finish_reason": "stop"}]}

    async def ask() -> None:
        before = {"small": {FINGERPRINT: ["fp_0", "fp_1"]}}
        async with (
            EmulatedService(LITTLE, language_plan([SMALL_ALONE]), before_of=before) as service,
            raw_endpoint(lambda _: [event({**said, **text}), DONE]) as url,
        ):
            service.all[0].link.close()
            service.all[0].link = EngineLink(url)
            await service.ask(1)
            metrics = service.service.metrics.text().decode()
            assert f'gearshift_engine_changes_total{{replica="small-0"}} {told}.0' in metrics
            service.all[0].link.close()

    run(ask)


@pytest.mark.parametrize("last", [b"what is this", b'{"error": {"message": "too late", "code": 500}}'])
def test_an_answer_that_is_whole_stays_so_whatever_follows(last: bytes) -> None:
    reading = answered(lambda _: [delta("one"), delta("", finish="stop"), b"data: %b\n\n" % last])
    assert (reading.fault, reading.text) == (None, "one")


def test_an_error_in_a_stream_that_is_about_the_request_is_the_clients() -> None:
    error = b'{"error": {"message": "the request is odd", "code": 400}}'
    reading = answered(lambda _: [b"data: %b\n\n" % error])
    assert reading.fault is not None
    assert (reading.fault.status, reading.fault.body) == (400, error)
    assert reading.fault.reason.startswith("replica 'small-0': it ended its answer with an error: ")


def test_an_event_that_is_null_is_no_chunk() -> None:
    reading = answered(lambda _: [b"data: null\n\n", delta("one"), delta("", finish="stop")])
    assert (reading.fault, reading.text) == (None, "one")


REFUSAL = event({"error": {"message": "logprobs is not supported with tools + stream", "code": 400}})


@pytest.mark.parametrize(("gear", "model"), [(0, "large"), (1, "small")])
def test_an_engine_that_refuses_log_probabilities_answers_without_and_is_not_sure(gear: int, model: str) -> None:
    """llama.cpp's server gives none where tools are streamed."""
    bodies = list[dict[str, Any]]()

    def parts(body: dict[str, Any]) -> Iterable[bytes]:
        bodies.append(body)
        if body.get("logprobs"):
            return [REFUSAL]
        return [delta("one"), delta("", finish="stop"), DONE]

    async def ask() -> None:
        plan = language_plan([cascade(-0.5, None), SMALL_ALONE], [0.0, 1000.0])
        async with EmulatedService(BASE, plan) as service, raw_endpoint(parts) as url:
            service.all[0].link.close()
            service.all[0].link = EngineLink(url)
            service.service.pin(gear)
            reading = await service.ask(1, tools=[])
            assert reading.fault is None
            assert reading.stream is not None
            assert service.tables.models[reading.stream.request.model] == model
            service.all[0].link.close()

    run(ask)
    assert ["logprobs" in body for body in bodies] == [True, False]


def test_chunks_before_a_refusal_of_log_probabilities_are_no_part_of_the_answer() -> None:
    def parts(body: dict[str, Any]) -> Iterable[bytes]:
        return [delta(), REFUSAL] if body.get("logprobs") else [delta(), delta("one"), delta("", finish="stop"), DONE]

    async def ask() -> None:
        plan = language_plan([cascade(-0.5, None), SMALL_ALONE], [0.0, 1000.0])
        async with EmulatedService(BASE, plan) as service, raw_endpoint(parts) as url:
            service.all[0].link.close()
            service.all[0].link = EngineLink(url)
            service.service.pin(1)
            reading = await service.ask(1)
            assert (reading.text, len(reading.chunks)) == ("one", 3)
            service.all[0].link.close()

    run(ask)


def test_a_refusal_of_log_probabilities_is_that_models_alone() -> None:
    asked = list[bool]()

    def refusing(body: dict[str, Any]) -> Iterable[bytes]:
        return [REFUSAL] if body.get("logprobs") else [delta("one"), delta("", finish="stop"), DONE]

    def giving(body: dict[str, Any]) -> Iterable[bytes]:
        asked.append("logprobs" in body)
        return [delta("two"), delta("", finish="stop"), DONE]

    async def ask() -> None:
        back = Cascade(models=("large", "small"), thresholds=(-0.5,), decide_at_tokens=(None,))
        plan = language_plan([cascade(-0.5, None), back], [0.0, 1000.0])
        async with (
            EmulatedService(BASE, plan) as service,
            raw_endpoint(refusing) as small,
            raw_endpoint(giving) as large,
        ):
            for one, url in zip(service.all, (small, large), strict=True):
                one.link.close()
                one.link = EngineLink(url)
            service.service.pin(0)
            assert (await service.ask(1)).text == "two"
            for one in service.all:
                one.link.close()

    run(ask)
    assert asked == [True]


# Ends -----------------------------------------------------------------------------------------------


def is_large(reading: Reading) -> bool:
    """Whether another model has answered, and nothing of the first was shown."""
    return reading.fault is None and "large" in reading.text and "half" not in reading.text


@pytest.mark.parametrize(
    "reason",
    ["abort", "error", "ABORT", "insufficient_system_resource", "network_error", "a new one", 7, {"type": "stop"},
     "function_call_filter: MALFORMED_FUNCTION_CALL"],
    ids=str,
)  # fmt: skip
def test_an_answer_that_ended_for_no_good_reason_before_it_was_shown_is_none(reason: Any) -> None:
    aborted = event({"choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": reason}]})
    reading = answered(lambda _: [aborted, DONE])
    assert is_large(reading)
    assert reading.stream is not None
    assert reading.stream.fault.reason == f"replica 'small-0': it broke off its answer: finish_reason {str(reason)!r}"


def test_an_answer_that_is_broken_off_after_it_was_shown_fails() -> None:
    reading = answered(lambda _: [delta("half"), delta("", finish="abort"), DONE])
    assert reading.text == "half"
    assert reading.fault is not None
    assert "finish_reason 'abort'" in reading.fault.reason


@pytest.mark.parametrize(
    "reason",
    ["stop", "length", "tool_calls", "content_filter", "eos_token", "STOP", "end_turn", "content_filter: SAFETY"],
)
def test_an_answer_is_whole_for_each_reason_that_vendors_give(reason: str) -> None:
    reading = answered(lambda _: [delta("one", finish=reason)])
    assert (reading.fault, reading.text) == (None, "one")


@pytest.mark.parametrize("reason", ["", "null", None])
def test_an_answer_without_a_reason_goes_on(reason: Any) -> None:
    reading = answered(lambda _: [delta("half", finish=reason)])
    assert reading.fault is not None
    assert "before it was whole" in reading.fault.reason


def test_a_new_reason_at_the_end_of_what_was_shown_is_passed_on() -> None:
    reading = answered(lambda _: [delta("one"), delta("", finish="a new one"), DONE])
    assert (reading.fault, reading.text) == (None, "one")
    assert b"a new one" in reading.chunks[-1]


@pytest.mark.parametrize("index", [-1, 1, 200])
def test_a_choice_that_nobody_asked_for_is_no_end_of_another(index: int) -> None:
    reading = answered(lambda _: [delta("half an"), delta("x", finish="stop", index=index), delta(" answer")])
    assert reading.text == "half an"
    assert reading.fault is not None
    assert f"gave a choice {index}, of 1 that were asked for" in reading.fault.reason


@pytest.mark.parametrize(
    "ends",
    [
        [delta("", finish="stop"), delta("", finish="length")],
        [delta("", finish="stop"), delta(" more", finish="stop")],
        [delta("", finish="stop"), delta(" more"), delta("", finish="stop")],
    ],
    ids=["another reason", "with text", "after more text"],
)
def test_an_answer_that_ends_twice_is_none(ends: list[bytes]) -> None:
    reading = answered(lambda _: [delta("half"), *ends, DONE])
    assert reading.fault is not None
    assert "ended choice 0 twice" in reading.fault.reason


def test_an_end_may_be_told_again_with_the_usage() -> None:
    """As OpenRouter does."""
    usage = event(
        {
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 1},
        }
    )
    reading = answered(lambda _: [delta("one"), delta("", finish="stop"), usage, DONE])
    assert (reading.fault, reading.text) == (None, "one")
    assert reading.stream is not None
    assert reading.stream.usage is not None


def test_an_answer_that_goes_on_after_its_end_is_not_whole_until_its_engine_says_so() -> None:
    reading = answered(lambda _: [delta("half", finish="stop"), delta(" more")])
    assert reading.fault is not None
    assert "before it was whole" in reading.fault.reason


@pytest.mark.parametrize("usage", [{"prompt_tokens": "many"}, {"completion_tokens": -1}, {"prompt_tokens": 1e99}, 7])
def test_an_answer_with_a_usage_that_is_no_number_is_none(usage: Any) -> None:
    counted = event({"choices": [], "usage": usage})
    assert is_large(answered(lambda _: [counted, delta("half"), delta("", finish="stop"), DONE]))
    shown = answered(lambda _: [delta("half"), delta("", finish="stop"), counted, DONE])
    assert shown.fault is not None
    assert "usage is no count of tokens" in shown.fault.reason


def test_a_refusal_of_content_amid_a_stream_is_for_another_model() -> None:
    refusal = event({"error": {"message": "small is not a multimodal model", "code": "400", "type": "BadRequestError"}})
    assert is_large(answered(lambda _: [refusal]))


def test_a_chunk_of_a_million_choices_is_refused_without_taking_it_apart() -> None:
    many = event(b'{"choices": [%b]}' % b",".join([b"{}"] * 1_000_000))
    reading = answered(lambda _: [delta("half"), many, delta("", finish="stop"), DONE])
    assert reading.fault is not None
    assert "more than 131072 values" in reading.fault.reason
