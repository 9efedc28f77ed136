"""Run the front end while models are timed: its cost per request, and its cost to batches.

The real HTTP front end runs in the event loop that times the models, over a model that answers at
once.  A client in its own process (`python -m gearshift.measuring.front_end_time URL PARENT`) first sends as
fast as it can, to measure this process's time per request, then at `REQUESTS_PER_S`, and measures
latency.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from time import process_time

import msgspec
import numpy as np

from gearshift.client.http_client import HttpClient
from gearshift.client.v2_client import json_tensor
from gearshift.clock import NS_PER_S, WallClock, to_ns
from gearshift.errors import InvalidInput, NoAnswer
from gearshift.measuring.measured_models import FrontEndTime
from gearshift.measuring.turnaround import LABEL, OPERATOR, OneBatch, plan_of_one_model
from gearshift.model import spec_of
from gearshift.models.samples import Samples
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import plan_tables
from gearshift.runtime.backends.base import Batch
from gearshift.runtime.service.service import Service
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.signature import Signature
from gearshift.serving.door.sockets import bound_socket
from gearshift.serving.http.application import Application
from gearshift.serving.http.handlers import Handlers
from gearshift.serving.http.server import HttpServer
from gearshift.serving.operate.control import Control
from gearshift.support.fine_timer import FineSleeper
from gearshift.support.process_end import die_with_parent

LARGEST_BATCH_SIZE = 32
REQUESTS_PER_S = 200
BODIES = 64
LONGEST_S = 5.0
AT_ONCE, BURST_S = 32, 0.5

_encoder, _decoder = msgspec.json.Encoder(), msgspec.json.Decoder(list[str])


@asynccontextmanager
async def front_end_beside(samples: Samples, service: Service | None = None) -> AsyncIterator[FrontEndTime]:
    """Run the front end, under requests for `samples`, during the block; then `mean_s` is set.

    `router_s` is set before the block begins.  `service`, of operator `OPERATOR`, answers; it is
    started and stopped here.  By default a model that answers at once does.  If samples cannot be
    sent as JSON, nothing is sent and `mean_s` stays 0.
    """
    time = FrontEndTime()
    bodies = _bodies(samples)
    if not bodies:
        yield time
        return
    if service is None:
        tables = plan_tables(plan_of_one_model(LARGEST_BATCH_SIZE))
        service = Service(tables, _AnswersAtOnce(), metrics=Metrics())
    served = Signature(
        name=OPERATOR,
        inputs=samples.specs,
        outputs=(spec_of("label", LABEL),),
    )
    handlers = Handlers(
        Control(service),
        [served],
        largest_body_bytes=max(len(body) for body in bodies),
    )
    with bound_socket("127.0.0.1", 0) as sock:
        server = HttpServer(Application(handlers), ServerSettings())
        await server.start(sock)
        await service.start()
        try:
            async with _client(f"http://127.0.0.1:{sock.getsockname()[1]}", bodies, time):
                yield time
        finally:
            await service.stop()
            await server.stop(LONGEST_S)


def _bodies(samples: Samples) -> list[bytes]:
    bodies = []
    for payload in samples.payloads(range(min(BODIES, len(samples)))):
        try:
            tensors = [json_tensor(name, array) for name, array in payload.items()]
            bodies.append(_encoder.encode({"inputs": tensors, "outputs": [{"name": "label"}]}))
        except InvalidInput:
            continue
    return bodies


@asynccontextmanager
async def _client(url: str, bodies: Sequence[bytes], time: FrontEndTime) -> AsyncIterator[None]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gearshift.measuring.front_end_time", url, str(os.getpid())),
        stdin=pipe,
        stdout=pipe,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(_encoder.encode([body.decode() for body in bodies]) + b"\n")
        await process.stdin.drain()
        await process.stdout.readline()  # the first answer has arrived
        begun_s = process_time()
        answered = int(await process.stdout.readline() or 0)
        if answered > 0:
            time.router_s = (process_time() - begun_s) / answered
        yield
        process.stdin.close()
        time.mean_s = float(await process.stdout.readline() or 0.0)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class _AnswersAtOnce(OneBatch):
    def run(self, batch: Batch) -> None:
        super().run(batch)
        asyncio.get_running_loop().call_soon(self.finish)


# The client --------------------------------------------------------------------------------------


async def ask(url: str, bodies: Sequence[bytes]) -> float:
    """Send at constant intervals until standard input ends; return mean seconds to the answer."""
    clock, took_s = WallClock(), list[float]()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    async with HttpClient(url) as client, asyncio.TaskGroup() as group:

        async def exchange(request: bytes) -> None:
            begun_ns = clock.now_ns()
            try:
                await client.response_to(request, within_s=LONGEST_S)
            except NoAnswer:
                return
            took_s.append((clock.now_ns() - begun_ns) / NS_PER_S)

        requests = cycle([client.request_bytes("POST", f"/v2/models/{OPERATOR}/infer", body) for body in bodies])
        await exchange(next(requests))
        took_s.clear()
        _tell("ready")
        until_ns = clock.now_ns() + to_ns(BURST_S)

        async def ask_on() -> None:
            while clock.now_ns() < until_ns:
                await exchange(next(requests))

        await asyncio.gather(*(ask_on() for _ in range(AT_ONCE)))
        _tell(str(len(took_s)))
        took_s.clear()
        sleeper = FineSleeper()
        try:
            while not ended.is_set():
                await sleeper.sleep(NS_PER_S // REQUESTS_PER_S)
                group.create_task(exchange(next(requests)))
        finally:
            sleeper.stop()
    return float(np.mean(took_s)) if took_s else 0.0


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    if not die_with_parent(int(sys.argv[2])):
        return
    bodies = [body.encode() for body in _decoder.decode(sys.stdin.buffer.readline())]
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        _tell(str(runner.run(ask(sys.argv[1], bodies))))


if __name__ == "__main__":
    main()
