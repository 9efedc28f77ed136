import asyncio
import contextlib
import os
import shutil
import signal
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import uvloop

from gearshift.errors import GearshiftError, ModelFailed, WorkerDied
from gearshift.gear import GearPlan, ReplicaSettings
from gearshift.hardware import identical_devices
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import Request, Sample
from gearshift.runtime.backends import workers_backend
from gearshift.runtime.backends.base import Batch
from gearshift.runtime.backends.local import LocalBackend
from gearshift.runtime.backends.workers_backend import OperatorSource
from gearshift.runtime.cores.local_cores import CorePool, LocalCores
from gearshift.runtime.wire.messages import Done, DonePart, Event, Release, TensorHeader
from tests.conformance.test_backend_contract import Events
from tests.little_task import INPUTS, LOADING, TASK, closed, little_plan, spanning_plan, write_little_task
from tests.often import first_short
from tests.unit.runtime.actuators.stand_ins import group_v2
from tests.workers import send_signal


def backend_of(folder: Path, task: str = TASK, plan: GearPlan | None = None, **options: Any) -> LocalBackend:
    write_little_task(folder)
    (folder / "task.py").write_text(task)
    plan = plan or little_plan("")
    return LocalBackend(
        plan_tables(plan), plan, operators=[OperatorSource(project=folder / "gearshift.toml", inputs=INPUTS)], **options
    )


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def start(backend: LocalBackend) -> None:
    async def main() -> None:
        try:
            await backend.start(Events())
        finally:
            await backend.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (TASK + "\ndef large():\n    raise ValueError('no weights')\n", "'large' cannot be loaded.*no weights"),
        (TASK + "\ndef large():\n    os._exit(3)\n", "ended with status 3 while it loaded"),
        (TASK + "\ndef large():\n    os.kill(os.getpid(), 9)\n", "ended by signal 9 .* while it loaded"),
        ("import nothing_of_this_name", "cannot be loaded.*nothing_of_this_name"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_named_and_nothing_is_left(tmp_path, task, reason):
    before = children()
    with pytest.raises(GearshiftError, match=reason):
        start(backend_of(tmp_path, task))
    assert children() <= before


def test_loading_has_a_longest_time(tmp_path):
    before = children()
    begun = time.monotonic()
    with pytest.raises(ModelFailed, match=r"took longer than 0\.5 s"):
        start(backend_of(tmp_path, TASK + "\ndef large():\n    time.sleep(60)\n", longest_start_s=0.5))
    assert time.monotonic() - begun < 10
    assert children() <= before


def test_a_model_that_refuses_zeros_is_served_all_the_same_and_said_to_have_not_run(tmp_path):
    told: list[str] = []
    start(backend_of(tmp_path, TASK.replace("(first == 666)", "(first == 0)"), say=told.append))
    raised = "raised ValueError: a secret of the model (task.py, line 10) in its function"
    assert sorted(told) == [
        f"model {name!r} failed its warm-up on zeros ({raised}); it has not run yet" for name in ("large", "small")
    ]


SIZES = """
import pathlib
def small():
    def model(x):
        with pathlib.Path(__file__).with_name("sizes").open("a") as file:
            file.write(f"{len(x)} ")
        return answer("small", lambda first: np.ones(len(first)))(x)
    return model
"""


@pytest.mark.parametrize(("warm_up", "sizes"), [("all", "1 8 2 3 4 5 6 7 "), ("few", "1 8 ")])
def test_every_batch_size_that_the_plan_allows_has_run_before_a_replica_is_ready(tmp_path, warm_up, sizes):
    start(backend_of(tmp_path, TASK + SIZES, warm_up=warm_up))
    assert (tmp_path / "sizes").read_text() == sizes


def test_batch_sizes_for_which_there_is_no_time_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(workers_backend, "WARM_UP_SHARE", 0.0)
    told: list[str] = []
    start(backend_of(tmp_path, TASK + SIZES, say=told.append))
    assert (tmp_path / "sizes").read_text() == "1 8 "
    assert [one.partition(",")[0] for one in told] == [
        f"model {name!r} has not run 6 of its batch sizes yet" for name in ("large", "small")
    ]


def test_what_a_model_starts_and_prints_neither_stays_nor_gets_in_the_way(tmp_path, capfd):
    pid_file = tmp_path / "pid"
    task = (
        TASK
        + f"""
import subprocess
def large():
    print("a word on standard output")
    child = subprocess.Popen(["sleep", "600"])
    open({str(pid_file)!r}, "w").write(str(child.pid))
    return answer("large", lambda first: np.ones(len(first)))
"""
    )
    start(backend_of(tmp_path, task))
    captured = capfd.readouterr()
    assert "a word on standard output" not in captured.out
    assert is_gone_soon(int(pid_file.read_text()))


RUN_NS = [[0, 1_000_000] + [2_000_000_000] * 7] * 2
"""One row alone may take as long as the shortest hang, more of them twenty times two seconds."""
SMALL = 1


def with_backend(backend: LocalBackend, use: Callable[[Events], Awaitable[None]]) -> None:
    async def main() -> None:
        events = Events()
        await backend.start(events)
        try:
            await use(events)
        finally:
            await backend.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def batch(number: int, *rows: tuple[float, float]) -> Batch:
    request = Request(id=number, operator="sums", arrived_ns=0)
    return Batch(number, SMALL, [Sample(request, i, i, {"x": np.array([row])}) for i, row in enumerate(rows)])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the plan has two devices")
def test_a_replica_that_spans_devices_has_a_worker_of_its_own_on_the_cores_of_all(tmp_path):
    backend = backend_of(tmp_path, plan=spanning_plan(""))
    large, both = 1 - SMALL, sorted(os.sched_getaffinity(0))[-2:]

    async def use(events: Events) -> None:
        pids = backend.worker_pids()
        cores = {replica: os.sched_getaffinity(pids[replica]) for replica in (SMALL, large)}
        assert cores[large] == {*both}
        assert cores[SMALL] < cores[large]
        assert len(cores[SMALL]) == 1

    with_backend(backend, use)


TAKEN_OVER = """
import gc, struct
import msgspec
def small():
    from gearshift.runtime.wire.transport import BlockingConnection
    honest = answer("small", lambda first: np.ones(len(first)))
    def model(x):
        if (x[:, 0] == 7).any():
            (connection,) = [one for one in gc.get_objects() if isinstance(one, BlockingConnection)]
            connection._socket.sendall(LIE)
        return honest(x)
    return model
"""


def lie(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<IQ", len(header), len(body)) + header + body


WRONG_TENSOR = (
    TensorHeader(name="certainty", datatype="FP64", shape=(1,), size_bytes=8),
    TensorHeader(name="by", datatype="BYTES", shape=(1,), size_bytes=5, text=True),
)


@pytest.mark.parametrize(
    ("said", "why"),
    first_short(
        [
            (lie(msgspec.msgpack.encode(Done(batch=1 << 60, run_s=0.0, parts=()))), "a batch that it does not run"),
            (lie(msgspec.msgpack.encode(Event(event="zz", facts={})).replace(b"zz", b"\xff\xff")), "cannot be read"),
            (
                lie(
                    msgspec.msgpack.encode(
                        Done(batch=1, run_s=0.0, parts=(DonePart(rows=(0,), tensors=WRONG_TENSOR),))
                    ),
                    struct.pack("<d", 1.0) + b"\1\0\0\0\xff",
                ),
                "tensor 'by'",
            ),
        ]
    ),
    ids=["batch", "no UTF-8", "no text"],
)
def test_a_worker_that_says_what_none_may_is_killed_and_started_again(tmp_path, said, why):
    told: list[str] = []
    backend = backend_of(tmp_path, TASK + TAKEN_OVER.replace("LIE", repr(said)), say=told.append)

    async def use(events: Events) -> None:
        lost = batch(1, (7, 2))
        backend.run(lost)
        await events.until(lambda seen: ("lost", SMALL) in seen and seen.count(("ready", SMALL)) == 2)
        assert lost.samples[0].result is None
        after = batch(2, (1, 2))
        backend.run(after)
        await events.until(lambda seen: ("batch", 2) in seen)
        assert after.samples[0].result["sum"] == [3.0]
        assert ("batch", 1) not in events.seen

    with_backend(backend, use)
    assert len(told) == 1
    assert "was killed (it sent what no worker may: " in told[0]
    assert why in told[0]


def test_a_worker_sets_its_threads_between_two_batches(tmp_path):
    backend = backend_of(tmp_path, thread_counts=(1,))

    async def use(events: Events) -> None:
        backend.run(batch(1, (1, 2)))
        answer = await backend.set_cores(SMALL, 1, None)
        assert (answer.threads, answer.problem) == (1, "")
        await events.until(lambda seen: ("batch", 1) in seen)
        assert "may use 1 cores" in (await backend.set_cores(SMALL, 64, None)).problem
        asking = backend.set_cores(SMALL, 1, None)
        send_signal(backend, SMALL, signal.SIGKILL)
        await events.until(lambda seen: ("lost", SMALL) in seen)
        with contextlib.suppress(WorkerDied):
            await asking

    with_backend(backend, use)


def test_a_worker_that_is_told_so_gives_up_cores_before_the_next_batch(tmp_path):
    backend, group = backend_of(tmp_path, thread_counts=(1,)), group_v2(tmp_path / "group", cores=1.0)

    async def use(events: Events) -> None:
        pid, processors = backend.worker_pids()[SMALL], os.sched_getaffinity(0)
        os.sched_setaffinity(pid, processors)
        release = Release(processors=(min(processors),), group=str(group), cores=0.5)
        told = backend.set_cores(SMALL, 1, release)
        backend.run(batch(1, (1, 2)))
        await events.until(lambda seen: ("batch", 1) in seen)
        assert os.sched_getaffinity(pid) == {min(processors)}
        assert (group / "cpu.max").read_text() == "2500 5000"
        assert (await told).problem == ""
        shutil.rmtree(group)
        assert (await backend.set_cores(SMALL, 1, release)).problem == ""

    with_backend(backend, use)


def test_a_worker_may_end_before_it_has_heard_of_its_cores_and_nobody_misses_its_answer(tmp_path):
    backend = backend_of(tmp_path, thread_counts=(1,))

    async def use(events: Events) -> None:
        pid = backend.worker_pids()[SMALL]
        cores = cores_of(backend, held=(0,))
        os.kill(pid, signal.SIGSTOP)
        cores.tell(SMALL, 1)
        os.kill(pid, signal.SIGKILL)
        await events.until(lambda seen: ("lost", SMALL) in seen)
        cores.tell(SMALL, 1)

    with_backend(backend, use)


def cores_of(backend: LocalBackend, held: Sequence[int], processors: Sequence[int] = ()) -> LocalCores:
    pool = CorePool(processors, {SMALL: held})
    return LocalCores(backend, pool, core_share=1, say=print, now=time.monotonic_ns)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the worker is to have two processors")
def test_cores_that_a_worker_was_to_give_up_during_a_batch_stay_with_it_where_it_has_got_them_back(tmp_path):
    backend, both = backend_of(tmp_path, thread_counts=(1, 2)), tuple(sorted(os.sched_getaffinity(0))[:2])

    async def use(events: Events) -> None:
        pid = backend.worker_pids()[SMALL]
        told = cores_of(backend, held=both)
        kept = cores_of(backend, held=both[:1], processors=both)
        os.kill(pid, signal.SIGSTOP)  # as in a long batch
        told.tell(SMALL, 1)
        os.sched_setaffinity(pid, both[:1])
        kept.tell(SMALL, 2)
        growing = asyncio.ensure_future(asyncio.to_thread(kept.actuator(SMALL).apply, 2))
        while os.sched_getaffinity(pid) != {*both}:
            await asyncio.sleep(0.001)
        os.kill(pid, signal.SIGCONT)
        effect = await growing
        assert (effect.cores, effect.problem) == (2, "")
        assert os.sched_getaffinity(pid) == {*both}

    with_backend(backend, use)


@pytest.mark.long
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is no other processor")
def test_a_worker_that_is_started_again_loads_on_the_processors_that_it_holds_by_then(tmp_path):
    seen = tmp_path / "seen"
    task = TASK + f"\nimport os\nopen({str(seen)!r}, 'a').write(f'{{sorted(os.sched_getaffinity(0))}} ')\n"
    backend, (first, other) = backend_of(tmp_path, task), sorted(os.sched_getaffinity(0))[:2]
    pool = CorePool([], {SMALL: (first, other)})
    backend.held_by = lambda replica: pool.held_by(SMALL)

    async def use(events: Events) -> None:
        pool.resize(SMALL, 1)
        send_signal(backend, SMALL, signal.SIGKILL)
        await events.until(lambda seen: seen.count(("ready", SMALL)) == 2)
        assert os.sched_getaffinity(backend.worker_pids()[SMALL]) == {first}

    with_backend(backend, use)
    assert {*seen.read_text().split("] ")} == {f"[{first}, {other}", f"[{first}", ""}


def test_a_worker_that_hangs_in_a_batch_is_replaced(tmp_path):
    told: list[str] = []
    backend = backend_of(tmp_path, run_ns=RUN_NS, shortest_hang_s=2.0, probe_s=1.0, say=told.append)

    async def use(events: Events) -> None:
        send_signal(backend, SMALL, signal.SIGSTOP)
        backend.run(batch(1, (1, 2)))
        await events.until(lambda seen: seen.count(("ready", SMALL)) == 2)
        assert ("lost", SMALL) in events.seen
        backend.run(batch(2, (1, 2), (1, 2)))
        await events.until(lambda seen: ("batch", 2) in seen)

    with_backend(backend, use)
    assert "was killed (it had held a batch for longer than 2 s); starting it again in 0.1 s" in told[0]


def test_an_idle_worker_that_is_stuck_is_replaced(tmp_path):
    told: list[str] = []
    backend = backend_of(tmp_path, probe_s=0.1, say=told.append)

    async def use(events: Events) -> None:
        send_signal(backend, SMALL, signal.SIGSTOP)
        await events.until(lambda seen: seen.count(("ready", SMALL)) == 2)

    with_backend(backend, use)
    assert "was killed (it had not answered for 0.1 s while it had nothing to do)" in told[0]


def test_a_worker_that_stays_awake_serves(tmp_path):
    backend = backend_of(tmp_path, awake_s=1.0)

    async def use(events: Events) -> None:
        for number in range(3):
            backend.run(batch(number, (5, 0.1)))  # of which an eighth is longer than the next batch takes to come
            await events.until(lambda seen, number=number: ("batch", number) in seen)

    with_backend(backend, use)


def test_a_batch_may_take_a_multiple_of_the_profiled_time_of_its_own_size(tmp_path):
    run_ns = [[0, 1_000_000_000, 1_000_000, *[1_000_000] * 6]] * 2  # alone 1 s, so up to 20 s; two together 20 ms
    backend = backend_of(tmp_path, run_ns=run_ns, shortest_hang_s=0.01, probe_s=0.5)

    async def use(events: Events) -> None:
        backend.run(batch(1, (5, 0.4)))
        await events.until(lambda seen: ("batch", 1) in seen)
        assert ("lost", SMALL) not in events.seen
        backend.run(batch(2, (5, 30), (1, 1)))
        await events.until(lambda seen: ("lost", SMALL) in seen)
        assert ("batch", 2) not in events.seen

    with_backend(backend, use)


def test_it_is_said_by_which_signal_a_worker_ended(tmp_path):
    told: list[str] = []
    backend = backend_of(tmp_path, say=told.append)

    async def use(events: Events) -> None:
        send_signal(backend, SMALL, signal.SIGKILL)
        await events.until(lambda seen: seen.count(("ready", SMALL)) == 2)
        send_signal(backend, SMALL, signal.SIGSEGV)
        await events.until(lambda seen: seen.count(("ready", SMALL)) == 3)

    with_backend(backend, use)
    assert told == [
        "the worker of large-0, small-0 ended by signal 9 (SIGKILL, as the kernel sends it when memory runs out); "
        "starting it again in 0.1 s",
        "the worker of large-0, small-0 ended by signal 11 (Segmentation fault); starting it again in 0.2 s",
    ]


def test_a_model_that_cannot_be_loaded_again_leaves_the_others_of_its_worker_serving(tmp_path):
    told: list[str] = []
    weights = tmp_path / "weights"
    weights.touch()
    task = (
        TASK
        + f"""
def large():
    open({str(weights)!r})
    return answer("large", lambda first: np.ones(len(first)))
"""
    )
    backend = backend_of(tmp_path, task, say=told.append)

    async def use(events: Events) -> None:
        weights.unlink()
        send_signal(backend, SMALL, signal.SIGKILL)
        await events.until(lambda seen: seen.count(("ready", SMALL)) == 2)
        backend.run(batch(1, (1, 2)))
        await events.until(lambda seen: ("batch", 1) in seen)
        assert events.seen.count(("ready", 0)) == 1

    with_backend(backend, use)
    assert told[-1].startswith("model 'large' cannot be loaded: ")
    assert told[-1].endswith("the other models of its worker are served without it")


def two_device_plan() -> GearPlan:
    """As `little_plan`, with another replica of `small` alone on a second device."""
    plan = little_plan("")
    operator = plan.pipelines["sums"]
    settings = (*operator.gears[0].replicas, ReplicaSettings(replica="small-1", load_share=0.0, largest_batch_size=8))
    gears = (msgspec.structs.replace(operator.gears[0], replicas=settings),)
    replicas = (*plan.placement.replicas, Replica(id="small-1", model="small", device_ids=("cpu-1",)))
    return msgspec.structs.replace(
        plan,
        hardware=identical_devices(2),
        placement=Placement(replicas=replicas),
        pipelines={"sums": msgspec.structs.replace(operator, gears=gears)},
    )


@pytest.mark.long
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the plan has two devices")
def test_a_worker_that_comes_back_with_fewer_models_while_others_still_load_is_ready_with_these_alone(tmp_path):
    weights = tmp_path / "weights"
    weights.touch()
    task = (
        TASK
        + f"""
beside_large = False
def large():
    global beside_large
    beside_large = True
    open({str(weights)!r})
    return answer("large", lambda first: np.ones(len(first)))

def small():
    if not beside_large:
        pass_gate("loading")
    return answer("small", lambda first: np.ones(len(first)))
"""
    )
    plan = two_device_plan()
    backend, ids = backend_of(tmp_path, task, plan), plan_tables(plan).replica_ids
    small, other = ids.index("small-0"), ids.index("small-1")

    async def main() -> list[tuple[Any, ...]]:
        events = Events()
        with closed(tmp_path, LOADING) as open_gate:
            starting = asyncio.create_task(backend.start(events))
            try:
                while not backend.worker_pids()[small]:
                    await asyncio.sleep(0.005)
                weights.unlink()
                send_signal(backend, small, signal.SIGKILL)
                await events.until(lambda seen: ("ready", small) in seen)
                open_gate()
                await starting
            finally:
                await backend.stop()
        return events.seen

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seen = runner.run(main())
    assert {replica for what, replica in seen if what == "ready"} == {small, other}


def is_gone_soon(pid: int) -> bool:
    """A killed process may be a zombie until its new parent reaps it."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False
