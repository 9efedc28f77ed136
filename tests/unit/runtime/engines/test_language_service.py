import asyncio
import dataclasses
import math
import re
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from gearshift.cascade import Cascade
from gearshift.errors import NotReady, QueueFull
from gearshift.gear import GearPlan
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.runtime.engines.answers.answer_stream import AnswerStream
from gearshift.runtime.engines.answers.drift import SPAN, AnswerDrift
from gearshift.runtime.engines.answers.held import NoRoom
from gearshift.runtime.engines.language_service import LanguageService
from gearshift.runtime.engines.requests.asked import CHAT
from gearshift.runtime.engines.requests.engine_request import StageVisit
from gearshift.runtime.engines.routing.first_token_promise import FirstTokenPromise
from gearshift.runtime.engines.upstream.call import Fault
from gearshift.serving.openai.bodies import read_body
from gearshift.support.event_loop import loop_factory
from tests.emulated_service import EmulatedService, Reading
from tests.two_language_models import ALONE, SMALL_ALONE, cascade, engine, language_plan, language_profile

PROFILE = language_profile(step_s=(0.0005, 0.001), output_tokens=10)
SURE, UNSURE = (
    int(place) for place in (PROFILE.answers.certainty[0, :, 1].argmax(), PROFILE.answers.certainty[0, :, 1].argmin())
)
TEXT = "".join(f" {n}" for n in range(1, 10))
SPLIT = cascade(-0.5, 4)
BODY = msgspec.json.encode({"model": "chat", "messages": [{"role": "user", "content": "record 1"}]})


def served(
    plan: GearPlan,
    use: Callable[[EmulatedService], Awaitable[None]],
    profile: LanguageProfile = PROFILE,
    **options: object,
) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), EmulatedService(profile, plan, **options) as service:
            await use(service)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


def test_a_sure_stage_answers_and_an_unsure_one_gives_way() -> None:
    async def use(service: EmulatedService) -> None:
        sure, unsure = await service.ask(SURE), await service.ask(UNSURE)
        assert (sure.text, unsure.text) == (f"small:{SURE}{TEXT}", f"large:{UNSURE}{TEXT}")
        assert sure.stream is not None
        assert unsure.stream is not None
        assert math.isclose(sure.stream.certainty, PROFILE.answers.certainty[0, SURE, 1], abs_tol=1e-9)
        assert [(one.model, one.output_tokens) for one in unsure.stream.stages] == [("small", 4)]
        assert unsure.stream.usage is not None
        assert unsure.stream.usage.completion_tokens == 10

    served(language_plan([SPLIT]), use)


def test_whole_answers_are_judged_at_their_end() -> None:
    by_end = PROFILE.answers.certainty[0, :, 3]
    record = int(((PROFILE.answers.certainty[0, :, 1] >= -0.5) & (by_end < -0.5)).argmax())

    async def use(service: EmulatedService) -> None:
        early, whole = await service.ask(record), await service.ask(record, whole=True)
        assert (early.text, whole.text) == (f"small:{record}{TEXT}", f"large:{record}{TEXT}")
        assert whole.stream is not None
        assert whole.stream.stages[0].output_tokens == 10
        assert whole.stream.stages[0].prompt_tokens > 0

    served(language_plan([SPLIT]), use)


# Faults ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", [{"status": 500}, {"status": 503}, {"cut_after": 0}, {"cut_after": 2}, {"error_after": 2}]
)
def test_before_anything_was_shown_the_next_stage_answers(fault: dict[str, int]) -> None:
    async def use(service: EmulatedService) -> None:
        reading = await service.ask(SURE, emulated={"model": "small", **fault})
        assert reading.text == f"large:{SURE}{TEXT}"
        assert reading.stream is not None
        assert not reading.stream.request.degraded

    served(language_plan([SPLIT]), use)


@pytest.mark.parametrize("fault", [{"status": 500}, {"cut_after": 0}])
def test_an_earlier_stage_answers_where_the_last_cannot(fault: dict[str, int]) -> None:
    async def use(service: EmulatedService) -> None:
        for whole in (False, True):
            reading = await service.ask(UNSURE, emulated={"model": "large", **fault}, whole=whole)
            assert reading.text == f"small:{UNSURE}{TEXT}"
            assert reading.stream is not None
            assert reading.stream.request.degraded
            assert len(reading.stream.stages) == 1

    served(language_plan([SPLIT]), use)


@pytest.mark.parametrize("fault", [{"cut_after": 6}, {"error_after": 6}])
def test_after_something_was_shown_a_fault_ends_the_answer(fault: dict[str, int]) -> None:
    async def use(service: EmulatedService) -> None:
        reading = await service.ask(SURE, emulated=fault)
        assert reading.fault is not None
        assert reading.text == f"small:{SURE} 1 2 3 4 5"
        assert service.service.router.requests == 0

    served(language_plan([SPLIT]), use)


def test_a_prompt_that_is_too_long_for_the_small_model_goes_to_one_with_room() -> None:
    async def use(service: EmulatedService) -> None:
        reading = await service.ask(SURE)
        assert reading.text == f"large:{SURE}{TEXT}"
        assert reading.stream is not None
        assert not reading.stream.request.degraded

    little = dataclasses.replace(PROFILE, engines=(engine("small", 0.0005, kv_blocks=1), PROFILE.engines[1]))
    served(language_plan([SPLIT]), use, profile=little)


def test_a_prompt_that_is_too_long_for_all_is_refused() -> None:
    async def use(service: EmulatedService) -> None:
        reading = await service.ask(SURE)
        assert reading.fault is not None
        assert reading.fault.status == 400
        assert b"context_length_exceeded" in reading.fault.body

    little = dataclasses.replace(PROFILE, engines=tuple(engine(one, 0.0005, kv_blocks=1) for one in PROFILE.models))
    served(language_plan([SPLIT]), use, profile=little)


def test_a_silent_engine_fails_its_requests() -> None:
    async def use(service: EmulatedService) -> None:
        reading = await service.ask(UNSURE, emulated={"model": "large", "silent_after": 0})
        assert reading.text == f"small:{UNSURE}{TEXT}"

    served(language_plan([SPLIT]), use, longest_silence_s=0.2)


def test_a_request_that_the_engines_refuse_is_refused_as_they_did() -> None:
    async def use(service: EmulatedService) -> None:
        reading = await service.ask(SURE, emulated={"status": 422})
        assert reading.fault is not None
        assert (reading.fault.status, reading.begun) == (422, 0)
        assert b"an emulated fault" in reading.fault.body

    served(language_plan([SPLIT]), use)


def test_an_engine_that_cannot_be_reached_is_lost_until_it_is_back() -> None:
    async def use(service: EmulatedService) -> None:
        port = int(service.all[1].link.url.rpartition(":")[2].partition("/")[0])
        await service.engines[1].stop()
        reading = await service.ask(UNSURE)
        assert reading.text == f"small:{UNSURE}{TEXT}"
        assert service.service.router.available.is_lost == [False, True]
        await service.engines[1].start(port=port)
        while service.service.router.available.is_lost[1]:
            await asyncio.sleep(0.01)
        assert (await service.ask(UNSURE)).text == f"large:{UNSURE}{TEXT}"

    served(language_plan([SPLIT]), use, probe_s=0.1)


def test_another_replica_answers_in_place_of_a_lost_one() -> None:
    async def use(service: EmulatedService) -> None:
        await service.engines[0].stop()
        readings = await asyncio.gather(*(service.ask(SURE) for _ in range(8)))
        assert {reading.text for reading in readings} == {f"small:{SURE}{TEXT}"}
        assert service.service.router.available.is_lost[:2] == [True, False]

    served(language_plan([SMALL_ALONE], replicas={"small": 2, "large": 1}), use)


# Clients -----------------------------------------------------------------------------------------


def test_an_engine_is_free_where_the_client_has_left() -> None:
    async def use(service: EmulatedService) -> None:
        for silent_after in (0, 6):
            reading = Reading()
            stream = service.submit(SURE, reading, emulated={"silent_after": silent_after})
            while stream.count < silent_after or not service.engines[0].running:
                await asyncio.sleep(0.001)
            service.service.withdraw(stream)
            async with asyncio.timeout(1):
                while service.engines[0].running:
                    await asyncio.sleep(0.001)
            service.service.withdraw(stream)
            assert reading.ends == 0
        assert service.service.router.requests == 0

    served(language_plan([SPLIT]), use)


def test_a_deadline_gives_what_there_is_or_refuses() -> None:
    async def use(service: EmulatedService) -> None:
        begun = await service.ask(SURE, emulated={"model": "small", "silent_after": 2}, deadline_s=0.2, whole=True)
        assert begun.text == f"small:{SURE} 1"
        assert begun.fault is not None, "its engine then fell silent"
        refused = await service.ask(SURE, emulated={"silent_after": 0}, deadline_s=0.1)
        assert refused.fault is not None
        assert refused.fault.status == 504

    served(language_plan([SPLIT]), use, promise=FirstTokenPromise(gives_late_answers=False), longest_silence_s=0.5)


def test_an_answer_that_is_not_streamed_is_whole_by_its_deadline_or_refused() -> None:
    """Its engine gives 60 tokens in 30 ms at least, the first ones within the deadline."""

    async def use(service: EmulatedService) -> None:
        long = {"ignore_eos": True, "max_tokens": 60, "deadline_s": 0.02}
        streamed = await service.ask(SURE, **long)
        assert streamed.fault is None
        whole = await service.ask(SURE, **long, streamed=False)
        assert whole.fault is not None
        assert (whole.fault.status, service.service.router.requests) == (504, 0)
        in_time = await service.ask(SURE, deadline_s=20, streamed=False)
        assert in_time.stream is not None
        assert in_time.stream.outcome == "answered"

    served(language_plan([SMALL_ALONE]), use, promise=FirstTokenPromise(gives_late_answers=False))


def test_late_answers_are_given_and_told_where_they_are_wanted() -> None:
    async def use(service: EmulatedService) -> None:
        late = await service.ask(SURE, deadline_s=0)
        assert late.stream is not None
        assert (late.stream.outcome, late.text) == ("late", f"small:{SURE}{TEXT}")
        metrics = service.service.metrics.text().decode()
        assert 'gearshift_requests_total{operator="chat",outcome="late"} 1.0' in metrics

    served(language_plan([SMALL_ALONE]), use, promise=FirstTokenPromise(gives_late_answers=True))


def test_no_more_wait_than_may() -> None:
    async def use(service: EmulatedService) -> None:
        readings = [Reading() for _ in range(4)]
        for reading in readings[:3]:
            service.submit(SURE, reading)
            await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            service.submit(SURE, readings[3])
        for reading in readings[:3]:
            await reading.over.wait()
        service.service.refuse_new()
        with pytest.raises(NotReady):
            service.submit(SURE, readings[3])
        service.service.undo_drain()
        await service.ask(SURE)

    served(language_plan([ALONE], most_outstanding=1), use, most_waiting=2)


def test_a_gear_can_be_pinned() -> None:
    async def use(service: EmulatedService) -> None:
        service.service.pin(1)
        assert (await service.ask(UNSURE)).text == f"small:{UNSURE}{TEXT}"
        service.service.pin(0)
        assert (await service.ask(UNSURE)).text == f"large:{UNSURE}{TEXT}"

    served(language_plan([ALONE, SMALL_ALONE], [0.0, 100.0]), use)


# Errors of this process --------------------------------------------------------------------------


class Raising(Reading):
    """Raises in one of its methods."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def begin(self, stream: AnswerStream) -> None:
        super().begin(stream)
        self._raise_in("begin")

    def chunk(self, data: bytes) -> None:
        super().chunk(data)
        self._raise_in("chunk")

    def ended(self, stream: AnswerStream) -> None:
        self._raise_in("ended")
        super().ended(stream)

    def failed(self, fault: Fault) -> None:
        self._raise_in("failed")
        super().failed(fault)

    def _raise_in(self, where: str) -> None:
        if where == self.where:
            raise ZeroDivisionError


@pytest.mark.parametrize("where", ["begin", "chunk", "ended", "failed"])
@pytest.mark.parametrize("record", [SURE, UNSURE])
def test_a_reader_that_raises_ends_its_own_answer_and_no_other(record: int, where: str) -> None:
    async def use(service: EmulatedService) -> None:
        bad, others = Raising(where), [Reading() for _ in range(3)]
        service.submit(record, bad, **({"emulated": {"status": 422}} if where == "failed" else {}))
        for other in others:
            service.submit(record, other)
        for reading in (bad, *others):
            await reading.over.wait()
        assert isinstance(bad.error, ZeroDivisionError)
        assert [reading.ends for reading in (bad, *others)] == [1] * 4
        assert all(other.text.endswith(TEXT) for other in others)
        router = service.service.router
        assert (router.requests, router.work.prompt_tokens, sum(router.outstanding)) == (0, 0, 0)

    served(language_plan([SPLIT]), use)


@pytest.mark.parametrize("at", ["certainty", "send"])
def test_an_error_of_the_service_ends_the_request_that_it_is_about(at: str) -> None:
    async def use(service: EmulatedService) -> None:
        bad, other = Reading(), Reading()
        stream = service.submit(SURE, bad)
        if at == "certainty":
            service.service.certainties.certainty_of = lambda *_: 1 / 0
        else:
            stream.asked.fields["n"] = object()  # type: ignore[assignment]
            service.submit(SURE, other)
            await other.over.wait()
            assert other.text.endswith(TEXT)
        await bad.over.wait()
        assert type(bad.error) is {"certainty": ZeroDivisionError, "send": TypeError}[at]
        router = service.service.router
        assert (router.requests, router.work.prompt_tokens, sum(router.outstanding)) == (0, 0, 0)

    served(language_plan([SPLIT]), use)


# Bounds ------------------------------------------------------------------------------------------


def test_a_deadline_is_counted_as_such_and_other_failures_are_not() -> None:
    async def use(service: EmulatedService) -> None:
        for _ in range(2):
            refused = await service.ask(SURE, emulated={"silent_after": 0}, deadline_s=0.05)
            assert refused.fault is not None
            assert refused.fault.status == 504
        failed = await service.ask(SURE, emulated={"cut_after": 6}, deadline_s=20)
        assert failed.fault is not None
        assert failed.fault.status == 0
        metrics = service.service.metrics.text().decode()
        assert 'gearshift_dropped_total{reason="deadline"} 2.0' in metrics
        assert 'gearshift_requests_total{operator="chat",outcome="refused"} 2.0' in metrics
        assert 'gearshift_requests_total{operator="chat",outcome="failed"} 1.0' in metrics

    served(language_plan([SPLIT]), use, promise=FirstTokenPromise(gives_late_answers=False), longest_silence_s=0.5)


def test_an_answer_grows_no_further_than_there_is_memory() -> None:
    class Keeping(Reading):
        def chunk(self, data: bytes) -> None:
            super().chunk(data)
            assert self.stream is not None
            self.stream.keep(60_000)

    async def use(service: EmulatedService) -> None:
        keeping = Keeping()
        service.submit(SURE, keeping)
        await keeping.over.wait()
        assert isinstance(keeping.error, NoRoom)
        assert len(keeping.chunks) == 4
        assert service.service.held.held_bytes == 0
        assert (await service.ask(SURE)).text.endswith(TEXT)

    served(language_plan([SMALL_ALONE]), use, most_held_bytes=100_000)


def test_an_engine_that_gives_more_than_was_asked_for_is_cut_off() -> None:
    async def use(service: EmulatedService) -> None:
        reading = Reading()
        stream = service.submit(SURE, reading, ignore_eos=True, max_tokens=5000)
        stream.asked.most_tokens = 10
        await reading.over.wait()
        assert reading.fault is not None
        assert "and 10 were asked for" in reading.fault.reason

    served(language_plan([SMALL_ALONE]), use)


def test_an_engine_that_was_replaced_under_its_address_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def use(service: EmulatedService) -> None:
        await service.ask(SURE)
        assert 'gearshift_engine_changes_total{replica="small-0"} 0.0' in service.service.metrics.text().decode()
        service.engines[0].name = service.all[0].name = "smaller"
        for _ in range(3):
            assert (await service.ask(SURE)).text.endswith(TEXT)
        assert 'gearshift_engine_changes_total{replica="small-0"} 1.0' in service.service.metrics.text().decode()

    served(language_plan([SMALL_ALONE]), use)
    (told,) = [record.getMessage() for record in caplog.records if "another than was planned for" in record.message]
    assert "the model that it names is 'smaller', and was 'small'" in told


def test_a_replica_without_a_share_answers_where_those_with_one_are_lost() -> None:
    plan = language_plan([SMALL_ALONE], replicas={"small": 2, "large": 1})
    settings = plan.pipeline.gears[0].replicas
    first_alone = tuple(
        msgspec.structs.replace(one, load_share=float(place == 0)) for place, one in enumerate(settings)
    )
    gear = msgspec.structs.replace(plan.pipeline.gears[0], replicas=first_alone)
    pipeline = msgspec.structs.replace(plan.pipeline, gears=(gear,))

    async def use(service: EmulatedService) -> None:
        await service.ask(SURE)
        await service.engines[0].stop()
        service.service.lost(0)
        assert (await service.ask(SURE)).text.endswith(TEXT)

    served(msgspec.structs.replace(plan, pipelines={"chat": pipeline}), use)


def test_requests_are_refused_once_all_that_they_hold_reaches_the_bound() -> None:
    body = msgspec.json.encode(
        {"model": "chat", "messages": [{"role": "user", "content": "record 1"}], "attachment": "x" * 20_000}
    )

    async def use(service: EmulatedService) -> None:
        readings = [Reading() for _ in range(3)]
        for reading in readings:
            service.service.submit(read_body(CHAT, body, "chat"), reading)
        with pytest.raises(QueueFull, match="bytes are held"):
            service.service.submit(read_body(CHAT, body, "chat"), Reading())
        for reading in readings:
            await reading.over.wait()
        service.service.submit(read_body(CHAT, body, "chat"), readings[0])

    served(language_plan([ALONE], most_outstanding=1), use, most_held_bytes=150_000)


def test_an_answer_that_repeats_its_prompt_may_have_more_tokens_than_were_asked_for() -> None:
    async def use(service: EmulatedService) -> None:
        reading = Reading()
        stream = service.submit(SURE, reading, ignore_eos=True, max_tokens=500, echo=True)
        stream.asked.most_tokens = 10
        await reading.over.wait()
        assert reading.fault is None

    served(language_plan([SMALL_ALONE]), use)


def test_an_answer_that_repeats_its_prompt_is_the_last_stages() -> None:
    async def use(service: EmulatedService) -> None:
        plain, echoing, without = [await service.ask(SURE, **more) for more in ({}, {"echo": True}, {"echo": False})]
        assert [one.text.partition(":")[0] for one in (plain, echoing, without)] == ["small", "large", "small"]
        assert echoing.stream is not None
        assert (echoing.stream.request.stage, echoing.stream.request.degraded, echoing.stream.stages) == (1, False, [])

    served(language_plan([SPLIT]), use)


# Figures -----------------------------------------------------------------------------------------


def figures(service: EmulatedService, family: str) -> dict[str, float]:
    """A family of metrics by model."""
    text = service.service.metrics.text().decode()
    return {name: float(value) for name, value in re.findall(rf'^{family}{{model="(\w+)"}} (\S+)$', text, re.MULTILINE)}


def test_the_time_from_the_first_token_to_the_decision_is_told() -> None:
    async def use(service: EmulatedService) -> None:
        streams = [(await service.ask(record)).stream for record in (SURE, UNSURE)]
        told = figures(service, "gearshift_decision_seconds_sum")
        for name, stream in zip(("small", "large"), streams, strict=True):
            assert stream is not None
            assert stream.arrived_ns < stream.first_ns <= stream.answered_ns <= stream.last_ns
            assert told[name] == pytest.approx((stream.answered_ns - stream.first_ns) / 1e9)
        assert told["small"] > told["large"], "the small one's first token waits for three more"

    slow = language_profile(step_s=(0.005, 0.005), output_tokens=10)
    served(language_plan([SPLIT]), use, profile=slow)


def test_prompts_count_for_each_stage_that_worked_on_them() -> None:
    async def use(service: EmulatedService) -> None:
        reading = await service.ask(UNSURE)
        assert reading.stream is not None
        assert reading.stream.usage is not None
        counted = figures(service, "gearshift_prompt_tokens_total")
        assert counted["large"] == reading.stream.usage.prompt_tokens
        assert counted["small"] == reading.stream.request.prompt_tokens[0] > 0
        await service.ask(UNSURE, whole=True)
        again = figures(service, "gearshift_prompt_tokens_total")
        assert again == {"small": counted["small"] + counted["large"], "large": 2 * counted["large"]}

    served(language_plan([SPLIT]), use)


def test_a_stage_that_decided_nothing_tells_no_certainty_of_another() -> None:
    turned = Cascade(models=("large", "small"), thresholds=(-0.5,), decide_at_tokens=(4,))
    visits: list[StageVisit] = []

    async def use(service: EmulatedService) -> None:
        reading = Reading()
        service.submit(UNSURE, reading).asked.visited = visits.append
        await reading.over.wait()
        assert reading.stream is not None
        assert math.isnan(reading.stream.answers_certainty)

    served(language_plan([SPLIT, turned], [0.0, 100.0]), use)
    assert [(visit.model, math.isfinite(visit.certainty)) for visit in visits] == [("small", True), ("large", False)]


def test_the_last_token_and_not_the_end_of_the_connection_ends_an_answer() -> None:
    async def use(service: EmulatedService) -> None:
        reading, late_s = Reading(), 0.5
        stream = service.submit(SURE, reading)
        ended = stream.ended
        loop = asyncio.get_running_loop()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AnswerStream, "ended", lambda _: loop.call_later(late_s, ended))
            await reading.over.wait()
        assert figures(service, "gearshift_request_latency_seconds_sum")["small"] < late_s

    served(language_plan([SMALL_ALONE]), use)


def test_arrivals_are_told_by_second_and_go_on_in_the_next_plan() -> None:
    told: list[list[int]] = []

    async def use(service: EmulatedService) -> None:
        first = service.service
        first.trace.record = lambda requests, _: told.append(requests)
        await service.ask(SURE)
        second = LanguageService(service.tables, service, certainty_of=lambda *_: 0.0)
        second.take_over_from(first)
        second.start()
        first.hand_over_to(second)
        second.submit(read_body(CHAT, BODY, "chat"), Reading())
        second.trace.end(second.now_ns())
        second.stop()
        first.trace.end(first.now_ns())

    served(language_plan([SMALL_ALONE]), use)
    assert sum(map(sum, told)) == 2


@pytest.mark.parametrize("is_same", [True, False])
def test_a_drift_is_known_in_the_next_plan_where_the_recorded_answers_are_the_same(is_same: bool) -> None:
    other = (
        PROFILE.answers if is_same else dataclasses.replace(PROFILE.answers, certainty=PROFILE.answers.certainty / 2)
    )
    drift = AnswerDrift(PROFILE.answers)

    async def use(service: EmulatedService) -> None:
        first = service.service
        drifts = 'gearshift_profile_drift{model="small"} 1.0'
        for _ in range(6 * SPAN):
            drift.ended(0, 1, 1 << 30)
        first.certainties.tell_drift()
        assert drifts in first.metrics.text().decode()
        again = AnswerDrift(dataclasses.replace(other, certainty=other.certainty.copy()))
        second = LanguageService(
            service.tables, service, certainty_of=lambda *_: 0.0, drift=again, metrics=first.metrics
        )
        second.take_over_from(first)
        second.start()
        first.hand_over_to(second)
        assert second.drifting_models == (["small"] if is_same else [])
        assert (drifts in second.metrics.text().decode()) is is_same
        for _ in range(6 * SPAN):
            drift.ended(0, 10, 1 << 30)
        first.certainties.tell_drift()
        assert (drifts in second.metrics.text().decode()) is is_same, "the plan that leaves tells nothing any more"
        second.certainties.tell_drift()
        assert drifts not in second.metrics.text().decode()
        second.stop()

    served(language_plan([SMALL_ALONE]), use, drift=drift)
