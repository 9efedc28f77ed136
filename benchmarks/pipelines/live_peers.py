"""A live graph at rising load: ours beside compositions written by hand, over the same functions and models.

The graph is that of `gearshift init --pipeline`: strips are split, each digit is read by a network and, if doubtful, a
forest, and the digits are joined.  All models are on one core; client, router and generator are on another.

- gearshift: a plan of two gears, written by hand, that reads by the network alone above 0.7 of the load 1; over HTTP
- asyncio, sure and fast: a client that awaits functions in a worker process, as one writes it; by both models, or by
  the network alone; in the generator's process, without HTTP
- Ray actor, sure: the same composition over an actor of Ray's core

Load 1 is what the client by both models answers when it has always 4 requests open.  In time is within `LATENCY_S` of
being due.  Not here: Ray Serve, which needs more than the extra `ray` installs (starlette), and Triton, of whose server
pip has no package.
"""

import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import gearshift
from benchmarks.pipelines.strip_functions import THRESHOLD, Functions, begin, call
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_head
from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile
from gearshift.hardware import identical_devices
from gearshift.load_generator.replay import run_replay
from gearshift.load_generator.replay_result import Replay
from gearshift.load_generator.sources import LabelledSamples, source_from_samples
from gearshift.load_generator.targets import Counters, Reply, Target
from gearshift.model import Arrays
from gearshift.models.config import read_project
from gearshift.models.samples import load_samples
from gearshift.objective import Objective
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.pipelines.profile_folder import Profiles
from gearshift.serving.operate.child_server import ChildServer
from gearshift.support.processors import pinned
from gearshift.traces.generate import steady
from gearshift.workload import Workload, draw_workload

LATENCY_S = 0.5
LOADS = 0.3, 0.6, 0.9, 1.2, 1.8
SECONDS = 4.0
OPEN, ASKED = 4, 60
MODELS = ("split", "network", "forest", "join")
LEFT_OUT = ("logistic", "large_forest")

Call = Callable[[str, Any], Awaitable[Any]]


class Composed:
    """The graph as one writes it with asyncio; a target of the load generator."""

    where = "in this process"
    encoded_deadline_s: float | None = None

    def __init__(self, call: Call) -> None:
        self._call = call

    async def open(self) -> None:
        return

    def encode(self, inputs: Arrays) -> Arrays:
        return inputs

    async def exchange(
        self, request: Arrays, within_s: float, sent_unix_s: float | None = None, deadline_s: float | None = None
    ) -> Reply:
        parts = await self._call("split", request["strip"])
        labels = await asyncio.gather(*(self._call("read", part) for part in parts))
        return Reply(200, "", await self._call("join", list(labels)))

    async def counters(self) -> Counters:
        return Counters()

    async def close(self) -> None:
        return


@contextmanager
def in_pool(folder: Path, core: int, sure: bool) -> Iterator[Call]:
    of_worker = (str(folder), core, sure)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), begin, of_worker) as pool:
        yield lambda name, argument: asyncio.get_running_loop().run_in_executor(pool, call, name, argument)


@contextmanager
def in_ray(folder: Path, core: int, sure: bool) -> Iterator[Call]:
    import ray

    paths = {"env_vars": {"PYTHONPATH": os.pathsep.join((os.getcwd(), os.environ.get("PYTHONPATH", "")))}}
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=paths)
    try:
        actor = ray.remote(Functions).remote(str(folder), core, sure)

        async def call(name: str, argument: Any) -> Any:
            return await getattr(actor, name).remote(argument)

        yield call
    finally:
        ray.shutdown()


Worker = Callable[[Path, int, bool], AbstractContextManager[Call]]

PEERS: dict[str, tuple[Worker, bool]] = {
    "asyncio, sure": (in_pool, True),
    "asyncio, fast": (in_pool, False),
    "Ray actor, sure": (in_ray, True),
}


def make(folder: Path) -> tuple[Profiles, LabelledSamples]:
    """Project and profile of two of its models; the strips with their numbers."""
    project, _ = gearshift.init(folder, pipeline=True)
    text = project.read_text().replace("longest_s = 2.0", "longest_s = 0.5")
    for model in LEFT_OUT:
        text = text.replace(f'[operators.read.models.{model}]\nload = "models.py:load_{model}"\n', "")
    project.write_text(text)
    profiles = gearshift.profile(folder, out=folder / "profile")
    samples = load_samples(read_project(project), folder, "digits")
    assert samples.labels is not None
    return profiles, source_from_samples(samples.arrays, samples.labels, "digits")


def plan_of(profiles: Profiles, edge_qps: float) -> GearPlan:
    """Both models below a load, the network alone from there on; all on one device."""
    hardware, pipeline = identical_devices(1), profiles.pipelines["digits"]
    replicas = tuple(Replica(id=model, model=model, device_ids=(hardware.devices[0].id,)) for model in MODELS)

    def gear(load_range: LoadRange, reading: Cascade) -> Gear:
        used = {"split", "join", *reading.models}
        of_node = {"split": Cascade(models=("split",)), "read": reading, "join": Cascade(models=("join",))}
        settings = [ReplicaSettings(replica=m, load_share=float(m in used), largest_batch_size=16) for m in MODELS]
        return Gear(load_range=load_range, cascades={n: (c,) for n, c in of_node.items()}, replicas=tuple(settings))

    gears = (
        gear(LoadRange(from_=0.0, to=edge_qps), Cascade(models=("network", "forest"), thresholds=(THRESHOLD,))),
        gear(LoadRange(from_=edge_qps), Cascade(models=("network",))),
    )
    return GearPlan(
        planner="by hand",
        hardware=hardware,
        placement=Placement(replicas=replicas),
        pipelines={
            "digits": PipelinePlan(
                nodes=pipeline.nodes,
                edges=pipeline.edges,
                output=pipeline.output,
                objective=Objective(latency_s=LATENCY_S),
                gears=gears,
            )
        },
        profiles={
            name: SourceFile(path=f"profile/{name}", sha256=one.sha256) for name, one in profiles.operators.items()
        },
        traces={"digits": SourceFile(path="", sha256="")},
    )


async def carried_qps(target: Composed, strips: Sequence[Arrays]) -> float:
    """Requests per second with always `OPEN` of them open."""
    waiting = iter(strips)

    async def ask_all() -> None:
        for strip in waiting:
            await target.exchange(strip, 30.0)

    began_s = time.monotonic()
    await asyncio.gather(*(ask_all() for _ in range(OPEN)))
    return len(strips) / (time.monotonic() - began_s)


def workloads(source: LabelledSamples, one_qps: float) -> list[Workload]:
    records = np.arange(len(source.labels), dtype=np.int32)
    traces = [steady(load * one_qps, SECONDS, seed=number) for number, load in enumerate(LOADS)]
    return [draw_workload(trace, records, seed=number) for number, trace in enumerate(traces)]


def tell(name: str, target: str | Target, made: Sequence[Workload], source: LabelledSamples) -> None:
    """Send all loads, one after another, and print a row for each."""
    warm = draw_workload(steady(5.0, 1.0, seed=99), np.arange(20, dtype=np.int32), seed=99)
    run_replay(target, warm, source, slo_s=LATENCY_S)
    for load, workload in zip(LOADS, made, strict=True):
        run: Replay = run_replay(target, workload, source, slo_s=LATENCY_S)
        result = run.result
        latency = f"{1e3 * result.latency_s.p50:.0f} | {1e3 * result.latency_s.p95:.0f}"
        shares = f"{1 - result.share_late:.1%} | {result.share_refused:.1%} | {result.accuracy:.1%}"
        qps = len(workload) / SECONDS
        print(f"| {name} | {load:g} ({qps:.0f}/s) | {latency} | {shares} | {run.valid} |", flush=True)


def main() -> None:
    parser_of(__doc__).parse_args()
    print(describe())
    cores = sorted(os.sched_getaffinity(0))
    front, model = frozenset(cores[:1]), cores[-1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profiles, source = make(folder)
        strips = [source.inputs(record) for record in range(ASKED)]
        with pinned(front), in_pool(folder, model, True) as composed:
            asyncio.run(carried_qps(Composed(composed), strips[:OPEN]))  # loads the models
            one_qps = asyncio.run(carried_qps(Composed(composed), strips))
        made = workloads(source, one_qps)
        print_head("| by | load | p50 in ms | p95 | in time | refused | right, of answered | generator in time |")
        write_plan(plan_of(profiles, 0.7 * one_qps), folder / "plan.json")
        with ChildServer(folder / "plan.json") as server, pinned(front):
            tell("gearshift", server.url, made, source)
        for peer, (begun, sure) in PEERS.items():
            with begun(folder, model, sure) as composed, pinned(front):
                tell(peer, Composed(composed), made, source)


if __name__ == "__main__":
    main()
