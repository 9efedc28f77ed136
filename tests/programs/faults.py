"""Faults under load: whatever happens to workers, clients and the server, each accepted request is answered once.

Each round starts a real server (`gearshift serve`, two devices, workers as processes), loads it over real sockets, and
lets one fault happen at a moment that the seed chooses.  A request's answer carries the request's own number back, and
at the end of a connection nothing may be left in it; at the end of a round the server's own counts must add up too.

`refused` are 429 and 503, and connections that a closing server did not take; `vanished` are requests whose client
has gone; `lost` got no answer, `doubled` a second one or another's.  Both must be 0.  `retries` are batches of rows
that were running when their worker ended, `refined` those of rows that had an answer already.  Every fault has a
process here, so that nothing is emulated.  With `--graphs` each pipeline is a graph (`fault_graphs.py`), with
`--refine` the plan refines rows while there is time.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import msgspec
import numpy as np

from benchmarks.shared.machine import describe
from gearshift.cascade import Cascade, ExpectedGain
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Device, Hardware
from gearshift.model import TensorSpec
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.store import write_profile
from gearshift.v2 import grpc_messages_pb2 as pb
from tests.programs import fault_graphs

LONGEST_S = 60.0
LARGEST_BATCH = 8
CLIENTS = 16
HANG_S = 1.0
PAUSE_S = 0.02
REPLICAS_OF_WORKER = (1, 2)
"""Of each pipeline."""
SERVED = ["faults"]
"""The pipelines; `--pipelines` adds more, with models of their own on the same devices."""
GRAPHS = list[bool]()
"""Not empty where the pipelines are graphs."""
REFINES = list[bool]()
"""Not empty where the plan refines rows while there is time; the plan of swaps then has gears alone."""
MEMORY = Path("/sys/fs/cgroup/memory")
"""Control groups that bound memory, where the machine has them (version 1) and lets this user make some."""
MOST_MEMORY_BYTES = 256 << 20

# What is served ------------------------------------------------------------------------------------------------------

CERTAIN, FORWARDED, POISON, KILLED_ONCE, HANGS, TAKES_MEMORY_ONCE = range(6)
"""What `small` does with a row by its second number; the third is how many seconds it takes."""

PROJECT = """
operator = "{name}"
samples = "task.py:samples"
[models.{small}]
load = "task.py:small"
[models.{large}]
load = "task.py:large"
"""

TASK = """
import os, pathlib, signal, time
import numpy as np

def first_time(number):
    once = pathlib.Path(__file__).with_name(f"begun-{int(number)}")
    if once.exists():
        return False
    once.touch()
    return True

def small():
    def model(x):
        for number, what, seconds in x.tolist():
            if what == 2:
                os.kill(os.getpid(), signal.SIGSEGV)
            if what == 3 and first_time(number):
                os.kill(os.getpid(), signal.SIGKILL)
            if what == 5 and first_time(number):
                np.ones(1 << 30, np.uint8)
            if what == 4:
                time.sleep(3600)
            time.sleep(seconds)
        return {"number": x[:, 0]}, np.where(x[:, 1] == 1, 0.0, 1.0)
    return model

def large():
    return lambda x: ({"number": x[:, 0]}, np.ones(len(x)))
"""


def models_of(name: str) -> tuple[str, str]:
    return ("small", "large") if name == "faults" else (f"{name}-small", f"{name}-large")


def replicas_of(worker: int) -> int:
    """Of all pipelines."""
    return len(SERVED) * (fault_graphs.REPLICAS_OF_WORKER if GRAPHS else REPLICAS_OF_WORKER)[worker]


def write_world(folder: Path) -> Path:
    """Project and profile of each pipeline, and the plan; its path.

    `small` is on both devices, `large` on the second.  To Ray the devices are on two nodes; to worker processes of one
    machine that is all the same.
    """
    if GRAPHS:
        return fault_graphs.write_graph_world(folder, SERVED, TASK, OTHER_PLAN)
    sha256 = {name: write_task(folder / name, name) for name in SERVED}
    placed = [(f"{model}-{at}", model, f"cpu-{at}") for name in SERVED for model, at in placed_of(name)]
    plan = GearPlan(
        planner="by hand",
        hardware=Hardware(devices=(Device(id="cpu-0", node="first"), Device(id="cpu-1", node="second"))),
        placement=Placement(
            replicas=tuple(Replica(id=replica, model=model, device_ids=(device,)) for replica, model, device in placed)
        ),
        pipelines={name: pipeline_of(name, [(replica, model) for replica, model, _ in placed]) for name in SERVED},
        profiles={name: SourceFile(path=f"{name}/profile", sha256=sha256[name]) for name in SERVED},
        traces={name: SourceFile(path="trace.csv", sha256="") for name in SERVED},
    )
    write_plan(plan, folder / OTHER_PLAN)
    write_plan(refining(plan) if REFINES else plan, folder / "plan.json")
    return folder / "plan.json"


def refining(plan: GearPlan) -> GearPlan:
    """The plan with rows of all pipelines refined until a tenth of a second after they came."""
    changed = {}
    for name, pipeline in plan.pipelines.items():
        small, large = models_of(name)
        changed[name] = msgspec.structs.replace(
            pipeline,
            gears=tuple(msgspec.structs.replace(gear, order="gain") for gear in pipeline.gears),
            gains=(ExpectedGain(kept=small, later=large, certainty=(0.0, 0.5), gain=(0.5, 0.0)),),
        )
    return msgspec.structs.replace(plan, pipelines=changed)


def placed_of(name: str) -> list[tuple[str, int]]:
    """The models of a pipeline, and the numbers of their devices."""
    small, large = models_of(name)
    return [(small, 0), (small, 1), (large, 1)]


def pipeline_of(name: str, placed: Sequence[tuple[str, str]]) -> PipelinePlan:
    small, large = models_of(name)
    shares = {small: 0.5, large: 1.0}
    gear = Gear(
        load_range=LoadRange(from_=0),
        cascades=alone(name, Cascade(models=(small, large), thresholds=(0.5,))),
        replicas=tuple(
            ReplicaSettings(replica=replica, load_share=shares.get(model, 0.0), largest_batch_size=LARGEST_BATCH)
            for replica, model in placed
        ),
    )
    return PipelinePlan(
        nodes={name: Node(operator=name)}, output=name, objective=Objective(latency_s=0.1), gears=(gear,)
    )


def write_task(folder: Path, name: str) -> str:
    """Write the project and the profile of a pipeline's operator; the profile's hash."""
    folder.mkdir()
    models = models_of(name)
    (folder / "gearshift.toml").write_text(PROJECT.format(name=name, small=models[0], large=models[1]))
    (folder / "task.py").write_text(TASK)
    quality = np.tile([0.0, 1.0, 1.0, 0.0], (2, 2))
    profile = Profile(
        operator=name,
        curves=tuple(
            RunTimeCurve(model=model, batch_sizes=(1, LARGEST_BATCH), median_s=(0.001, 0.002), p95_s=(0.001, 0.002))
            for model in models
        ),
        predictions=PredictionRecords(
            models=models, quality=quality, certainty=quality, part=np.array([0, 0, 0, 0, 1, 1, 1, 1], dtype=np.int8)
        ),
        inputs=(TensorSpec(name="x", datatype="FP64", shape=(-1, 3)),),
        outputs=(TensorSpec(name="number", datatype="FP64", shape=(-1,)),),
        project="../gearshift.toml",
    )
    return write_profile(profile, folder / "profile").sha256


OTHER_PLAN = "other.json"


def served_by(number: int) -> str:
    """The pipeline that a request's number goes to."""
    return SERVED[number % len(SERVED)]


FRONT_END = b"gearshift.serving.front_ends.front_end"

# The server ----------------------------------------------------------------------------------------------------------


class Server:
    """`gearshift serve` in a process of its own, its address, its workers and its metrics."""

    def __init__(self, process: asyncio.subprocess.Process, said: asyncio.StreamReader) -> None:
        self.process, self._said = process, said
        self.host, self.port, self.grpc = "", 0, ""
        self.lines: list[str] = []
        self._reading: asyncio.Task[None] | None = None

    async def ready(self) -> None:
        """Until it serves; raises `RuntimeError` with what it said when it ends instead."""
        while line := (await self._said.readline()).decode():
            self.lines.append(line)
            if found := re.search(rf"serving {', '.join(SERVED)} at http://([\d.]+):(\d+)(?: and grpc://(\S+))?", line):
                self.host, self.port, self.grpc = found[1], int(found[2]), found[3] or ""
                self._reading = asyncio.create_task(self._read())
                return
        raise RuntimeError(f"the server has ended: {self.lines}")

    async def _read(self) -> None:
        while line := (await self._said.readline()).decode():
            self.lines.append(line)

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal where it still runs, and wait for its exit status."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        status = await asyncio.wait_for(self.process.wait(), LONGEST_S)
        if self._reading is not None:
            await self._reading
        return status

    def workers(self) -> list[int]:
        """Process ids, those of the first device first (it has the highest core)."""
        pid = self.process.pid
        found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return sorted(found, key=lambda worker: -max(os.sched_getaffinity(worker)))

    def front_ends(self) -> list[int]:
        """Process ids, where there are several."""
        found = []
        for pid in self.workers():
            with suppress(FileNotFoundError):  # it has just ended
                if FRONT_END in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    async def get(self, path: str, posted: str | None = None) -> tuple[int, str]:
        """Status and body of a GET, or of a POST of what is `posted`."""
        connection = await Connection.open(self)
        method, body = ("GET", "") if posted is None else ("POST", posted)
        try:
            connection.writer.write(
                f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
            )
            return await connection.answer()
        finally:
            connection.writer.close()

    async def metric(self, name: str) -> float:
        """The sum over all labels of what begins with `name`."""
        _, text = await self.get("/metrics")
        return sum(float(value) for value in re.findall(rf"(?m)^{re.escape(name)}[{{ ].*?([\d.e+]+)$", text))

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Ask until it holds; raises `TimeoutError` after `LONGEST_S`."""
        async with asyncio.timeout(LONGEST_S):
            while not await holds():
                await asyncio.sleep(0.02)

    async def is_whole(self) -> bool:
        """Whether all replicas serve."""
        return await self.metric("gearshift_replicas_ready") == replicas_of(0) + replicas_of(1)

    async def has_lost(self, replicas: float) -> bool:
        """Whether so many replicas have ended since the start."""
        return await self.metric("gearshift_restarts_total") >= replicas


@asynccontextmanager
async def serving(folder: Path, *options: str, world: Callable[[Path], Path] = write_world) -> AsyncIterator[Server]:
    """A server of this world's plan that looks at its workers often, for the time of a round."""
    settings = ("--port", "0", "--probe-s", "0.3", "--shortest-hang-s", str(HANG_S), *options)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gearshift", "serve", str(world(folder)), *settings),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    server = Server(process, process.stderr)
    try:
        await server.ready()
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        await server.end()


# Clients -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """What became of requests; `reasons` counts the failures by their text without numbers."""

    rounds: int = 0
    requests: int = 0
    answered: int = 0
    degraded: int = 0
    failed: int = 0
    refused: int = 0
    vanished: int = 0
    lost: int = 0
    doubled: int = 0
    retries: int = 0
    refined: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    COUNTS = (
        "rounds",
        "requests",
        "answered",
        "degraded",
        "failed",
        "refused",
        "vanished",
        "lost",
        "doubled",
        "retries",
        "refined",
    )

    def add(self, other: "Tally") -> None:
        """Add another's counts."""
        for name in self.COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count

    @property
    def sound(self) -> bool:
        """Whether each request had exactly one end, and none was lost or doubled."""
        ends = self.answered + self.degraded + self.failed + self.refused + self.vanished
        return self.requests == ends and self.lost == self.doubled == 0


class Connection:
    """One HTTP connection, on which a request is sent once the one before is answered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, server: Server) -> "Connection":
        """Connect; raises `OSError` where the server does not listen."""
        return cls(*await asyncio.open_connection(server.host, server.port))

    def ask(self, number: int, what: int = CERTAIN, seconds: float = 0.0) -> None:
        """Send a request of one row."""
        tensor = {"name": "x", "datatype": "FP64", "shape": [1, 3], "data": [number, what, seconds]}
        body = json.dumps({"id": str(number), "inputs": [tensor]}).encode()
        path = f"/v2/models/{served_by(number)}/infer"
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)

    async def answer(self) -> tuple[int, str]:
        """Status and body; raises `EOFError` or `OSError` where the connection ends before, `TimeoutError`."""
        async with asyncio.timeout(LONGEST_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            length = int(re.search(r"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
            return int(head.split()[1]), (await self.reader.readexactly(length)).decode()

    async def rest(self) -> bytes:
        """What is still sent on it after its last answer, until the server closes it too."""
        try:
            self.writer.write_eof()
            async with asyncio.timeout(LONGEST_S):
                return await self.reader.read()
        except OSError:
            return b""
        finally:
            self.writer.close()


class Load:
    """Clients and what became of their requests; with `breaks`, connections may end, and those on them vanish."""

    def __init__(self, server: Server, rng: random.Random, *, breaks: bool = False) -> None:
        self.server, self.rng, self.breaks = server, rng, breaks
        self.tally = Tally()
        self.stopping = asyncio.Event()
        self.progress = asyncio.Event()
        self._clients: list[asyncio.Task[None]] = []
        self._numbers = 0

    def next_number(self) -> int:
        """A number that no other request of the round has."""
        self._numbers += 1
        return self._numbers

    def start(self, clients: int = CLIENTS, *, forwarded: float = 0.3, seconds: float = 0.002) -> None:
        """Clients that ask again and again until `stop`; some requests go on to `large`, and each row takes a while."""
        for _ in range(clients):
            self._clients.append(asyncio.create_task(self._client(forwarded, seconds)))

    async def _client(self, forwarded: float, seconds: float) -> None:
        connection = await self._connected()
        while not self.stopping.is_set():
            what = FORWARDED if self.rng.random() < forwarded else CERTAIN
            status = await self.ask(connection, what, seconds)
            if status == 0:
                connection.writer.close()
                connection = await self._connected()
            elif status != 200:
                await asyncio.sleep(PAUSE_S)
        await self.close(connection)

    async def _connected(self) -> Connection:
        """A connection; where connections may end, nobody may listen for a moment, as all front ends are gone."""
        async with asyncio.timeout(LONGEST_S):
            while True:
                try:
                    return await Connection.open(self.server)
                except ConnectionError:
                    if not self.breaks:
                        raise
                    await asyncio.sleep(PAUSE_S)

    def start_calls(self, clients: int) -> None:
        """As `start`, over gRPC."""
        self._clients += [asyncio.create_task(self._caller()) for _ in range(clients)]

    async def _caller(self) -> None:
        async with grpc.aio.insecure_channel(self.server.grpc) as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", None, None)
            while not self.stopping.is_set():
                number = self.next_number()
                self.tally.requests += 1
                tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP64", shape=[1, 3])
                row = np.array([number, self.rng.choice([CERTAIN, FORWARDED]), 0.002]).tobytes()
                asked = pb.ModelInferRequest(model_name=served_by(number), inputs=[tensor], raw_input_contents=[row])
                try:
                    data = await infer(asked.SerializeToString(), timeout=LONGEST_S)
                except grpc.aio.AioRpcError as error:
                    self._count_error(error)
                    await asyncio.sleep(PAUSE_S)
                else:
                    self._count_call(number, pb.ModelInferResponse.FromString(data))
                self.progress.set()

    def _count_error(self, error: grpc.aio.AioRpcError) -> None:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
            self.tally.refused += 1
        elif error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            self.tally.lost += 1
        else:
            self._count_failed(f"{error.code().name}: {error.details()}")

    def _count_call(self, number: int, answer: pb.ModelInferResponse) -> None:
        if list(answer.raw_output_contents) != [np.float64(number).tobytes()]:
            self.tally.doubled += 1
        elif answer.parameters["outcome"].string_param == "degraded":
            self.tally.degraded += 1
        else:
            self.tally.answered += 1

    async def ask(
        self, connection: Connection, what: int = CERTAIN, seconds: float = 0.0, *, taken: bool = True
    ) -> int:
        """Ask and count the end; the status, see `count_answer`."""
        number = self.next_number()
        self.tally.requests += 1
        connection.ask(number, what, seconds)
        return await self.count_answer(connection, number, taken=taken)

    async def count_answer(self, connection: Connection, number: int, *, taken: bool = True) -> int:
        """Count how request `number` ends, and answer the status, 0 where the connection is of no use any more.

        One that may not have been `taken` is refused by a closed connection.
        """
        try:
            status, text = await connection.answer()
        except (EOFError, OSError):
            if self.breaks:
                self.tally.vanished += 1
            elif taken:
                self.tally.lost += 1
            else:
                self.tally.refused += 1
            return 0
        except TimeoutError:
            self.tally.lost += 1
            return 0
        finally:
            self.progress.set()
        self._count(number, status, json.loads(text))
        return status

    def _count(self, number: int, status: int, answer: dict[str, Any]) -> None:
        tally = self.tally
        if status == 200:
            told = answer["model_name"], answer["id"], answer["outputs"][0]["data"]
            right = told == (served_by(number), str(number), [number])
            if not right:
                tally.doubled += 1
            elif answer["parameters"]["outcome"] == "degraded":
                tally.degraded += 1
            else:
                tally.answered += 1
        elif status in (429, 503):
            tally.refused += 1
        else:
            self._count_failed(f"{status}: {answer['error']}")

    def _count_failed(self, told: str) -> None:
        self.tally.failed += 1
        reason = re.sub(r" \(id [0-9a-f]+\)$", "", told)
        self.tally.reasons[reason] = self.tally.reasons.get(reason, 0) + 1

    async def close(self, connection: Connection) -> None:
        """End a connection, in which nothing may be left."""
        if await connection.rest():
            self.tally.doubled += 1

    async def until_answered(self, more: int) -> None:
        """Until so many more requests have been answered."""
        wanted = self.tally.answered + self.tally.degraded + more
        async with asyncio.timeout(LONGEST_S):
            while self.tally.answered + self.tally.degraded < wanted:
                self.progress.clear()
                await self.progress.wait()

    async def stop(self) -> None:
        """End the clients when what they have asked is answered."""
        self.stopping.set()
        await asyncio.gather(*self._clients)

    async def check_the_server_s_own_count(self) -> None:
        """Until the server counts as many ends as there were requests; else `TimeoutError`."""

        async def adds_up() -> bool:
            return await self.server.metric("gearshift_requests_total") == self.tally.requests

        await self.server.until(adds_up)
        _, text = await self.server.get("/metrics")
        self.tally.retries = batches(text, "retry")
        self.tally.refined = batches(text, "refine")


def batches(metrics: str, reason: str) -> int:
    """Those that started for this reason."""
    name = r"(?m)^gearshift_batches_total\{.*"
    return sum(int(float(count)) for count in re.findall(rf'{name}reason="{reason}"}} ([\d.e+]+)', metrics))


# Faults --------------------------------------------------------------------------------------------------------------

Fault = Callable[[Server, Load], Awaitable[None]]
Round = Callable[[Path, random.Random], Awaitable[Tally]]


async def with_load(
    folder: Path, rng: random.Random, faults: Sequence[Fault], *options: str, callers: int = 0
) -> Tally:
    """A round: load, of so many `callers` over gRPC too, each fault at a random moment, and an orderly end."""
    async with serving(folder, *options) as server:
        load = Load(server, rng)
        load.start()
        load.start_calls(callers)
        for fault in faults:
            await load.until_answered(rng.randrange(1, 300))
            await fault(server, load)
            await server.until(server.is_whole)
        await load.until_answered(50)
        await load.stop()
        await load.check_the_server_s_own_count()
        status = await server.end()
        assert status == 0, f"the server ended with {status}: {server.lines}"
    return load.tally


async def kill(server: Server, load: Load) -> None:
    """Kill -9 of one worker, or of both."""
    workers = server.workers()
    lost = await server.metric("gearshift_restarts_total")
    for worker in load.rng.choice([[0], [1], [0, 1]]):
        os.kill(workers[worker], signal.SIGKILL)
        lost += replicas_of(worker)
    await server.until(lambda: server.has_lost(lost))


async def stop(server: Server, load: Load) -> None:
    """SIGSTOP of a worker."""
    lost = await server.metric("gearshift_restarts_total")
    os.kill(load.rng.choice(server.workers()), signal.SIGSTOP)
    await server.until(lambda: server.has_lost(lost + 1))


async def kill_for_memory(server: Server, load: Load) -> None:
    """A worker is killed while it runs a request that passes the second time; SIGKILL stands in for the kernel's."""
    assert await ask_until_let_in(server, load, KILLED_ONCE) == 200


async def exceed_memory(server: Server, load: Load) -> None:
    """A request for which a worker takes more memory than its limit, so that the kernel kills it; later it passes."""
    groups = [MEMORY / f"gearshift-faults-{worker}" for worker in server.workers()]
    try:
        for group, worker in zip(groups, server.workers(), strict=True):
            group.mkdir()
            (group / "memory.limit_in_bytes").write_text(str(MOST_MEMORY_BYTES))
            (group / "cgroup.procs").write_text(str(worker))
        assert await ask_until_let_in(server, load, TAKES_MEMORY_ONCE) == 200
        killed = [re.search(r"oom_kill ([0-9]+)", (group / "memory.oom_control").read_text()) for group in groups]
        assert sorted(int(found[1]) for found in killed if found) == [0, 1], "the kernel killed no worker"
    finally:
        for group in groups:
            if group.exists():
                for member in (group / "cgroup.procs").read_text().split():
                    (MEMORY / "cgroup.procs").write_text(member)
                group.rmdir()


async def swap_and_kill(server: Server, load: Load) -> None:
    """A swap to the plan that is not in force, and kill -9 of any worker, of the old or of the new, meanwhile."""
    names = {"plan.json", OTHER_PLAN}
    before = await plan_in_force(server)
    wanted = (names - {before}).pop()
    swapping = asyncio.create_task(server.get("/v2/gearshift/swap", json.dumps({"plan": wanted})))
    await load.until_answered(load.rng.randrange(0, 150))
    with suppress(ProcessLookupError):  # it may have just ended in order
        os.kill(load.rng.choice(server.workers()), signal.SIGKILL)
    status, said = await swapping
    assert status in (200, 409), said
    assert await plan_in_force(server) == (wanted if status == 200 else before)


async def plan_in_force(server: Server) -> str:
    """Its file's name."""
    return Path(json.loads((await server.get("/v2/gearshift/status"))[1])["plan"]["path"]).name


async def poison(server: Server, load: Load) -> None:
    """One or two requests that end every worker that runs them; they alone fail."""
    killers = load.rng.choice([1, 1, 2])
    statuses = await asyncio.gather(*(ask_until_let_in(server, load, POISON) for _ in range(killers)))
    assert statuses == [500] * killers == [500] * load.tally.failed, load.tally
    assert all("ended while they ran this request" in reason for reason in load.tally.reasons), load.tally.reasons


async def hang(server: Server, load: Load) -> None:
    """A request that never ends in the model; its workers are killed for it, and it alone fails."""
    failed = load.tally.failed
    assert await ask_until_let_in(server, load, HANGS) == 500
    assert load.tally.failed == failed + 1, load.tally


async def raise_in_model(server: Server, load: Load) -> None:
    """Requests on which a model raises: of an optional node it degrades the answer, of another it alone fails."""
    degraded, failed = load.tally.degraded, load.tally.failed
    assert await ask_until_let_in(server, load, fault_graphs.NOTE_RAISES) == 200
    assert load.tally.degraded > degraded
    assert await ask_until_let_in(server, load, fault_graphs.SMALL_RAISES) == 500
    assert load.tally.failed == failed + 1, load.tally


async def kill_later_stage(server: Server, load: Load) -> None:
    """Kill -9 of the only worker of the later stage."""
    lost = await server.metric("gearshift_restarts_total")
    os.kill(server.workers()[1], signal.SIGKILL)
    await server.until(lambda: server.has_lost(lost + replicas_of(1)))


async def ask_until_let_in(server: Server, load: Load, what: int) -> int:
    """Ask until it is not refused; the status."""
    connection = await Connection.open(server)
    status = 503
    while status == 503:
        status = await load.ask(connection, what)
    await load.close(connection)
    return status


def under_load(fault: Fault) -> Round:
    """Rounds of this fault."""
    return lambda folder, rng: with_load(folder, rng, [fault])


# Rounds of their own -------------------------------------------------------------------------------------------------


async def lost_stage(folder: Path, rng: random.Random, policies: Sequence[str] = ("degrade", "refuse")) -> Tally:
    """The later stage is lost, with one of `policies`."""
    policy = rng.choice(policies)
    tally = await with_load(folder, rng, [kill_later_stage], "--lost-stage", policy)
    assert policy == "degrade" or tally.degraded == 0
    return tally


async def swaps(folder: Path, rng: random.Random) -> Tally:
    """Two swaps under HTTP and gRPC clients, in each of which a worker is killed."""
    options = ("--plans", str(folder), "--grpc-port", "0")
    return await with_load(folder, rng, [swap_and_kill] * 2, *options, callers=CLIENTS // 2)


async def memory_limit(folder: Path, rng: random.Random) -> Tally:
    """A worker over its limit; the kernel may take its time to kill it, which must not count as hanging."""
    return await with_load(folder, rng, [exceed_memory], "--shortest-hang-s", "30")


async def stop_idle(folder: Path, rng: random.Random) -> Tally:
    """SIGSTOP of a worker that nobody asks for anything; no request must meet it."""
    async with serving(folder) as server:
        load = Load(server, rng)
        await stop(server, load)
        await server.until(server.is_whole)
        load.start()
        await load.until_answered(50)
        await load.stop()
        assert load.tally.failed == load.tally.refused == 0, "a request met the stopped worker"
        await load.check_the_server_s_own_count()
        assert await server.end() == 0
    return load.tally


async def vanish(folder: Path, rng: random.Random) -> Tally:
    """Half of many clients close their connections at once while their requests wait or run, others in a body."""
    async with serving(folder) as server:
        load = Load(server, rng)
        connections = [await Connection.open(server) for _ in range(2 * CLIENTS)]
        numbers = [load.next_number() for _ in connections]
        load.tally.requests += len(connections)
        for connection, number in zip(connections, numbers, strict=True):
            connection.ask(number, rng.choice([CERTAIN, FORWARDED]), 0.02)
        some = rng.randrange(0, CLIENTS)
        await server.until(lambda: are_in(server, len(numbers)))
        await server.until(lambda: have_begun(server, some))
        gone = set(rng.sample(range(len(connections)), CLIENTS))
        for i in gone:
            connections[i].writer.transport.abort()
        for _ in range(CLIENTS // 2):
            half = await Connection.open(server)
            half.writer.write(
                b"POST /v2/models/faults/infer HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{"
            )
            await half.writer.drain()
            half.writer.transport.abort()
        load.tally.vanished += len(gone)
        stay = [i for i in range(len(connections)) if i not in gone]
        await asyncio.gather(*(load.count_answer(connections[i], numbers[i]) for i in stay))
        for i in stay:
            await load.close(connections[i])
        load.start()
        await load.until_answered(50)
        await load.stop()
        await load.check_the_server_s_own_count()
        assert await server.end() == 0
    return load.tally


async def have_begun(server: Server, samples: int) -> bool:
    """Whether batches of `small`, or of graphs' first node, have taken so many samples."""
    first = [f"{fault_graphs.prefix_of(name)}split" if GRAPHS else models_of(name)[0] for name in SERVED]
    begun = [await server.metric(f'gearshift_batch_size_sum{{model="{model}"}}') for model in first]
    return sum(begun) >= samples


async def are_in(server: Server, samples: int) -> bool:
    """Whether so many samples wait or were taken by a batch; of graphs, whether so many requests came."""
    if GRAPHS:
        came = json.loads((await server.get("/v2/gearshift/status"))[1])["open_requests"]
        return came + int(await server.metric("gearshift_requests_total")) >= samples
    return await have_begun(server, samples - int(await server.metric("gearshift_waiting_requests")))


async def shutdown(
    folder: Path, rng: random.Random, hits: Sequence[int | None] = (None, signal.SIGKILL, signal.SIGSTOP)
) -> Tally:
    """SIGTERM while batches run and queues are full, perhaps with a worker that has just been killed or stopped.

    What was accepted is answered, what comes then is refused.
    """
    async with serving(folder) as server:
        load = Load(server, rng)
        connections = [await Connection.open(server) for _ in range(2 * CLIENTS)]
        late = [await Connection.open(server) for _ in range(CLIENTS)]
        numbers = [load.next_number() for _ in connections]
        load.tally.requests += len(connections)
        for connection, number in zip(connections, numbers, strict=True):
            connection.ask(number, CERTAIN, rng.choice([0.01, 0.03]))
        await server.until(lambda: are_in(server, len(numbers)))
        if hit := rng.choice(hits):
            os.kill(rng.choice(server.workers()), hit)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.gather(
            *(load.count_answer(connection, number) for connection, number in zip(connections, numbers, strict=True)),
            *(load.ask(connection, taken=False) for connection in late),
        )
        for connection in (*connections, *late):
            await load.close(connection)
        assert await server.end() == 0
        assert load.tally.answered >= len(connections)
    return load.tally


async def kill_front_end(server: Server, load: Load) -> None:
    """Kill -9 of one front end, or of both."""
    before = server.front_ends()
    killed = load.rng.choice([before[:1], before[1:], before])
    for front_end in killed:
        os.kill(front_end, signal.SIGKILL)

    async def are_back() -> bool:
        now = server.front_ends()
        return len(now) == len(before) and not set(killed) & set(now)

    await server.until(are_back)


async def front_ends(folder: Path, rng: random.Random) -> Tally:
    """Front ends are killed with their clients' requests: the router lets go of these, and answers all others once."""
    async with serving(folder, "--front-ends", "2") as server:
        load = Load(server, rng, breaks=True)
        load.start()
        for _ in range(2):
            await load.until_answered(rng.randrange(1, 300))
            await kill_front_end(server, load)
        await load.until_answered(50)
        await load.stop()

        async def adds_up() -> bool:
            counted = await server.metric("gearshift_requests_total")
            return load.tally.requests - load.tally.vanished <= counted <= load.tally.requests

        await server.until(adds_up)
        assert json.loads((await server.get("/v2/gearshift/status"))[1])["held_bytes"] == 0
        assert await server.end() == 0
    return load.tally


async def full(folder: Path, rng: random.Random) -> Tally:
    """Far more requests than may wait: some are refused, all others answered."""
    async with serving(folder, "--most-waiting-requests", str(rng.randrange(2, 20))) as server:
        load = Load(server, rng)
        load.start(6 * CLIENTS, seconds=0.005)
        await load.until_answered(200)
        await load.stop()
        assert load.tally.refused > 0, "the queue was never full"
        await load.check_the_server_s_own_count()
        assert await server.end() == 0
    return load.tally


KINDS: dict[str, Round] = {
    "worker killed (kill -9)": under_load(kill),
    "idle worker stopped (SIGSTOP)": stop_idle,
    "busy worker stopped (SIGSTOP)": under_load(stop),
    "worker killed for memory (SIGKILL in its place)": under_load(kill_for_memory),
    "poisonous requests": under_load(poison),
    "a request that hangs": under_load(hang),
    "later stage lost": lost_stage,
    "half of all clients vanish": vanish,
    "shutdown in a batch (SIGTERM)": shutdown,
    "full queues": full,
    "front ends killed (kill -9)": front_ends,
    "plan swaps, a worker killed in each (HTTP and gRPC)": swaps,
}
if os.access(MEMORY / "cgroup.procs", os.W_OK):
    KINDS["worker over its memory limit (killed by the kernel)"] = memory_limit


OF_GRAPHS: dict[str, Round] = {"models that raise": under_load(raise_in_model)}


async def run_round(kind: str, seed: int, rounds: dict[str, Round] = KINDS) -> Tally:
    """One round in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        tally = await rounds[kind](Path(folder), random.Random(f"{kind} {seed}"))
    tally.rounds = 1
    return tally


def table(tallies: dict[str, Tally]) -> str:
    """A line for each kind, and their sum."""
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    lines = ["| fault | " + " | ".join(Tally.COUNTS) + " |", "| --- |" + " ---: |" * len(Tally.COUNTS)]
    for kind, tally in {**tallies, "all": total}.items():
        lines.append(f"| {kind} | " + " | ".join(f"{getattr(tally, name):,}" for name in Tally.COUNTS) + " |")
    lines += [f"{count:,} x {reason}" for reason, count in sorted(total.reasons.items())]
    return "\n".join(lines)


def main(rounds: dict[str, Round] = KINDS) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200, help="in all, dealt out over the kinds")
    parser.add_argument("--longest-s", type=float, default=float("inf"), help="begin no round after so many seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--graphs", action="store_true", help="each pipeline is a graph")
    parser.add_argument("--refine", action="store_true", help="the plan refines rows; no graphs")
    parser.add_argument(
        "--kind", action="append", choices=sorted({**rounds, **OF_GRAPHS}), help="this kind alone; may be repeated"
    )
    parser.add_argument("--pipelines", type=int, default=1, help="how many the server has; requests go to them in turn")
    arguments = parser.parse_args()
    SERVED[1:] = [f"faults-{number}" for number in range(1, arguments.pipelines)]
    if arguments.refine and arguments.graphs:
        parser.error("--refine is of pipelines that are no graphs")
    REFINES[:] = [True] if arguments.refine else []
    if arguments.graphs:
        GRAPHS.append(True)
        rounds = {**rounds, **OF_GRAPHS}
    kinds = arguments.kind or list(rounds)
    tallies = {kind: Tally() for kind in kinds}
    begun, sound = time.monotonic(), True
    for number in range(arguments.rounds):
        if time.monotonic() - begun > arguments.longest_s:
            break
        kind = kinds[number % len(kinds)]
        seed = arguments.seed + number // len(kinds)
        try:
            tally = asyncio.run(run_round(kind, seed, rounds))
            tallies[kind].add(tally)
            wrong = "" if tally.sound else str(tally)
        except (AssertionError, TimeoutError, OSError, RuntimeError) as error:
            wrong = repr(error)
        if wrong:
            sound = False
            print(f"round {seed} of {kind!r} is not sound: {wrong}", file=sys.stderr)
        print(
            f"\r{number + 1}/{arguments.rounds} {time.monotonic() - begun:.0f} s", end="", file=sys.stderr, flush=True
        )
    print(file=sys.stderr)
    print(describe())
    print(table(tallies))
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
