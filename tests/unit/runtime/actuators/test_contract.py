"""One suite for all actuators: real where this machine allows, against a stand-in of the interface where not."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gearshift.runtime.actuators.affinity import AffinityActuator
from gearshift.runtime.actuators.base import Actuator, ActuatorChain, EmulatedActuator
from gearshift.runtime.actuators.cgroup import CgroupActuator, cores_of_group, own_groups
from gearshift.runtime.actuators.kubernetes import BesideRouter, Container, KubernetesActuator
from gearshift.runtime.actuators.threads import SessionsByThreads, ThreadsActuator
from gearshift.runtime.cores.local_cores import CorePool, FractionalCores, PoolAffinity, WorkerThreads
from gearshift.runtime.wire.messages import ThreadsSet
from tests.unit.runtime.actuators.stand_ins import api_server, group_v1, group_v2

CORES = sorted(os.sched_getaffinity(0))
LONGEST_S = 20.0


@dataclass
class Case:
    actuator: Actuator
    steps: tuple[float, ...]
    """Cores to ask for, one after the other."""
    seen: Callable[[], float]
    """Cores as somebody else sees them."""
    most: float
    """Cores that are there."""
    break_it: Callable[[], object] | None = None
    """Takes the actuator's means away."""
    core_share: float = 1.0
    """How much of a processor a core is; problems are told in processors."""


@contextlib.contextmanager
def emulated(folder: Path) -> Iterator[Case]:
    actuator = EmulatedActuator(most=4)
    yield Case(actuator, (1, 4, 2), lambda: actuator.cores, 4)


@contextlib.contextmanager
def torch_threads(folder: Path) -> Iterator[Case]:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    try:
        yield Case(ThreadsActuator(torch.set_num_threads), counts(), torch.get_num_threads, len(CORES))
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def sessions(folder: Path) -> Iterator[Case]:
    ready = SessionsByThreads(lambda count: count, range(1, len(CORES) + 1))
    yield Case(ThreadsActuator(ready.use), counts(), lambda: ready.session, len(CORES))


@contextlib.contextmanager
def onnx_sessions(folder: Path) -> Iterator[Case]:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from gearshift.models.onnx_file import open_onnx_file
    from tests.onnx_files import write_linear

    file = write_linear(folder / "model.onnx", np.eye(2, dtype=np.float32))
    model = open_onnx_file("m", file, device_kind="cpu", where="here")
    ready = SessionsByThreads(model.make_session, range(1, len(CORES) + 1))

    def seen() -> float:
        (logits,) = ready.session.run(None, {"x": np.ones((1, 2), dtype=np.float32)})
        assert logits.tolist() == [[1, 1]]
        return float(ready.session.get_session_options().intra_op_num_threads)

    yield Case(ThreadsActuator(ready.use), counts(), seen, len(CORES))


def counts() -> tuple[float, ...]:
    return (1, len(CORES), 1)


@dataclass
class Child:
    """A process of two threads."""

    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    def processors(self) -> int:
        """How many its threads may run on."""
        tasks = [int(task.name) for task in Path(f"/proc/{self.pid}/task").iterdir()]
        assert len(tasks) == 2
        (held,) = {frozenset(os.sched_getaffinity(task)) for task in tasks}
        return len(held)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def child() -> Iterator[Child]:
    code = "import threading; threading.Thread(target=input).start(); print(flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield Child(process)
        finally:
            process.kill()


@contextlib.contextmanager
def affinity(folder: Path) -> Iterator[Case]:
    with child() as one:
        yield Case(AffinityActuator(one.pid, CORES), counts(), one.processors, len(CORES), one.end)


@contextlib.contextmanager
def pool_affinity(folder: Path) -> Iterator[Case]:
    with child() as one:
        pool = CorePool(CORES, {0: CORES[:1]})
        yield Case(PoolAffinity(one.pid, pool, 0), counts(), one.processors, len(CORES), one.end)


@contextlib.contextmanager
def worker_threads(folder: Path) -> Iterator[Case]:
    worker = Threads()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        actuator = WorkerThreads(worker.set, loop, cores=1.0, longest_s=LONGEST_S)

        def become_busy() -> None:
            worker.become_busy()
            actuator._longest_s = 0.1

        yield Case(actuator, counts(), lambda: worker.count, len(CORES), become_busy)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Threads:
    """Those of a worker, set as a worker sets its own, until it is busy for ever."""

    def __init__(self) -> None:
        self.count, self.busy = 1, False
        self._actuator = ThreadsActuator(self._take)

    async def set(self, threads: int) -> ThreadsSet:
        if self.busy:
            await asyncio.get_running_loop().create_future()
        problem = self._actuator.apply(threads).problem
        return ThreadsSet(threads=self.count, since_ns=time.monotonic_ns(), problem=problem)

    def become_busy(self) -> None:
        self.busy = True

    def _take(self, count: int) -> None:
        self.count = count


@contextlib.contextmanager
def real_cgroup(folder: Path) -> Iterator[Case]:
    group = made_group()
    if group is None:
        pytest.skip("this process may make no control group with the cpu controller")
    actuator = CgroupActuator(group, most=4)
    try:
        yield Case(actuator, (0.25, 1, 4, 0.5), lambda: cores_of_group(group, actuator.version), 4, group.rmdir)
    finally:
        with contextlib.suppress(FileNotFoundError):
            group.rmdir()


def made_group() -> Path | None:
    for parent in own_groups():
        group = parent / f"gearshift-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / "cpu.max").exists() or (group / "cpu.cfs_quota_us").exists():
            return group
        group.rmdir()
    return None


@contextlib.contextmanager
def cgroup_v1(folder: Path) -> Iterator[Case]:
    group = group_v1(folder / "v1")
    moved = folder / "gone"
    actuator = CgroupActuator(group, most=4)
    yield Case(actuator, (0.25, 1, 4, 0.5), lambda: cores_of_group(group, 1), 4, lambda: group.rename(moved))


@contextlib.contextmanager
def cgroup_v2(folder: Path) -> Iterator[Case]:
    group = group_v2(folder / "v2")
    moved = folder / "gone"
    actuator = CgroupActuator(group, most=4, period_us=10_000)
    yield Case(actuator, (0.25, 1, 4, 0.5), lambda: cores_of_group(group, 2), 4, lambda: group.rename(moved))


@contextlib.contextmanager
def shares_of_a_processor(folder: Path) -> Iterator[Case]:
    group = group_v2(folder / "v2")
    moved = folder / "gone"
    actuator = FractionalCores(CgroupActuator(group, most=1), 0.25)
    yield Case(
        actuator, (1, 4, 2), lambda: cores_of_group(group, 2) / 0.25, 4, lambda: group.rename(moved), core_share=0.25
    )


@contextlib.contextmanager
def kubernetes(folder: Path) -> Iterator[Case]:
    group = group_v2(folder / "own")
    token = folder / "token"
    token.write_text("secret\n")
    with api_server(group) as server:
        pod = Container(server=server.url, namespace="models", pod="gears", container="gearshift", token_file=token)
        actuator = KubernetesActuator(pod, group, longest_s=LONGEST_S)
        yield Case(
            actuator, (2, 4, 0.5), lambda: cores_of_group(group, 2), 1000, lambda: setattr(server, "mode", "Infeasible")
        )
        assert set(server.tokens) == {"Bearer secret"}


@contextlib.contextmanager
def kubernetes_beside_the_router(folder: Path) -> Iterator[Case]:
    with kubernetes(folder) as whole:
        yield Case(BesideRouter(whole.actuator), whole.steps, lambda: whole.seen() - 1, 1000, whole.break_it)


@contextlib.contextmanager
def chain(folder: Path) -> Iterator[Case]:
    with cgroup_v2(folder) as quota:
        threads = EmulatedActuator(most=4)
        actuator = ActuatorChain([quota.actuator, threads], cores=1, say=lambda text: None)
        yield Case(actuator, (2, 4, 1), lambda: min(quota.seen(), threads.cores), 4, quota.break_it)


CASES = [
    emulated,
    torch_threads,
    sessions,
    onnx_sessions,
    affinity,
    pool_affinity,
    worker_threads,
    real_cgroup,
    cgroup_v1,
    cgroup_v2,
    shares_of_a_processor,
    kubernetes,
    kubernetes_beside_the_router,
    chain,
]
BREAKABLE = [make for make in CASES if make not in (emulated, torch_threads, sessions, onnx_sessions)]
Maker = Callable[[Path], contextlib.AbstractContextManager[Case]]


@pytest.mark.parametrize("make", CASES)
def test_a_change_holds_when_it_is_reported_and_others_see_it(tmp_path: Path, make: Maker) -> None:
    with make(tmp_path) as case:
        for cores in case.steps:
            before_ns = time.monotonic_ns()
            effect = case.actuator.apply(cores)
            assert case.seen() == pytest.approx(cores)
            assert (effect.cores, effect.problem) == (pytest.approx(cores), "")
            assert case.actuator.in_force() == pytest.approx(cores)
            assert before_ns <= effect.asked_ns <= effect.effective_ns <= time.monotonic_ns()


@pytest.mark.parametrize("make", CASES)
def test_asking_again_for_the_same_changes_nothing(tmp_path: Path, make: Maker) -> None:
    with make(tmp_path) as case:
        first, second = (case.actuator.apply(case.steps[0]) for _ in range(2))
        assert first.cores == second.cores == pytest.approx(case.seen())
        assert second.problem == ""


@pytest.mark.parametrize("make", [make for make in CASES if "kubernetes" not in make.__name__])
def test_more_than_is_there_gives_what_is_there_and_says_so(tmp_path: Path, make: Maker) -> None:
    with make(tmp_path) as case:
        effect = case.actuator.apply(case.most + 3)
        assert effect.cores == pytest.approx(case.most) == pytest.approx(case.seen())
        assert f"{(case.most + 3) * case.core_share:g} " in effect.problem


@pytest.mark.parametrize("make", BREAKABLE)
def test_without_its_means_it_raises_nothing_and_says_what_is_wrong(tmp_path: Path, make: Maker) -> None:
    with make(tmp_path) as case:
        case.actuator.apply(case.steps[0])
        assert case.break_it is not None
        case.break_it()
        began = time.monotonic()
        effect = case.actuator.apply(case.steps[1])
        assert time.monotonic() - began < LONGEST_S / 2
        assert effect.problem
        assert effect.cores <= case.steps[0]
