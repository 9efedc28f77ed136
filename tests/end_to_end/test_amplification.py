"""Bounds on the cost of one HTTP request: memory for its bytes, and time during which nobody else is answered.

The time is processor time between two turns of the event loop, so that other load on the machine does not count.
`pytest -m long -rP tests/end_to_end/test_amplification.py` shows the table.
"""

import asyncio
import gc
import gzip
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from gearshift.model import TensorSpec
from gearshift.plans.plan_tables import plan_tables
from gearshift.runtime.backends.base import Batch
from gearshift.runtime.backends.emulated import EmulatedBackend
from gearshift.runtime.service.served_pipeline import PipelineOptions
from gearshift.runtime.service.service import Service
from gearshift.serving.door.bounds import limits_of
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.signature import Signature
from gearshift.serving.http.application import Application
from gearshift.serving.http.connection import Connection
from gearshift.serving.http.connections import Connections
from gearshift.serving.http.handlers import Handlers
from gearshift.serving.operate.control import Control
from tests.little_task import little_plan, little_profile
from tests.unit.serving.wire import Wire

MIB = 1 << 20
SETTINGS = ServerSettings()
LONGEST_STALL_S, MOST_BYTES = 0.25, 256 * MIB
SPECS = (
    TensorSpec(name="x", datatype="FP32", shape=(-1, -1)),
    TensorSpec(name="text", datatype="BYTES", shape=(-1, -1)),
)
TEXT = b'{"name":"text","shape":[1,1],"datatype":"BYTES","data":["a"]}'
X = b'{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}'

log = logging.getLogger(__name__)


class Echo(EmulatedBackend):
    """Devices that answer what they are given, at once."""

    def run(self, batch: Batch) -> None:
        for sample in batch.samples:
            sample.certainty, sample.result = 1.0, sample.payload
        asyncio.get_running_loop().call_soon(self._end, batch)

    def _end(self, batch: Batch) -> None:
        self._events.samples_finished(batch, batch.samples)
        self._events.batch_finished(batch)


class Taking(Wire):
    """A client that takes an answer as fast as it is written, and keeps its head."""

    def writelines(self, list_of_data: Any) -> None:
        self.write(list_of_data[0])


def inputs(*tensors: bytes, rest: bytes = b"") -> bytes:
    return b'{"inputs":[%b]%b}' % (b",".join(tensors), rest)


def numbers(rows: int, columns: int, data: bytes) -> bytes:
    return b'{"name":"x","shape":[%d,%d],"datatype":"FP32","data":[%b]}' % (rows, columns, data)


def strings(rows: int, columns: int, data: bytes) -> bytes:
    return b'{"name":"text","shape":[%d,%d],"datatype":"BYTES","data":[%b]}' % (rows, columns, data)


def binary(elements: int, texts: int) -> tuple[bytes, dict[str, str]]:
    """Binary tensors, all of which are answered in JSON."""
    x = np.random.default_rng(0).random(elements).astype(np.float32).tobytes()
    text = b"\x01\0\0\0a" * texts
    head = json.dumps({
        "inputs": [
            {"name": "x", "shape": [1, elements], "datatype": "FP32", "parameters": {"binary_data_size": len(x)}},
            {"name": "text", "shape": [1, texts], "datatype": "BYTES", "parameters": {"binary_data_size": len(text)}},
        ]
    }).encode()  # fmt: skip
    return head + x + text, {"inference-header-content-length": str(len(head))}


N = 1 << 24
ROWS = 10_000
STRINGS = 1 << 17
EMOJI = b"\xf0\x9f\x98\x80"


def listed(element: bytes, count: int) -> bytes:
    return (element + b",") * (count - 1) + element


JSON: dict[str, tuple[Callable[[], bytes], int]] = {
    "numbers": (lambda: inputs(numbers(1, N, listed(b"1", N)), TEXT), 200),
    "numbers, refused at last": (lambda: inputs(numbers(1, N, listed(b"1", N)), TEXT.replace(b"1,1", b"2,1")), 400),
    "lists of one number": (lambda: inputs(numbers(1, N // 4, b"[%b]" % listed(b"[1]", N // 4)), TEXT), 400),
    "rows": (lambda: inputs(numbers(ROWS, 1, listed(b"1", ROWS)), strings(ROWS, 1, listed(b'""', ROWS))), 200),
    "too many rows": (lambda: inputs(numbers(1 << 20, 1, listed(b"1", 1 << 20)), TEXT), 400),
    "strings": (lambda: inputs(X, strings(1, STRINGS, listed(b'""', STRINGS))), 200),
    "strings without end": (lambda: inputs(X, strings(1, STRINGS, listed(b'""', N // 2))), 400),
    "a long string of escapes": (lambda: inputs(X, strings(1, 1, b'"%b"' % (b"\\u0001" * (N // 13)))), 200),
    "too long a string": (lambda: inputs(X, strings(1, 1, b'"%b"' % (b'\\"' * (N - 99)))), 400),
    "a name without end": (lambda: inputs(X.replace(b"x", EMOJI * (N // 4))), 400),
    "inputs without end": (lambda: inputs(*[X] * (N // len(X))), 400),
    "outputs without end": (lambda: inputs(X, TEXT, rest=b',"outputs":[%b]' % listed(b'{"name":"x"}', N // 12)), 400),
    "an id without end": (lambda: inputs(X, TEXT, rest=b',"id":"%b"' % (EMOJI * (N // 2))), 400),
    "a shape without end": (lambda: inputs(X.replace(b"1,1", listed(b"1", N))), 400),
    "blanks": (lambda: b" " * (2 * N), 400),
    "brackets": (lambda: b"[" * (2 * N), 400),
    "unknown fields": (lambda: b"{%b}" % listed(b'"a":{}', N // 4), 400),
    "more JSON than is taken": (lambda: inputs(numbers(1, 2 * N - 99, listed(b"1", 2 * N - 99)), TEXT), 413),
}


@dataclass
class Cost:
    status: int
    sent_bytes: int
    memory_bytes: int
    stall_s: float


def memory_of_this_process(which: str) -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[which].split()[0]) << 10


async def longest_turn(done: asyncio.Event) -> float:
    """Processor seconds of the longest turn of the event loop until `done`."""
    longest, before = 0.0, time.thread_time()
    while not done.is_set():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    return longest


def cost_of(body: bytes, headers: dict[str, str]) -> Cost:
    """The cost of answering one request, without garbage collection."""

    async def main() -> Cost:
        plan, profile = little_plan(""), little_profile()
        tables = plan_tables(plan)
        options = {name: PipelineOptions(most_waiting_requests=ROWS) for name in plan.pipelines}
        service = Service(tables, Echo(tables, plan, profile), pipelines=options)
        bounds: dict[str, Any] = {"largest_body_bytes": SETTINGS.largest_body_bytes, "limits": limits_of(SETTINGS)}
        application = Application(
            Handlers(Control(service), [Signature(name="sums", inputs=SPECS, outputs=SPECS)], **bounds)
        )
        await service.start()
        connection, wire = Connection(Connections(handler=application)), Taking()
        connection.connection_made(wire)
        given = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST /v2/models/sums/infer HTTP/1.1\r\nHost: localhost\r\ncontent-length: {len(body)}\r\n{given}\r\n"
        gc.collect()
        gc.disable()
        Path("/proc/self/clear_refs").write_text("5")
        before, done = memory_of_this_process("VmRSS"), asyncio.Event()
        beat = asyncio.create_task(longest_turn(done))
        connection.data_received(head.encode())
        for begin in range(0, len(body), 256 << 10):  # as a socket gives them
            connection.data_received(body[begin : begin + (256 << 10)])
            await asyncio.sleep(0)
        await wire.more.wait()
        done.set()
        cost = Cost(int(wire.written[9:12]), len(body), memory_of_this_process("VmHWM") - before, await beat)
        gc.enable()
        await service.stop()
        return cost

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def costs_little(body: bytes, headers: dict[str, str], status: int) -> None:
    cost = cost_of(body, headers)
    sent, memory_mib, stall_ms = cost.sent_bytes, cost.memory_bytes / MIB, 1e3 * cost.stall_s
    log.warning("%d: %d bytes sent, %.0f MiB of memory, %.0f ms", cost.status, sent, memory_mib, stall_ms)
    assert cost.status == status
    assert cost.stall_s < LONGEST_STALL_S
    assert cost.memory_bytes < MOST_BYTES


@pytest.mark.long
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(("make", "status"), JSON.values(), ids=JSON)
def test_json_costs_a_bounded_time_and_memory(make, status, compressed):
    if compressed:
        costs_little(gzip.compress(make(), 6), {"content-encoding": "gzip"}, status)
    else:
        costs_little(make(), {}, status)


@pytest.mark.long
@pytest.mark.parametrize(("elements", "texts"), [(N // 2, 1), (1, STRINGS)])
def test_binary_tensors_that_are_answered_in_json_cost_a_bounded_time_and_memory(elements, texts):
    costs_little(*binary(elements, texts), 200)
