import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest
from aiohttp import web

from gearshift.errors import InvalidInput
from gearshift.load_generator.http_target import HttpTarget, target_at
from gearshift.load_generator.replay import replay, run_replay
from gearshift.load_generator.replay_result import OUTCOMES, UNKNOWN, Replay
from gearshift.load_generator.sources import Label, SampleSource, quality_of, source_from_records, source_from_samples
from gearshift.load_generator.targets import Sending
from gearshift.profiles.profile import PredictionRecords
from gearshift.request import NO_DEADLINE_NS
from gearshift.workload import Workload
from tests.often import first_short

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LABELS = np.array([3, 1, 4, 1])


def samples() -> SampleSource:
    return source_from_samples({"x": np.arange(8, dtype=np.float32).reshape(4, 2)}, LABELS, "digits")


def workload(times_ms: list[float], records: list[int] | None = None) -> Workload:
    arrivals = np.array(np.array(times_ms) * 1e6, dtype=np.int64)
    record = np.array(records or [0] * len(times_ms), dtype=np.int32)
    return Workload(arrivals_ns=arrivals, record=record, duration_s=max(times_ms) / 1e3 + 0.1)


def answer(label: object, *, gear: int = 0, outcome: str = "answered") -> web.Response:
    output = {"name": "label", "datatype": "INT64", "shape": [1], "data": [label]}
    parameters = {"gear": gear, "queue_s": 0.0, "run_s": 0.001, "outcome": outcome}
    return web.json_response({"model_name": "digits", "parameters": parameters, "outputs": [output]})


async def sample_of(request: web.Request) -> int:
    """Which of `samples()` a request holds."""
    return int((await request.json())["inputs"][0]["data"][0]) // 2


def replayed(handler: Handler, load: Workload, source: SampleSource | None = None, **options: object) -> Replay:
    """The replay of `load` against a server that answers with `handler`, in one event loop."""

    async def run() -> Replay:
        application = web.Application()
        application.router.add_post("/v2/models/digits/infer", handler)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            await web.SockSite(runner, listener).start()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            try:
                return await replay(url, load, source or samples(), **options)  # type: ignore[arg-type]
            finally:
                await runner.cleanup()

    return asyncio.run(run())


def outcomes(run: Replay) -> list[str]:
    return [OUTCOMES[code] for code in run.log.outcome]


def test_requests_under_way_are_stamped_with_when_they_were_sent_and_latency_counts_from_then() -> None:
    stamps: dict[int, tuple[float, float]] = {}

    async def handler(request: web.Request) -> web.Response:
        sample = await sample_of(request)
        stamps[sample] = time.time(), float(request.headers["x-request-start"].removeprefix("t="))
        return answer(int(LABELS[sample]))

    began = time.time()
    run = replayed(handler, workload([0, 30], [0, 1]), under_way_s=np.array([0.2, 0.4]))
    instants = [stamps[0][1] + 0.2, stamps[1][1] + 0.4]
    assert instants[1] - instants[0] == pytest.approx(0.03, abs=0.005)
    assert began <= instants[0] <= stamps[0][0]
    assert instants[1] <= stamps[1][0]
    assert run.result.latency_s.p50 == pytest.approx(run.log.latency_s[0] + 0.2)
    assert run.result.latency_s.p95 == pytest.approx(run.log.latency_s[1] + 0.4)


def test_requests_under_way_are_sent_by_one_process() -> None:
    with pytest.raises(InvalidInput, match="stamped by one process; give --network without --processes"):
        run_replay("http://127.0.0.1:1", workload([0]), samples(), under_way_s=np.array([0.1]), processes=2)


def test_answers_are_judged_and_their_gears_followed() -> None:
    async def handler(request: web.Request) -> web.Response:
        record = await sample_of(request)
        return answer(int(LABELS[record]) if record < 3 else 9, gear=record)

    run = replayed(handler, workload([0, 30, 60, 90], [0, 1, 2, 3]), slo_s=20.0)
    assert outcomes(run) == ["answered"] * 4
    assert run.log.quality.tolist() == [1, 1, 1, 0]
    assert run.result.accuracy == 0.75
    assert run.result.requests == 4
    assert run.result.share_late == 0
    assert run.result.goodput_qps == pytest.approx(4 / 0.19)
    assert [gear for _, gear in run.gears] == [0, 1, 2, 3]
    assert [seconds for seconds, _ in run.gears] == sorted(seconds for seconds, _ in run.gears)


def test_requests_are_sent_on_time_whatever_the_answers_do() -> None:
    come, all_have_come = [], asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        come.append(request)
        if len(come) == 4:
            all_have_come.set()
        await all_have_come.wait()
        return answer(3)

    run = replayed(handler, workload([0, 20, 40, 60]))
    assert outcomes(run) == ["answered"] * 4
    assert np.all(run.log.latency_s >= np.array([0.06, 0.04, 0.02, 0]))
    assert run.lateness.p50_s <= run.lateness.p99_s <= run.lateness.max_s


def test_latency_counts_from_the_scheduled_instant_when_all_connections_are_busy() -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(0.05)
        return answer(3)

    run = replayed(handler, workload([0, 0, 0, 0]), sending=Sending(connections=1), slo_s=0.12)
    assert np.all(np.sort(run.log.latency_s) >= np.array([0.05, 0.1, 0.15, 0.2]))
    assert run.result.share_late >= 0.5
    assert not run.valid


def test_a_blocked_generator_is_flagged() -> None:
    async def handler(request: web.Request) -> web.Response:
        return answer(3)

    def block(done: int, total: int) -> None:
        if done == 1:
            time.sleep(0.1)

    run = replayed(handler, workload([0, 20, 40, 60, 80]), progress=block)
    assert not run.valid
    assert run.lateness.max_s > 0.03
    assert replayed(handler, workload([0, 20, 40, 60, 80]), progress=block, largest_lateness_s=5.0).valid


@pytest.mark.parametrize(
    ("status", "outcome"), [(429, "refused"), (503, "refused"), (504, "late"), (500, "failed"), (502, "failed")]
)
def test_statuses_without_an_answer_count_as_late(status: int, outcome: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return answer(3) if await sample_of(request) == 0 else web.Response(status=status)

    run = replayed(handler, workload([0, 5], [0, 1]), slo_s=10.0)
    assert outcomes(run) == ["answered", outcome]
    assert run.log.status.tolist() == [200, status]
    assert run.result.share_late == 0.5
    assert run.result.share_refused == (0.5 if outcome == "refused" else 0)
    assert run.failed == (outcome == "failed")
    assert run.log.gear[1] == UNKNOWN
    assert np.isnan(run.log.quality[1])


def test_a_deadline_that_could_not_be_kept_is_a_refusal_unless_the_request_ran() -> None:
    texts = {1: "infeasible: it could not", 2: "expired_in_queue: its deadline", 3: "execution: its deadline"}

    async def handler(request: web.Request) -> web.Response:
        sample = await sample_of(request)
        return web.json_response({"error": texts[sample]}, status=504) if sample in texts else answer(3)

    run = replayed(handler, workload([0, 5, 10, 15], [0, 1, 2, 3]), slo_s=10.0)
    assert outcomes(run) == ["answered", "refused", "refused", "late"]
    assert (run.result.share_late, run.result.share_refused) == (0.75, 0.5)


def test_a_broken_connection_and_an_answer_that_never_comes_are_failures() -> None:
    async def handler(request: web.Request) -> web.Response:
        if await sample_of(request) == 0:
            assert request.transport is not None
            request.transport.abort()
        else:
            await asyncio.sleep(30)
        return answer(3)

    run = replayed(handler, workload([0, 5], [0, 1]), sending=Sending(longest_s=0.2))
    assert outcomes(run) == ["failed", "failed"]
    assert run.log.status.tolist() == [0, 0]
    assert run.result.accuracy == 0


def test_requests_behind_a_hanging_server_end_too() -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return answer(3)

    run = replayed(handler, workload([0] * 200), sending=Sending(connections=1, longest_s=0.1))
    assert run.failed == 200
    assert run.log.latency_s.max() < 10  # one after the other they would take 20 s


def test_a_degraded_answer_counts_as_an_answer_of_its_own_kind() -> None:
    async def handler(request: web.Request) -> web.Response:
        return answer(3, outcome="degraded")

    run = replayed(handler, workload([0]))
    assert outcomes(run) == ["degraded"]
    assert run.result.accuracy == 1


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ("{'error': 'no such operator'}", 404, "status 404: .*no such operator"),
        ("shape is wrong", 400, "status 400: shape is wrong"),
        ("<html>", 200, "no V2 JSON"),
        ('{"outputs": []}', 200, "no output 'label'"),
    ],
)
def test_a_wrong_set_up_ends_the_replay_at_once(body: str, status: int, sentence: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    started = time.monotonic()
    with pytest.raises(InvalidInput, match=sentence):
        replayed(handler, workload([0, 60_000]))
    assert time.monotonic() - started < 10


def test_an_url_without_a_server_is_refused_with_a_remedy() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(InvalidInput, match=r"cannot be reached.*gearshift serve"):
            run_replay(url, workload([0]), samples())
    with pytest.raises(InvalidInput, match="no URL of a server; give it as http://HOST:PORT"):
        run_replay("nonsense", workload([0]), samples())


@pytest.mark.parametrize("options", [{"connections": 0}, {"connections": 8193}, {"longest_s": 0.0}])
def test_bad_ways_of_sending_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        Sending(**options)  # type: ignore[arg-type]


def test_a_workload_of_samples_that_are_not_there_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidInput, match="asks for sample 4"):
        run_replay("http://127.0.0.1:1", workload([0], [4]), samples())


def test_progress_ends_with_all_done() -> None:
    async def handler(request: web.Request) -> web.Response:
        return answer(3)

    told: list[tuple[int, int]] = []
    replayed(handler, workload([0, 1, 2]), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (3, 3)
    assert told == sorted(told)


def test_an_emulated_server_answers_quality_itself() -> None:
    async def handler(request: web.Request) -> web.Response:
        sample = (await request.json())["inputs"][0]
        assert (sample["name"], sample["datatype"], sample["shape"]) == ("sample", "INT64", [1])
        output = {"name": "quality", "datatype": "FP64", "shape": [1], "data": [sample["data"][0] / 4]}
        return web.json_response({"outputs": [output]})

    quality = np.zeros((1, 4))
    records = PredictionRecords(
        models=("m",), quality=quality, certainty=quality, part=np.array([0, 0, 1, 1], dtype=np.int8)
    )
    run = replayed(handler, workload([0, 1, 2], [1, 2, 3]), source_from_records(records, "digits"))
    assert run.log.quality.tolist() == [0.25, 0.5, 0.75]
    assert run.gears == ()


def body(source: SampleSource, record: int) -> dict[str, object]:
    """What is sent of a sample, by name."""
    target = HttpTarget("http://127.0.0.1:1", source.operator, source.output, Sending())
    content: dict[str, object] = json.loads(target.encode(source.inputs(record)).split(b"\r\n\r\n", 1)[1])
    return content


def test_requests_hold_one_row_and_ask_for_what_is_judged() -> None:
    inputs = {"x": np.array([[1.5, 2], [3, 4]], dtype=np.float32), "text": np.array(["a", 'b"'])}
    source = source_from_samples(inputs, np.array(["yes", "no"]), "op")
    sent = body(source, 1)
    assert sent["inputs"] == [
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [3, 4]},
        {"name": "text", "shape": [1], "datatype": "BYTES", "data": ['b"']},
    ]
    assert sent["outputs"] == [{"name": "label"}]


@pytest.mark.parametrize(
    ("label", "answered"),
    [(7, 7), (7.0, 7), ("7", 7), (True, True), ("no", "no"), (None, 1.0), (b"x", b"x"), (b"x", "x")],
)
def test_an_answer_of_the_labels_class_is_good(label: Label | None, answered: object) -> None:
    assert quality_of(answered, label) == 1


@pytest.mark.parametrize(("label", "answered"), [(7, 8), ("7", 8), ("yes", "no"), (None, 0)])
def test_another_answer_than_the_label_is_worth_nothing(label: Label | None, answered: object) -> None:
    assert quality_of(answered, label) == 0


@pytest.mark.parametrize("answered", [1.5, -0.1, "good", float("nan")])
def test_a_quality_that_is_none_is_refused(answered: object) -> None:
    with pytest.raises(InvalidInput, match="the answer's quality is"):
        quality_of(answered, None)


@pytest.mark.parametrize("processes", [1, 2])
def test_answers_that_are_never_right_are_told_with_an_example(processes: int) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return answer("three")

    replayed_ = replayed(handler, workload([0, 1]), processes=processes)
    assert replayed_.warnings == (
        "no answer is right, for example sample 0 is labelled '3', and 'three' was answered; "
        "check that samples and labels are those of the profile",
    )
    assert replayed_.as_json()["warnings"] == replayed_.warnings


def test_a_right_answer_leaves_nothing_to_warn_of() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return answer(LABELS[await sample_of(request)].item() if await sample_of(request) else "no")

    assert replayed(handler, workload([0, 1], [0, 1])).warnings == ()


def test_a_missing_value_is_sent_as_null() -> None:
    sent = body(source_from_samples({"x": np.array([[np.nan, 1.5]])}, np.array([1]), "op"), 0)
    assert sent["inputs"][0]["data"] == [None, 1.5]


def test_samples_that_cannot_be_sent_are_refused() -> None:
    with pytest.raises(InvalidInput, match="is infinite"):
        body(source_from_samples({"x": np.array([[np.inf]])}, np.array([1]), "op"), 0)
    with pytest.raises(InvalidInput, match="no UTF-8 text"):
        body(source_from_samples({"x": np.array([b"\xff\xfe"])}, np.array([1]), "op"), 0)
    with pytest.raises(InvalidInput, match="has 2 rows"):
        source_from_samples({"x": np.zeros(2)}, np.array([1]), "op")


def test_requests_are_sent_with_their_own_deadlines_and_late_by_them() -> None:
    told: dict[int, str | None] = {}

    async def handler(request: web.Request) -> web.Response:
        sample = await sample_of(request)
        told[sample] = request.headers.get("x-slo-ms")
        await asyncio.sleep(0.05)
        return answer(int(LABELS[sample]))

    sent = workload([0, 0, 0], [0, 1, 2])
    given_ns = np.array([1_000_000, 10_000_000_000, NO_DEADLINE_NS])
    run = replayed(handler, replace(sent, deadline_ns=np.minimum(sent.arrivals_ns + given_ns, NO_DEADLINE_NS)))
    assert {sample: text and float(text) for sample, text in told.items()} == {0: 1.0, 1: 10_000.0, 2: None}
    assert run.result.share_late == pytest.approx(1 / 3)
    others = replayed(
        handler,
        replace(sent, deadline_ns=np.minimum(sent.arrivals_ns + given_ns, NO_DEADLINE_NS)),
        slo_s=0.001,
        sending=Sending(deadline_s=7.0),
    )
    assert {sample: text and float(text) for sample, text in told.items()} == {0: 1.0, 1: 10_000.0, 2: 7_000.0}
    assert others.result.share_late == pytest.approx(2 / 3)


@pytest.mark.parametrize("url", first_short(["http://127.0.0.1:1", "grpc://127.0.0.1:1"]))
def test_a_target_that_encodes_a_deadline_of_its_own_is_refused_beside_those_of_the_workload(url: str) -> None:
    target = target_at(url, "digits", "label", Sending(deadline_s=0.25))
    sent = workload([0, 0])
    own = replace(sent, deadline_ns=np.array([1_000_000, NO_DEADLINE_NS]))
    said = r"deadline of 0\.25 s, and the workload has its own; make the target without deadline_s"
    with pytest.raises(InvalidInput, match=said):
        run_replay(target, own, samples())
    with pytest.raises(InvalidInput, match="cannot be reached"):
        run_replay(target, sent, samples())
