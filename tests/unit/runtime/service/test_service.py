import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import uvloop

from gearshift.clock import NS_PER_S, WallClock
from gearshift.errors import InvalidInput, NotReady, QueueFull, TooLarge
from gearshift.gear import GearPlan, LoadRange
from gearshift.observability.journal import Journal, JournalFile
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import plan_tables
from gearshift.policies.cores.demand import Scaling, SharedCores
from gearshift.policies.watch.ejection import MAX_FAILURES_IN_A_ROW
from gearshift.request import Answer, Sample
from gearshift.runtime.backends.base import Batch
from gearshift.runtime.backends.emulated import EmulatedBackend, Leaving, Recorded
from gearshift.runtime.cores.vertical import VerticalScaling
from gearshift.runtime.faults.retries import Retries
from gearshift.runtime.router.by_deadline import DeadlineQueues
from gearshift.runtime.router.status import ServedPlan, Status
from gearshift.runtime.service.room import ROW_BYTES
from gearshift.runtime.service.served_pipeline import STOPPED, PipelineOptions
from gearshift.runtime.service.service import Service
from gearshift.runtime.watch.adapting import Adapting
from tests.little_task import little_plan, little_profile, two_gear_plan
from tests.manual_clock import ManualClock

LONGEST_S = 20.0
OF_PIPELINE = frozenset(each.name for each in dataclasses.fields(PipelineOptions))


def serve(
    use: Callable[[Service, Any], Awaitable[Any]],
    *,
    backend_class: type[EmulatedBackend] = EmulatedBackend,
    plan: GearPlan | None = None,
    **options: Any,
) -> Any:
    """What `use` answers; the service is stopped afterwards."""

    async def main() -> Any:
        served = plan or little_plan("")
        tables = plan_tables(served)
        backend = backend_class(tables, served, little_profile())
        of_pipeline = PipelineOptions(**{name: options.pop(name) for name in OF_PIPELINE & options.keys()})
        service = Service(tables, backend, pipelines={"sums": of_pipeline}, **options)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                return await use(service, backend)
        finally:
            await service.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def samples(*numbers: int) -> dict[str, np.ndarray]:
    return {"sample": np.array(numbers)}


def test_each_row_is_answered_by_its_own_stage():
    answer: Answer = serve(lambda service, _: service.pipeline.infer(samples(0, 1, 2)))
    assert answer.outcome == "answered"
    assert [row.model for row in answer.rows] == ["small", "large", "small"]
    assert [row.stage for row in answer.rows] == [0, 1, 0]
    assert answer.outputs["label"].tolist() == ["small-0", "large-1", "small-2"]
    assert answer.run_s >= 0.005  # both models, one after the other


def test_one_failed_row_fails_its_request_and_no_other():
    async def use(service: Service, _: EmulatedBackend) -> list[Answer]:
        return await asyncio.gather(service.pipeline.infer(samples(0, 10)), service.pipeline.infer(samples(2)))

    failed, answered = serve(use)
    assert failed.outcome == "failed"
    assert failed.errors == ("sample 10 is not recorded, the profile has samples 0 to 9",)
    assert answered.outcome == "answered"


def test_many_requests_at_once_each_get_their_own_answer():
    async def use(service: Service, _: EmulatedBackend) -> list[Answer]:
        return await asyncio.gather(*(service.pipeline.infer(samples(i % 10)) for i in range(500)))

    for i, answer in enumerate(serve(use)):
        model = "small" if i % 2 == 0 else "large"
        assert answer.outputs["label"].tolist() == [f"{model}-{i % 10}"]


def test_a_device_has_its_next_batch_before_the_last_one_is_answered():
    class Watched(EmulatedBackend):
        service: Service
        open_requests: list[int]

        def run(self, batch: Batch) -> None:
            self.open_requests.append(len(self.service.pipeline.open_requests.by_id))
            super().run(batch)

    async def use(service: Service, backend: Watched) -> list[int]:
        backend.service, backend.open_requests = service, []
        await asyncio.gather(*(service.pipeline.infer(samples(0)) for _ in range(40)))
        return backend.open_requests

    first, second, *_ = serve(use, backend_class=Watched)
    assert (first, second) == (1, 40)


class ShiftsAtEnds(EmulatedBackend):
    """Has the gear pinned to the last one as soon as a batch has ended."""

    service: Service

    def _finish(self, batch: Batch, leaving: Leaving, answers: Sequence[Recorded]) -> None:
        super()._finish(batch, leaving, answers)
        self.service.pin_gear(1)


def test_an_answer_says_the_gear_that_its_last_sample_ended_in():
    async def use(service: Service, backend: ShiftsAtEnds) -> tuple[Answer, int]:
        backend.service = service
        return await service.pipeline.infer(samples(0)), service.router.gear

    answer, gear = serve(use, backend_class=ShiftsAtEnds, plan=two_gear_plan(""))
    assert (answer.gear, gear) == (0, 1)


def test_a_fault_with_one_answer_keeps_no_other_back():
    class Faulty(Adapting):
        def answered(self, sample: Sample, gear: int) -> None:
            if sample.request.id == 2:
                raise RuntimeError("a fault of ours")

    async def use(service: Service, _: EmulatedBackend) -> list[str]:
        faults: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(str(context["exception"])))
        told: list[Answer] = []
        for _ in range(5):
            service.pipeline.submit(samples(0), told.append)
        while len(told) < 4:
            await asyncio.sleep(0.001)
        return [*(answer.outcome for answer in told), *faults]

    adapting = Faulty(plan_tables(little_plan("")))
    assert serve(use, adapting=adapting) == ["answered"] * 4 + ["a fault of ours"]


def test_a_fault_while_it_stops_leaves_nothing_running_and_no_request_without_an_answer():
    class Faulty(Adapting):
        def answered(self, sample: Sample, gear: int) -> None:
            raise RuntimeError("a fault of ours")

    async def main() -> list[Answer]:
        tables = plan_tables(little_plan(""))
        backend = EmulatedBackend(tables, little_plan(""), little_profile())
        service = Service(tables, backend, pipelines={"sums": PipelineOptions(adapting=Faulty(tables))})
        await service.start()
        told: list[Answer] = []
        for _ in range(2):
            service.pipeline.submit(samples(0), told.append)
        while not service.pipeline._ended:  # a batch's end is not told of before the next turn of the loop
            await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="a fault of ours"):
            await service.stop()
        assert backend._timer is None
        while len(told) < 2:
            await asyncio.sleep(0.001)
        return told

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert [answer.reason for answer in runner.run(main())] == [STOPPED] * 2


class Still(VerticalScaling):
    """Scales no replica."""

    def __init__(self) -> None:
        none = SharedCores(Scaling(scaler="static", period_s=1.0, effect_s=0.0), 0, [], [], 0)
        super().__init__([], lambda _: pytest.fail("no actuator"), shared=none, clock=WallClock(), journal=Journal())

    async def start(self, queues: DeadlineQueues, changed: Callable[[], None]) -> None: ...


def test_a_fault_of_the_backend_while_it_stops_cuts_off_nothing_else():
    class Faulty(EmulatedBackend):
        async def stop(self) -> None:
            await super().stop()
            raise RuntimeError("a fault of the backend")

    class Slow(Still):
        ended = False

        async def stop(self) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            self.ended = True

    async def use(service: Service, _: EmulatedBackend) -> None: ...

    vertical = Slow()
    with pytest.raises(RuntimeError, match="a fault of the backend"):
        serve(use, backend_class=Faulty, vertical=vertical)
    assert vertical.ended


def test_samples_over_the_bound_are_refused_and_those_before_are_answered():
    async def use(service: Service, _: EmulatedBackend) -> list[Answer | BaseException]:
        requests = (service.pipeline.infer(samples(0)) for _ in range(100))
        return await asyncio.gather(*requests, return_exceptions=True)

    metrics = Metrics()
    answers = serve(use, metrics=metrics, most_waiting_requests=5)
    refused = [answer for answer in answers if isinstance(answer, QueueFull)]
    assert 0 < len(refused) < 100
    assert {error.retry_after_s for error in refused} == {1}
    assert f'gearshift_dropped_total{{reason="queue_full"}} {len(refused):.1f}' in metrics.text().decode()
    assert all(answer.outcome == "answered" for answer in answers if not isinstance(answer, QueueFull))


def test_whoever_is_refused_is_told_when_there_is_room():
    async def use(service: Service, _: EmulatedBackend) -> int:
        requests = [asyncio.ensure_future(service.pipeline.infer(samples(*range(10)))) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match="try again in 7 s") as caught:
            service.pipeline.require_room(10, 0)
        await asyncio.gather(*requests)
        return caught.value.retry_after_s

    assert serve(use, most_waiting_requests=25, capacity_qps=1.0) == 7


def test_bytes_over_the_bound_are_refused_before_they_are_read():
    async def use(service: Service, _: EmulatedBackend) -> None:
        with service.pipeline.reading(1000) as reading:
            with service.pipeline.reading(1000):  # what is announced holds nothing
                pass
            reading.hold(1000)
            with pytest.raises(QueueFull), service.pipeline.reading(1):
                pass
            with pytest.raises(TooLarge):  # also alone
                reading.hold(1)
        with pytest.raises(TooLarge):
            service.pipeline.reading(1001)
        with service.pipeline.reading(1000):
            pass
        with service.pipeline.reading(400) as first, service.pipeline.reading(400) as second:
            first.hold(400)
            second.hold(100)
            with pytest.raises(QueueFull):  # of what is being read, beside another
                second.hold(1)
            service.pipeline.require_room(1, 500)

    serve(use, most_waiting_bytes=1000)


def test_a_drained_service_has_answered_all_and_takes_nothing_more():
    async def use(service: Service, _: EmulatedBackend) -> None:
        requests = [asyncio.ensure_future(service.pipeline.infer(samples(i % 10))) for i in range(50)]
        await asyncio.sleep(0)
        assert await service.drain(LONGEST_S)
        assert not service.ready
        assert [(await request).outcome for request in requests] == ["answered"] * 50
        with pytest.raises(NotReady):
            await service.pipeline.infer(samples(0))

    serve(use)


def test_what_a_drain_cannot_answer_in_time_fails():
    async def use(service: Service, _: EmulatedBackend) -> None:
        requests = [asyncio.ensure_future(service.pipeline.infer(samples(1))) for _ in range(500)]
        await asyncio.sleep(0)
        assert not await service.drain(0.01)
        answers = await asyncio.gather(*requests)
        assert {answer.outcome for answer in answers} <= {"answered", "failed"}
        assert answers[-1].reason == STOPPED
        assert service.router.waiting == 0

    serve(use)


SMALL, LARGE = 1, 0


def test_a_request_whose_worker_ends_is_answered_once_it_is_back_and_none_is_let_in_meanwhile():
    async def use(service: Service, backend: EmulatedBackend) -> None:
        request = asyncio.ensure_future(service.pipeline.infer(samples(0)))
        await asyncio.sleep(0)
        backend.lose(SMALL)
        assert not service.ready
        with pytest.raises(NotReady, match="no worker of model 'small' is running; try again later"):
            await service.pipeline.infer(samples(0))  # at once: there is no other
        assert (await request).outcome == "answered"
        assert service.ready

    serve(use)


@pytest.mark.usefixtures("lost_for_good")
def test_a_request_that_waits_for_its_worker_in_vain_fails_in_time():
    async def use(service: Service, backend: EmulatedBackend) -> None:
        request = asyncio.ensure_future(service.pipeline.infer(samples(0)))
        await asyncio.sleep(0)
        backend.lose(SMALL)
        answer = await request
        assert (answer.outcome, service.ready) == ("failed", False)
        assert answer.reason.startswith("the worker that held this request ended, and no other was free in time")
        assert await service.drain(LONGEST_S)

    serve(use, retries=Retries(("large", "small"), longest_retry_ns=1_000_000))


class DeadlyBackend(EmulatedBackend):
    """Sample 7 ends the replica that runs it."""

    deaths = 0
    ran: ClassVar[list[int]] = []

    def run(self, batch: Batch) -> None:
        numbers = [int(sample.payload["sample"][0]) for sample in batch.samples]
        self.ran.extend(numbers)
        if 7 in numbers:
            self.deaths += 1
            asyncio.get_running_loop().call_soon(self.lose, batch.replica)
        else:
            super().run(batch)


def test_a_poisonous_row_fails_its_request_at_once_and_no_other_row_of_it_runs_any_more(tmp_path):
    journal = JournalFile(tmp_path / "journal.jsonl")

    async def use(service: Service, backend: DeadlyBackend) -> None:
        poison = asyncio.ensure_future(service.pipeline.infer(samples(7, 0, 0, 0, 0, 0, 0, 0, 2, 2)))
        innocent = asyncio.ensure_future(service.pipeline.infer(samples(4)))
        await asyncio.sleep(0)  # eight rows run, two and the innocent one wait
        answer = await poison
        assert answer.outcome == "failed"
        assert answer.reason.startswith("4 workers of model 'small' ended while they ran this request")
        assert (await innocent).outcome == "answered"
        assert service.router.waiting == 0
        assert backend.deaths == 4
        assert 2 not in backend.ran

    serve(use, backend_class=DeadlyBackend, journal=journal)
    journal.close()
    events = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    (told,) = [event for event in events if event["event"] == "poisonous"]
    assert told["request"] == 1
    assert told["reason"].startswith("4 workers of model 'small' ended")


@pytest.mark.usefixtures("lost_for_good")
def test_a_lost_stage_is_refused_where_the_operator_wants_that():
    metrics = Metrics()

    async def use(service: Service, backend: EmulatedBackend) -> None:
        backend.lose(LARGE)
        with pytest.raises(NotReady, match="no worker of model 'large' is running; try again later"):
            await service.pipeline.infer(samples(0, 1))
        assert (await service.pipeline.infer(samples(0))).outcome == "answered"

    serve(use, metrics=metrics, retries=Retries(("large", "small"), refuse_lost_stage=True))
    text = metrics.text().decode()
    assert 'gearshift_requests_total{operator="sums",outcome="refused"} 1.0' in text
    assert 'gearshift_dropped_total{reason="no_worker"} 1.0' in text
    assert 'gearshift_request_latency_seconds_count{operator="sums",outcome="refused"}' not in text


def test_the_metrics_say_how_many_replicas_of_a_model_serve():
    metrics = Metrics()

    async def use(service: Service, backend: EmulatedBackend) -> str:
        backend.lose(LARGE)
        return metrics.text().decode()

    text = serve(use, metrics=metrics)
    assert 'gearshift_replicas_ready{model="small"} 1.0' in text
    assert 'gearshift_replicas_ready{model="large"} 0.0' in text


def test_a_service_that_has_been_taken_over_tells_no_more_of_its_replicas():
    metrics = Metrics()

    async def use(service: Service, backend: EmulatedBackend) -> str:
        plan = little_plan("")
        tables = plan_tables(plan)
        after = Service(tables, EmulatedBackend(tables, plan, little_profile()))
        await after.start()
        after.take_over_from(service)
        backend.lose(LARGE)
        text = metrics.text().decode()
        await after.stop()
        return text

    assert 'gearshift_replicas_ready{model="large"} 1.0' in serve(use, metrics=metrics)


def test_a_service_that_takes_over_has_its_scaler_count_from_then_on():
    class Counting(Still):
        times = 0

        def let_in(self) -> None:
            self.times += 1

    scaling = Counting()

    async def use(service: Service, backend: EmulatedBackend) -> None:
        plan = little_plan("")
        tables = plan_tables(plan)
        after = Service(tables, EmulatedBackend(tables, plan, little_profile()), vertical=scaling)
        await after.start()
        after.take_over_from(service)
        await after.stop()

    serve(use)
    assert scaling.times == 1


@pytest.mark.usefixtures("lost_for_good")
def test_an_earlier_stage_answers_while_the_next_model_has_no_replica():
    metrics = Metrics()

    async def use(service: Service, backend: EmulatedBackend) -> Answer:
        backend.lose(0)
        return await service.pipeline.infer(samples(0, 1))

    answer = serve(use, metrics=metrics)
    assert (answer.outcome, answer.reason) == ("degraded", "no worker of model 'large' is running")
    assert [(row.model, row.stage) for row in answer.rows] == [("small", 0), ("small", 0)]
    assert answer.outputs["label"].tolist() == ["small-0", "small-1"]
    assert 'gearshift_requests_total{operator="sums",outcome="degraded"} 1.0' in metrics.text().decode()


def test_requests_that_are_not_let_in_are_counted_as_refused():
    metrics = Metrics()

    async def use(service: Service, backend: EmulatedBackend) -> None:
        backend.lose(1)
        with pytest.raises(NotReady), service.pipeline.reading(10):
            pass
        service.refuse_new()
        with pytest.raises(NotReady):
            await service.pipeline.infer(samples(0))

    serve(use, metrics=metrics)
    text = metrics.text().decode()
    assert 'gearshift_requests_total{operator="sums",outcome="refused"} 2.0' in text
    assert 'gearshift_dropped_total{reason="not_ready"} 2.0' in text


def test_a_cancelled_request_leaves_its_queue():
    async def use(service: Service, backend: EmulatedBackend) -> None:
        run, held = backend.run, list[Batch]()
        backend.run = held.append  # type: ignore[method-assign]  # nothing ends before it is to
        runs = asyncio.ensure_future(service.pipeline.infer(samples(1)))
        waits = asyncio.ensure_future(service.pipeline.infer(samples(0, 2)))
        await asyncio.sleep(0)
        assert service.router.waiting == 2
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        assert service.router.waiting == 0
        runs.cancel()  # it runs at the first stage and must not go on to the second
        await asyncio.gather(runs, return_exceptions=True)
        backend.run = run  # type: ignore[method-assign]
        run(held[0])
        assert await service.drain(LONGEST_S)
        assert (await asyncio.gather(service.pipeline.infer(samples(0)), return_exceptions=True))[0].http_status == 503

    serve(use)


def test_a_drain_and_its_undoing_are_in_the_journal_and_an_end_is_not_undone(tmp_path):
    journal = JournalFile(tmp_path / "journal.jsonl")

    async def use(service: Service, backend: EmulatedBackend) -> list[bool]:
        service.undo_drain()  # of none
        service.refuse_new()
        drained = service.ready
        service.undo_drain()
        undone = service.ready
        assert await service.drain(LONGEST_S)
        with pytest.raises(NotReady, match="the server is ending"):
            service.undo_drain()
        return [drained, undone, service.ready]

    assert serve(use, journal=journal) == [False, True, False]
    journal.close()
    events = [json.loads(line)["event"] for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert events == ["replica_ready", "replica_ready", "ready", "drain", "drain_undone", "drain", "stop"]


@pytest.mark.usefixtures("lost_for_good")
def test_the_journal_and_the_metrics_tell_what_happened(tmp_path):
    metrics, journal = Metrics(), JournalFile(tmp_path / "journal.jsonl")

    async def use(service: Service, backend: EmulatedBackend) -> str:
        await service.pipeline.infer(samples(0, 1))
        backend.lose(0)
        return metrics.text().decode()

    text = serve(use, metrics=metrics, journal=journal)
    journal.close()
    for line in (
        'gearshift_requests_total{operator="sums",outcome="answered"} 1.0',
        'gearshift_request_latency_seconds_count{operator="sums",outcome="answered"} 1.0',
        'gearshift_rows_total{operator="sums"} 2.0',
        'gearshift_exits_total{model="small",segment="0"} 1.0',
        'gearshift_exits_total{model="large",segment="0"} 1.0',
        'gearshift_batch_size_sum{model="small"} 2.0',
        'gearshift_batches_total{model="large",reason="full"} 1.0',
        'gearshift_forwarded_total{stage="0"} 1.0',
        'gearshift_restarts_total{replica="large-0"} 1.0',
        "gearshift_gear 0.0",
    ):
        assert line in text
    events = [json.loads(line)["event"] for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert events == ["replica_ready", "replica_ready", "ready", "replica_lost", "stop"]
    assert '"how":"was lost on purpose"' in (tmp_path / "journal.jsonl").read_text()


# Operators -----------------------------------------------------------------------------------------------------------

PLAN = ServedPlan(path="plan.json", sha256="0" * 64)


def shifts_in(journal: Journal, path: Path) -> list[dict[str, Any]]:
    journal.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["event"] == "shift"]


def test_the_journal_says_why_each_shift_was_made(tmp_path):
    journal = JournalFile(tmp_path / "journal.jsonl")

    clock = ManualClock()

    async def use(service: Service, _: EmulatedBackend) -> None:
        def tick(seconds: float) -> None:
            clock.move_to(round(seconds * NS_PER_S))
            service.router.tick(clock.now_ns())

        for _ in range(40):
            service.pipeline.submit(samples(0), lambda answer: None)
        tick(0.1)
        tick(100)
        service.pin_gear(1)
        service.free_gear()
        tick(200)

    serve(use, journal=journal, clock=clock, plan=two_gear_plan("", alpha=0.001))
    shifts = [
        (s["before"], s["after"], s["direction"], s["reason"]) for s in shifts_in(journal, tmp_path / "journal.jsonl")
    ]
    assert shifts == [
        (0, 1, "downshift", "rate"),
        (1, 0, "upshift", "rate"),
        (0, 1, "downshift", "pin"),
        (1, 0, "upshift", "rate"),
    ]


def test_the_journal_tells_a_backlog_from_a_rate(tmp_path):
    journal = JournalFile(tmp_path / "journal.jsonl")

    async def use(service: Service, _: EmulatedBackend) -> None:
        requests = [asyncio.create_task(service.pipeline.infer(samples(0))) for _ in range(50)]
        await asyncio.sleep(0)
        service.router.tick(service.now_ns())
        await asyncio.gather(*requests)

    serve(use, journal=journal, plan=two_gear_plan("", alpha=1000.0))
    first = shifts_in(journal, tmp_path / "journal.jsonl")[0]
    assert (first["before"], first["after"], first["reason"]) == (0, 1, "backlog")
    assert first["load"] == 1000.0 * first["waiting"] > first["rate_qps"]


def test_a_rate_that_is_scaled_up_is_no_backlog(tmp_path):
    journal, clock = JournalFile(tmp_path / "journal.jsonl"), ManualClock()

    async def use(service: Service, _: EmulatedBackend) -> None:
        service.router.pipeline.scaling.factor = 3.0
        for _ in range(40):
            service.pipeline.submit(samples(0), lambda answer: None)
        clock.move_to(NS_PER_S // 10)
        service.router.tick(clock.now_ns())

    serve(use, journal=journal, clock=clock, plan=two_gear_plan("", alpha=0.001))
    first = shifts_in(journal, tmp_path / "journal.jsonl")[0]
    assert (first["after"], first["reason"]) == (1, "rate")
    assert first["load"] == pytest.approx(3 * first["rate_qps"])


def test_the_status_says_what_runs_and_what_waits():
    async def use(service: Service, backend: EmulatedBackend) -> tuple[Status, Status, Status]:
        idle = service.status(PLAN)
        requests = [
            asyncio.create_task(service.pipeline.infer(samples(0, 2, 4, 6), payload_bytes=100)) for _ in range(3)
        ]
        await asyncio.sleep(0)
        busy = service.status(PLAN)
        await asyncio.gather(*requests)
        backend.lose(0)
        service.refuse_new()
        return idle, busy, service.status(PLAN)

    idle, busy, ended = serve(use)
    assert (idle.state, idle.waiting, idle.open_requests, idle.held_bytes) == ("serving", 0, 0, 0)
    assert (idle.plan, idle.operator, idle.gear, idle.pinned) == (PLAN, "sums", 0, False)
    assert (idle.load_range, idle.cascade.models) == (LoadRange(from_=0), ("small", "large"))
    assert [(r.id, r.model, r.devices, r.ready) for r in idle.replicas] == [
        ("large-0", "large", ["cpu-0"], True),
        ("small-0", "small", ["cpu-0"], True),
    ]
    assert [(r.waiting, r.running) for r in busy.replicas] == [(0, 0), (8, 4)]
    assert (busy.waiting, busy.open_requests, busy.held_bytes) == (8, 3, 12 * ROW_BYTES + 300)
    assert busy.uptime_s >= idle.uptime_s > 0
    assert (ended.state, [r.ready for r in ended.replicas]) == ("draining", [False, True])


def test_a_service_that_loads_its_models_is_starting():
    plan = little_plan("")
    tables = plan_tables(plan)
    service = Service(tables, EmulatedBackend(tables, plan, little_profile()))
    assert service.status(PLAN).state == "starting"


def test_a_gear_that_the_plan_lacks_cannot_be_pinned(tmp_path):
    journal = JournalFile(tmp_path / "journal.jsonl")

    async def use(service: Service, _: EmulatedBackend) -> None:
        for gear in (-1, 2, 1 << 70):
            with pytest.raises(InvalidInput, match=f"there is no gear {gear}; pin one from 0 to 1"):
                service.pin_gear(gear)
        assert not service.status(PLAN).pinned

    serve(use, journal=journal, plan=two_gear_plan(""))
    journal.close()
    assert '"pin"' not in (tmp_path / "journal.jsonl").read_text()


def test_what_waits_is_answered_in_a_pinned_gear():
    async def use(service: Service, _: EmulatedBackend) -> Answer:
        request = asyncio.create_task(service.pipeline.infer(samples(1)))
        await asyncio.sleep(0)
        service.pin_gear(1)
        return await request

    answer: Answer = serve(use, plan=two_gear_plan(""))
    assert (answer.gear, answer.rows[0].model) == (1, "small")


def test_an_answer_is_told_once_on_a_later_turn_of_the_loop():
    async def use(service: Service, _: EmulatedBackend) -> list[Answer]:
        answers: list[Answer] = []
        for number in (0, 2):
            service.pipeline.submit(samples(number), answers.append)
        assert not answers
        while len(answers) < 2:
            await asyncio.sleep(0.001)
        await service.drain(LONGEST_S)
        return answers

    assert [answer.outcome for answer in serve(use)] == ["answered", "answered"]


def test_nobody_is_told_of_a_request_that_was_withdrawn():
    async def use(service: Service, _: EmulatedBackend) -> int:
        answers: list[Answer] = []
        runs = asyncio.ensure_future(service.pipeline.infer(samples(1)))
        withdraw = service.pipeline.submit(samples(0, 2), answers.append)
        await asyncio.sleep(0)
        withdraw()
        withdraw()
        await runs
        await service.drain(LONGEST_S)
        assert not answers
        return service.router.waiting

    assert serve(use) == 0


def test_a_later_model_that_gives_no_answers_degrades_the_service_which_stays_ready(tmp_path: Path):
    class Away(EmulatedBackend):
        down = True

        def run(self, batch: Batch) -> None:
            for sample in batch.samples:
                sample.unanswered = sample.unreached = self.down and sample.visited != 0
            super().run(batch)

    async def use(service: Service, backend: Away) -> tuple[list[str], Status]:
        outcomes = [(await service.pipeline.infer(samples(1))).outcome for _ in range(MAX_FAILURES_IN_A_ROW + 1)]
        assert (service.ready, service.degraded) == (True, ["large"])
        status = service.status(ServedPlan(path="plan.json", sha256=""))
        backend.down = False
        while service.degraded:  # until its pause of a second is over
            outcomes.append((await service.pipeline.infer(samples(1))).outcome)
            await asyncio.sleep(0.02)
        return outcomes, status

    journal = JournalFile(tmp_path / "journal.jsonl")
    outcomes, status = serve(use, backend_class=Away, journal=journal)
    journal.close()
    assert outcomes == ["degraded"] * (len(outcomes) - 1) + ["answered"]
    assert status.degraded_models == ["large"]
    assert {one.model: (one.ready, one.failing) for one in status.replicas} == {
        "small": (True, False),
        "large": (True, True),
    }
    events = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    told = [(one["event"], one["model"]) for one in events if one["event"] in ("replica_failing", "replica_answers")]
    assert told == [("replica_failing", "large"), ("replica_answers", "large")]
