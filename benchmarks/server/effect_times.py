"""How long a change of cores takes to hold, of a worker under load, for every local way to change them.

python -m benchmarks.server.effect_times [--changes 200] [--quick]

A worker runs the model of `papers/sponge_live.py`, in PyTorch as its threads can be changed, or one of the same size
from an ONNX file; it always has a batch waiting.  A random walk over gears of one core more or less is pinned, gear by
gear: the server shifts, asks its actuators, and goes on.  The model writes down when each batch began and what it saw
then of threads, processors and quota.  From the decision to the start of the first batch that saw all of it counts,
without the batch that runs when it is decided.  How often a batch with the old setting began in between is told, and
the share within the bar by when the actuators say that it holds, as the server's metric counts.  Each way is tried
alone, and all together; those that do not work here are named."""

import asyncio
import importlib.util
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import uvloop
from msgspec import structs
from numpy.typing import NDArray

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from benchmarks.shared.plan_by_hand import plan_by_hand
from benchmarks.shared.tables import print_table
from gearshift.cascade import Cascade
from gearshift.clock import WallClock
from gearshift.errors import InvalidInput
from gearshift.gear import Gear, GearPlan, LoadRange, ReplicaSettings, alone
from gearshift.hardware import identical_devices
from gearshift.observability.journal import Journal
from gearshift.placement import Replica
from gearshift.plans.plan_file import write_plan
from gearshift.request import Answer
from gearshift.runtime.actuators.base import Actuator, ActuatorChain, Effect
from gearshift.runtime.actuators.check import check_actuators
from gearshift.runtime.cores.local_cores import FractionalCores, LocalCores, PoolAffinity, processors_for
from gearshift.runtime.service.service import Service
from gearshift.runtime.wire.messages import Release
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.rows.assembly import make_service
from gearshift.serving.rows.task import read_task
from gearshift.support.processors import pinned
from gearshift.verbs.profile import profile as measured_profile

SIZES = (1, 2, 4, 8)
OUTSTANDING = 3 * SIZES[-1]
BATCHES_BETWEEN = 3
LONGEST_EFFECT_MS, LONGEST_WAIT_S = 10.0, 60.0
BATCH = np.dtype([("begun_ns", "i8"), ("ended_ns", "i8"), ("threads", "i8"), ("processors", "i8"), ("quota", "f8")])
"""A line of what the model writes down."""

PROJECT = f"""
operator = "images"
samples = "task.py:samples"
[models.net]
load = "task.py:LOADER"
[profile]
batch_sizes = {list(SIZES)}
repeats = 4
"""
TASK = """
import contextlib
import os
import struct
import time
from pathlib import Path

import gearshift
import numpy as np
from gearshift.models.onnx_file import OnnxFile, open_onnx_file
from gearshift.runtime.actuators.cgroup import cgroup_version, cores_of_group, own_groups

HERE = Path(__file__).parent
FILE = os.open(HERE / "batches", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def samples():
    return gearshift.Samples(inputs={"x": np.ones((20, 1), dtype=np.float32)}, labels=np.zeros(20, dtype=int))

def quota():
    for group in own_groups():
        with contextlib.suppress(gearshift.errors.GearshiftError):
            return cores_of_group(group, cgroup_version(group))
    return np.inf

def watched(threads, work):
    begun_ns = time.monotonic_ns()  # before looking: who begins once a change holds has to see it
    seen = threads(), len(os.sched_getaffinity(0)), quota()
    answer = work()
    os.write(FILE, struct.pack("qqqqd", begun_ns, time.monotonic_ns(), *seen))
    return answer

def torch_net():
    import torch
    torch.set_num_threads(1)  # where nothing changes them, never more than processors
    weights = torch.from_numpy(np.random.default_rng(0).standard_normal((320, 320)).astype(np.float32))
    def model(x):
        def work():
            for _ in range(1 + 2 * len(x)):
                weights @ weights
        watched(torch.get_num_threads, work)
        return {"label": np.zeros(len(x), dtype=int)}, np.ones(len(x))
    return model

class Watched(OnnxFile):
    def predict(self, feed):
        threads = self.session.get_session_options().intra_op_num_threads
        return watched(lambda: threads, lambda: super(Watched, self).predict(feed))

def onnx_net():
    opened = open_onnx_file("net", HERE / "net.onnx", device_kind="cpu", where="net")
    return Watched(opened.name, opened.session, opened.make_session)
"""


@dataclass(frozen=True, slots=True)
class Way:
    """The actuators of these names, of a model's loader; a core is `share` of a processor, and there are `most`."""

    name: str
    actuators: tuple[str, ...]
    share: float
    most: int
    loader: str = "torch_net"

    def seen_as(self, cores: int) -> tuple[int, int, float]:
        """The threads, processors and quota that so many cores are; 0 for what does not change."""
        processors = int(np.ceil(cores * self.share))
        threads, affinity, quota = (kind in self.actuators for kind in ("threads", "affinity", "cgroup"))
        return threads * processors, affinity * processors, cores * self.share if quota else 0.0

    def holds(self, batch: NDArray[np.void], cores: int) -> bool:
        """Whether a batch has seen so many cores."""
        wanted = self.seen_as(cores)
        seen = (int(batch["threads"]), int(batch["processors"]), round(float(batch["quota"]), 6))
        return all(one in (0, other) for one, other in zip(wanted, seen, strict=True))


@dataclass(frozen=True, slots=True)
class Change:
    """When so many cores were decided, and since when all actuators say that they hold, on the monotonic clock."""

    cores: int
    decided_ns: int
    held_ns: int


@dataclass(slots=True)
class Answers:
    """How many requests were sent, and how many answered."""

    sent: int = 0
    answered: int = 0


def ways(processors: int) -> list[Way]:
    """All that a machine with so many processors may have."""
    return [
        Way("threads", ("threads",), 1.0, processors),
        Way("threads, ONNX", ("threads",), 1.0, processors, "onnx_net"),
        Way("affinity", ("affinity",), 1.0, processors),
        Way("cgroup", ("cgroup",), 0.25, 4),
        Way("all", ("cgroup", "affinity", "threads"), 0.5, 2 * processors),
    ]


def walk(most: int, steps: int, rng: random.Random) -> list[int]:
    """Cores from 1 to `most`, each one more or less than the one before, which is 1 at first."""
    cores, found = 1, []
    for _ in range(steps):
        cores += rng.choice([step for step in (-1, 1) if 1 <= cores + step <= most])
        found.append(cores)
    return found


# What is served ------------------------------------------------------------------------------------------------------


def the_plan(most: int, sha256: str) -> GearPlan:
    """A gear for every number of cores, of one replica."""
    gears = tuple(
        Gear(
            load_range=LoadRange(from_=1e6 * (cores - 1), to=None if cores == most else 1e6 * cores),
            cascades=alone("images", Cascade(models=("net",))),
            replicas=(ReplicaSettings(replica="net-0", load_share=1.0, largest_batch_size=SIZES[-1], cores=cores),),
        )
        for cores in range(1, most + 1)
    )
    return plan_by_hand(
        "images",
        gears,
        (Replica(id="net-0", model="net", device_ids=("cpu-0",), cores=most),),
        structs.replace(identical_devices(1, cores=most), pool_cores=most),
        latency_s=1.0,
        profile_sha256=sha256,
    )


def write_onnx_file(path: Path) -> None:
    """Two products of 320 x 320 matrices for each row; raises `ImportError` where onnx is not installed."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = {
        "spread": np.ones((1, 320 * 320), dtype=np.float32),
        "squares": np.array([-1, 320]),
        "weights": rng.standard_normal((320, 320)).astype(np.float32) / 320,
        "rows": np.array([-1, 320 * 320]),
        "head": rng.standard_normal((320 * 320, 2)).astype(np.float32) / 320,
    }
    steps = [
        ("MatMul", "x", "spread", "flat"),
        ("Reshape", "flat", "squares", "square"),
        ("MatMul", "square", "weights", "once"),
        ("MatMul", "once", "weights", "twice"),
        ("Reshape", "twice", "rows", "row"),
        ("MatMul", "row", "head", "scores"),
    ]
    graph = helper.make_graph(
        [helper.make_node(kind, [one, other], [out]) for kind, one, other, out in steps],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 1])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", 2])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)]), path)


class Recorded:
    """An actuator whose effects are kept."""

    name = "recorded"

    def __init__(self, actuator: Actuator, effects: list[Effect]) -> None:
        self._actuator, self._effects = actuator, effects

    def apply(self, cores: float) -> Effect:
        """As the actuator's own."""
        self._effects.append(self._actuator.apply(cores))
        return self._effects[-1]

    def in_force(self) -> float:
        """As the actuator's own."""
        return self._actuator.in_force()


@contextmanager
def actuators_of(way: Way, effects: list[Effect]) -> Iterator[None]:
    """The server has those of the way alone meanwhile, and what they do is kept in `effects`."""
    whole, tell_all, order = LocalCores.actuator, LocalCores.tell, LocalCores._order

    def chosen(cores: LocalCores, replica: int) -> Actuator:
        shared = whole(cores, replica)
        assert isinstance(shared, FractionalCores)
        assert isinstance(shared._actuator, ActuatorChain)
        chain = shared._actuator._actuators
        for one in chain:
            if isinstance(one, PoolAffinity) and "affinity" not in way.actuators:
                one.apply(way.most * way.share)  # once, so that threads have processors to run on
        kept = [one for one in chain if one.name in way.actuators]
        return Recorded(FractionalCores(ActuatorChain(kept, cores=0.0, say=print), way.share), effects)

    def tell(cores: LocalCores, replica: int, count: int) -> None:
        if "cgroup" in way.actuators:
            tell_all(cores, replica, count)
        elif "threads" in way.actuators:  # and processors stay
            cores._backend.set_cores(replica, processors_for(count, way.share), None)

    def ordered(cores: LocalCores, replica: int, share: float) -> Release:
        return order(cores, replica, share if "affinity" in way.actuators else way.most * way.share)

    with (
        mock.patch.object(LocalCores, "actuator", chosen),
        mock.patch.object(LocalCores, "tell", tell),
        mock.patch.object(LocalCores, "_order", ordered),
    ):
        yield


# What is measured ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Of one way: its changes, the batches that ran, and what became of requests."""

    changes: list[Change]
    batches: NDArray[np.void]
    answers: Answers

    def effects_ms(self, way: Way) -> NDArray[np.float64]:
        """Of each change."""
        return np.array([effect_ms(change, self.batches, way) for change in self.changes])


async def under_load(
    service: Service, cores: list[int], batches: Path, effects: list[Effect], rng: random.Random
) -> tuple[list[Change], Answers]:
    """Change the service's cores again and again, by pinning gears, while it always has batches waiting."""
    answers, changes = Answers(), list[Change]()
    row, ends = {"x": np.ones((1, 1), dtype=np.float32)}, asyncio.Event()

    def send() -> None:
        answers.sent += 1
        service.pipeline.submit(row, answered)

    def answered(answer: Answer) -> None:
        answers.answered += answer.outcome == "answered"
        if not ends.is_set():
            send()

    await service.start()
    try:
        service.pin_gear(0)
        for _ in range(OUTSTANDING):
            send()
        await more_batches(batches)
        for count in cores:
            await asyncio.sleep(rng.uniform(0, 0.05))  # so that decisions come at any time of a batch
            effects.clear()
            decided_ns = time.monotonic_ns()
            service.pin_gear(count - 1)
            await until(lambda: len(effects) > 0)
            await more_batches(batches)
            changes.append(Change(count, decided_ns, held_ns(effects[-1], count)))
        ends.set()
        await service.drain(LONGEST_WAIT_S)
    finally:
        await service.stop()
    return changes, answers


async def more_batches(file: Path) -> None:
    """Until some more batches have ended."""
    enough = batches_in(file) + BATCHES_BETWEEN
    await until(lambda: batches_in(file) >= enough)


async def until(true: Callable[[], bool]) -> None:
    """Until it is so; raises `TimeoutError` where that takes too long."""
    async with asyncio.timeout(LONGEST_WAIT_S):
        while not true():
            await asyncio.sleep(0.005)


def batches_in(file: Path) -> int:
    """How many the model has written down."""
    return file.stat().st_size // BATCH.itemsize


def held_ns(effect: Effect, cores: int) -> int:
    """Since when so many cores hold; raises `InvalidInput` where they were not had."""
    if effect.cores != cores or effect.problem:
        raise InvalidInput(f"{cores} cores were asked for, and there are {effect.cores:g}: {effect.problem}")
    return effect.effective_ns


def first_after(change: Change, batches: NDArray[np.void]) -> NDArray[np.void]:
    """The first batch that began once the change held."""
    return batches[np.searchsorted(batches["begun_ns"], change.held_ns)]


def first_under(change: Change, batches: NDArray[np.void], way: Way) -> int:
    """The place of the first batch that began after the decision and saw so many cores."""
    begin = int(np.searchsorted(batches["begun_ns"], change.decided_ns))
    return next(i for i in range(begin, len(batches)) if way.holds(batches[i], change.cores))


def free_ns(change: Change, batches: NDArray[np.void]) -> int:
    """When the decision was made, or the batch ended that ran then."""
    running = batches[(batches["begun_ns"] < change.decided_ns) & (batches["ended_ns"] > change.decided_ns)]
    return max([change.decided_ns, *running["ended_ns"].tolist()])


def metered_effect_ms(change: Change, batches: NDArray[np.void]) -> float:
    """As the server's metric counts, by when the actuators say that it holds."""
    return max(0, change.held_ns - free_ns(change, batches)) / 1e6


def effect_ms(change: Change, batches: NDArray[np.void], way: Way) -> float:
    """From the decision to the first batch that saw it, without the batch that ran when it was decided."""
    return float(batches["begun_ns"][first_under(change, batches, way)] - free_ns(change, batches)) / 1e6


def began_between(change: Change, batches: NDArray[np.void], way: Way) -> bool:
    """Whether a batch with the old setting began after the decision."""
    return first_under(change, batches, way) > np.searchsorted(batches["begun_ns"], change.decided_ns)


def measured(way: Way, changes: int, seed: int) -> Seen:
    """Profile the model as the way has it, serve it, and change its cores so often."""
    rng, effects = random.Random(seed), list[Effect]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "gearshift.toml").write_text(PROJECT.replace("LOADER", way.loader))
        (folder / "task.py").write_text(TASK)
        if way.loader == "onnx_net":
            write_onnx_file(folder / "net.onnx")
        counts = range(1, way.most + 1)
        profile = measured_profile(folder, out=folder / "profile", cores=counts, core_share=way.share)
        write_plan(the_plan(way.most, profile.sha256), folder / "plan.json")
        task = read_task(folder / "plan.json", "local", core_share=way.share)
        batches = folder / "batches"
        batches.write_bytes(b"")
        with pinned(task.router_cores), actuators_of(way, effects):
            settings = ServerSettings(core_share=way.share)
            service = make_service(task, settings, None, Journal(), WallClock(origin_ns=0))
            work = under_load(service, walk(way.most, changes, rng), batches, effects, rng)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                done, answers = runner.run(work)
        ran = np.fromfile(batches, dtype=BATCH)
    return Seen(changes=done, batches=ran, answers=answers)


def unusable(way: Way) -> str:
    """Why a way cannot be tried here; empty where it can."""
    if way.most * way.share <= 1 and "cgroup" not in way.actuators:
        return "there is one processor"
    if way.loader == "onnx_net":
        missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
        return f"without {' and '.join(missing)}" if missing else ""
    checks = check_actuators()
    return next((f"{name}: {checks[name].why}" for name in way.actuators if not checks[name].works), "")


def main() -> None:
    parser = parser_of(__doc__, quick="twelve changes of each, to see that it works")
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(describe())
    processors = min(4, len(os.sched_getaffinity(0)))
    bars, rows = Bars(), list[Sequence[object]]()
    for way in ways(processors):
        why = unusable(way)
        if why:
            print(f"not tried here: {way.name} ({why})")
            continue
        seen = measured(way, 12 if options.quick else options.changes, options.seed)
        took_ms, answers = seen.effects_ms(way), seen.answers
        print(f"{way.name}: {len(took_ms)} changes, {len(seen.batches)} batches", flush=True)
        as_asked = np.mean([way.holds(first_after(change, seen.batches), change.cores) for change in seen.changes])
        within, lost = float((took_ms <= LONGEST_EFFECT_MS).mean()), answers.sent - answers.answered
        figures = [f"{value:.2f}" for value in (*np.percentile(took_ms, [50, 95, 99]), took_ms.max())]
        metered = np.mean([metered_effect_ms(change, seen.batches) <= LONGEST_EFFECT_MS for change in seen.changes])
        between = sum(began_between(change, seen.batches, way) for change in seen.changes)
        rows.append(
            (way.name, way.most, len(took_ms), *figures, f"{within:.1%}", between, f"{metered:.1%}", answers.sent, lost)
        )
        bars.at_least(f"{way.name}: share of changes within {LONGEST_EFFECT_MS:g} ms", within, 1.0)
        bars.at_least(f"{way.name}: share whose first batch saw what was asked for", float(as_asked), 1.0)
        bars.at_most(f"{way.name}: requests not answered", lost, 0)
    times = "median, ms", "p95", "p99", "longest", f"within {LONGEST_EFFECT_MS:g} ms"
    print_table(("way", "counts", "changes", *times, "an old batch between", "metered", "requests", "lost"), rows)
    print(bars)


if __name__ == "__main__":
    main()
