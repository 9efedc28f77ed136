"""Nonsense from many clients: no 5xx but those that are promised, no crash, no growth, and right answers in between.

A real `gearshift serve` (HTTP and gRPC, a worker process with a little model of four inputs) is asked what is almost
right: JSON and binary tensors with values that do not fit, compressed bodies that are cut or too large, absurd headers,
paths and methods, bytes that are hardly HTTP, gRPC messages and streams of them.  `schemathesis` asks what the server's
own OpenAPI description lets it make up.  All but that is drawn from `--seed`; a batch that finds something is named by
its kind and number, and `--kind KIND --first NUMBER --inputs 1` sends it again.

Requests go out pipelined, each under an id of its own: answers must come in that order, and none without its request.
After every batch a request that fits is checked to be answered right.  503 and 504 are promised statuses, and counted;
other 5xx are faults.  At the end nothing may be held, workers and open files must be those of the warm server, and
the memory of server and worker at most `GROWTH_BYTES` above that after a fifth of all inputs.

`--install` makes an environment for schemathesis under `--peers`.  `/v2/gearshift/drain` is left out: it ends service.
"""

import argparse
import asyncio
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil

from benchmarks.shared.machine import describe
from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import identical_devices
from gearshift.model import TensorSpec
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.store import write_profile
from gearshift.v2 import grpc_messages_pb2 as pb
from gearshift.v2.grpc_tensors import varint
from tests.programs import faults

BATCH = 100
CLIENTS = 4
LONGEST_S = 20.0
LARGEST_BODY_BYTES = 4 << 20
GROWTH_BYTES = 16 << 20
INFER = "/v2/models/faults/infer"
PROMISED = {503, 504}
GRPC_FAULTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS}
SCHEMATHESIS_EXAMPLES = 100

# What is served ------------------------------------------------------------------------------------------------------

PROJECT = 'operator = "faults"\nsamples = "task.py:samples"\n[models.echo]\nload = "task.py:echo"\n'
TASK = """
import numpy as np

def echo():
    def model(given):
        return {"text": given["text"], "count": given["count"]}, np.ones(len(given["count"]))
    return model
"""
INPUTS = (
    TensorSpec(name="x", datatype="FP32", shape=(-1, -1, -1)),
    TensorSpec(name="half", datatype="FP16", shape=(-1, 2)),
    TensorSpec(name="text", datatype="BYTES", shape=(-1,)),
    TensorSpec(name="flags", datatype="BOOL", shape=(-1, 2)),
    TensorSpec(name="count", datatype="INT64", shape=(-1,)),
)
OUTPUTS = (
    TensorSpec(name="text", datatype="BYTES", shape=(-1,)),
    TensorSpec(name="count", datatype="INT64", shape=(-1,)),
)


def write_world(folder: Path) -> Path:
    """Project, profile and plan of one model on one device; the path of the plan."""
    (folder / "gearshift.toml").write_text(PROJECT)
    (folder / "task.py").write_text(TASK)
    ones = np.ones((1, 8))
    profile = Profile(
        operator="faults",
        curves=(RunTimeCurve(model="echo", batch_sizes=(1, 8), median_s=(0.001, 0.002), p95_s=(0.001, 0.002)),),
        predictions=PredictionRecords(
            models=("echo",), quality=ones, certainty=ones, part=np.array([0, 1] * 4, dtype=np.int8)
        ),
        inputs=INPUTS,
        outputs=OUTPUTS,
        project="../gearshift.toml",
    )
    sha256 = write_profile(profile, folder / "profile").sha256
    gear = Gear(
        load_range=LoadRange(from_=0),
        cascades=alone("faults", Cascade(models=("echo",))),
        replicas=(ReplicaSettings(replica="echo-0", load_share=1.0, largest_batch_size=8),),
    )
    plan = GearPlan(
        planner="by hand",
        hardware=identical_devices(1),
        placement=Placement(replicas=(Replica(id="echo-0", model="echo", device_ids=("cpu-0",)),)),
        pipelines={
            "faults": PipelinePlan(
                nodes={"faults": Node(operator="faults")},
                output="faults",
                objective=Objective(latency_s=1.0),
                gears=(gear,),
            )
        },
        profiles={"faults": SourceFile(path="profile", sha256=sha256)},
        traces={"faults": SourceFile(path="trace.csv", sha256="")},
    )
    write_plan(plan, folder / "plan.json")
    return folder / "plan.json"


# What is asked -------------------------------------------------------------------------------------------------------

NUMBERS = (
    0, -1, 1, 2, 3, 255, 256, 65535, 1 << 20, (1 << 20) + 1, 1 << 31, 1 << 52, (1 << 52) + 1, (1 << 63) - 1, 1 << 63,
    -(1 << 63), 1 << 64, 10**30, 10**4000, 0.5, -0.0, 1e-300, 1e300, 1e5, 65504.0, 65520.0,
)  # fmt: skip
WORDS = (
    "", "x", "text", "flags", "count", "half", "faults", "gearshift_model", "gearshift_certainty", "\x00", "é",
    "\U0001f600",
    "a" * 300, "FP32", "FP64", "FP16", "BYTES", "BOOL", "INT64", "BF16", "../plan.json", "plan.json", "%s%n", "'\"\\",
)  # fmt: skip
VALUES = (None, True, False, [], {}, [[]], [[1], [1, 2]], [[[[[1]]]]], {"a": 1}, *NUMBERS, *WORDS)
RAW_JSON = (
    "NaN",
    "1e999",
    "-",
    "tru",
    '"\\ud800"',
    "[" * 3000,
    '{"a":' * 3000,
    "\ufeff1",
    '"' + "\\u0000" * 9 + '"',
    "1E400",
)
HEADERS = {
    "x-slo-ms": ("0", "-1", "1e3", "nan", "inf", "0.001", "1", "9" * 15, "9" * 16, "9" * 400, "1_0", " 5", "",
    "٣", "0x10"),
    "x-request-start": (
        "t=0", "nan", "-1", "t=-5", "1", "9" * 19, "9" * 20, "t=1e9", "t=", "",
        "t=1700000000.123456789123456789", "inf",
        "t=4102444800", "t=99999999999999",
    ),
    "x-request-id": ("", "a", "a" * 128, "a" * 129, "a b", "é", "%0d%0a"),
    "accept-encoding": ("gzip", "gzip;q=0", "deflate;q=nan", "*", "*;q=-1", ";;;,,,", "gzip;q=1e400", "a" * 1000, ""),
    "inference-header-content-length": ("0", "-1", "1", "9" * 18, "9" * 30, "1.0", "", "0x1", "\u0661"),
    "content-encoding": ("gzip", "deflate", "identity", "br", "GZIP", "gzip, gzip", "", "x" * 500),
    "content-type": ("text/plain", "application/octet-stream", "", "multipart/form-data; boundary=x"),
    "authorization": ("Bearer x", "Basic eDp4", "bearer", "", "Bearer " + "k" * 2000),
    "x-api-key": ("", "k", "k" * 2000),
    "traceparent": ("00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x", ""),
    "expect": ("100-continue", "other"),
    "origin": ("http://evil", "null", ""),
    "upgrade": ("h2c", "websocket", ""),
    "host": ("", "x" * 1000, "a, b"),
}  # fmt: skip
METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "PURGE")
PATHS = (
    "/", "/v2", "/v2/", "//v2", "/v2/models", "/v2/models/faults", "/v2/models/faults/versions/1",
    "/v2/models/faults/versions/2",
    "/v2/models/other/infer", INFER, INFER + "/", INFER + "?a=b#c", "/v2/models/faults%2Finfer", "/v2/models/%ff/infer",
    "/v2/models/faults/config", "/v2/models/faults/stats", "/v2/models/stats", "/v2/models/faults/ready",
    "/v2/health/live",
    "/readyz", "/metrics", "/openapi.json", "/v2/repository/index", "/v2/repository/models/faults/load",
    "/v2/repository/models/%2e%2e/unload", "/v2/gearshift/status", "/v2/gearshift/gear", "/v2/gearshift/swap",
    "/v2/gearshift/../gearshift/gear", "/" + "a" * 3000, "/%", "/%00", "/?" + "&" * 500, "http://x/v2",
    "http://x:99999/v2", "*",
)  # fmt: skip
BODIES = (
    b"", b"{}", b"[]", b"null", b'{"ready":true}', b'{"ready":1}', b'{"pin":0}', b'{"pin":null}',
    b'{"pin":-1}', b'{"pin":1e400}',
    b'{"pin":9999999999999999999999}', b'{"plan":"none.json"}', b'{"plan":"../x"}', b'{"plan":1}',
    b"\xff" * 20, b"[" * 4000,
    b"x" * 5000,
)  # fmt: skip


def tensors(rng: random.Random, rows: int, number: int) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs that fit."""
    wide = rng.choice([1, 1, 1, 2, 5])
    return {
        "x": np.full((rows, 2, wide), 0.5, np.float32),
        "half": np.full((rows, 2), 0.25, np.float16),
        "text": np.array([rng.choice(WORDS) for _ in range(rows)], dtype=object),
        "flags": np.zeros((rows, 2), np.bool_),
        "count": np.full(rows, number, np.int64),
    }


def as_json(rng: random.Random, number: int = 7) -> dict[str, Any]:
    """A request that fits, as JSON."""
    rows = rng.choice([1, 1, 2, 3, 40])
    described = {spec.name: spec.datatype for spec in INPUTS}
    inputs = [
        {"name": name, "datatype": described[name], "shape": list(array.shape), "data": array.ravel().tolist()}
        for name, array in tensors(rng, rows, number).items()
    ]
    asked: dict[str, Any] = {"inputs": inputs}
    if rng.random() < 0.3:
        asked["parameters"] = {"priority": rng.choice(NUMBERS), "timeout": rng.choice(NUMBERS)}
    if rng.random() < 0.3:
        asked["outputs"] = [{"name": rng.choice(WORDS), "parameters": {"binary_data": rng.random() < 0.5}}]
    return asked


def mutated(rng: random.Random, value: Any) -> Any:
    """`value` with a part of it changed, left out, doubled or put elsewhere; containers are changed in place."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return deepcopy(rng.choice(VALUES))
    keys: Any = list(value) if isinstance(value, dict) else range(len(value))
    key = rng.choice(keys)
    match rng.randrange(6):
        case 0:
            del value[key]
        case 1 if isinstance(value, list):
            value.extend([value[key]] * rng.choice([1, 2, 30]))
        case 2 if isinstance(value, dict):
            value[rng.choice(WORDS)] = deepcopy(rng.choice(VALUES))
        case _:
            value[key] = mutated(rng, value[key])
    return value


def json_body(rng: random.Random) -> bytes:
    """A request of which 0 to 3 parts are wrong, now and then in its text too."""
    asked = as_json(rng)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        asked = mutated(rng, asked)
    body = json.dumps(asked, ensure_ascii=rng.random() < 0.5).encode()
    if rng.random() < 0.1:
        place = rng.randrange(len(body))
        body = body[:place] + rng.choice(RAW_JSON).encode() + body[place + rng.randrange(20) :]
    return damaged(rng, body) if rng.random() < 0.1 else body


def packed(array: np.ndarray[Any, Any]) -> bytes:
    """As the binary extension has it."""
    if array.dtype != object:
        return array.tobytes()
    return b"".join(len(word.encode()).to_bytes(4, "little") + word.encode() for word in array.tolist())


def binary_body(rng: random.Random) -> tuple[bytes, int]:
    """A request with tensors behind it, and how much of it is JSON; sizes and bytes may be wrong."""
    asked = as_json(rng)
    given = tensors(rng, asked["inputs"][0]["shape"][0], 7)
    tail = b""
    for tensor in asked["inputs"]:
        if rng.random() < 0.8:
            data = packed(given[tensor["name"]].reshape(-1))
            if rng.random() < 0.2:
                data = rng.choice([damaged(rng, data), rng.randbytes(len(data)), b"\xff" * len(data)])
            del tensor["data"]
            size = len(data) + (rng.choice([-1, 1, 4, 1 << 40, -(1 << 40), 10**25]) if rng.random() < 0.1 else 0)
            tensor["parameters"] = {"binary_data_size": size}
            tail += data
    if rng.random() < 0.4:
        asked = mutated(rng, asked)
    text = json.dumps(asked).encode()
    cut = len(text) + (rng.choice([-len(text), -1, 1, len(tail), 1 << 30]) if rng.random() < 0.1 else 0)
    return text + (damaged(rng, tail) if rng.random() < 0.1 else tail), cut


def damaged(rng: random.Random, data: bytes) -> bytes:
    """`data` with some bytes changed, cut out, put in or doubled."""
    for _ in range(rng.choice([1, 1, 2, 5])):
        if not data:
            return rng.randbytes(3)
        begin = rng.randrange(len(data))
        end = min(len(data), begin + rng.choice([1, 1, 2, 8, 100]))
        match rng.randrange(5):
            case 0:
                data = data[:begin] + data[end:]
            case 1:
                data = data[:begin] + rng.randbytes(end - begin) + data[end:]
            case 2:
                data = data[:begin] + data[begin:end] * 2 + data[end:]
            case 3:
                data = data[:begin]
            case _:
                what = rng.choice(
                    [b"\r\n", b"\n", b"\r", b"\0", b":", b" ", b"0\r\n\r\n", b"chunked", b"\xff", b"1" * 20]
                )
                data = data[:begin] + what + data[begin:]
    return data


BOMBS = (
    (gzip.compress(b" " * (LARGEST_BODY_BYTES * 20)), "gzip"),
    (zlib.compress(b"[" * (LARGEST_BODY_BYTES * 20)), "deflate"),
)


def squeezed(rng: random.Random) -> tuple[bytes, str]:
    """A compressed body, perhaps cut, doubled, of the other coding, or very large inside; and its coding."""
    plain = json_body(rng)
    body, coding = rng.choice([(gzip.compress(plain, 1), "gzip"), (zlib.compress(plain, 1), "deflate"), *BOMBS])
    body = rng.choice([body, body, body[: len(body) // 2], body * 2, body + b"x", damaged(rng, body), plain[:1000]])
    return body, rng.choice([coding, coding, "gzip", "deflate"])


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, well framed."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    @property
    def may_close(self) -> bool:
        """Whether its answer may be the last: what came after it would go unheard."""
        too_large = len(self.body) > (LARGEST_BODY_BYTES if "infer" in self.path else 4096)
        return (
            too_large
            or self.path in ("*", "http://x:99999/v2")
            or any(name in ("expect", "host") for name, _ in self.headers)
        )

    def framed(self, id: str, rng: random.Random) -> bytes:
        """Its bytes under this id, its body with its length or in chunks."""
        sent = {"host": "localhost", **dict(self.headers), "x-request-id": id}
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        head = f"{self.method} {self.path} HTTP/1.1\r\n{lines}".encode()
        if rng.random() < 0.8:
            return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(self.body), self.body)
        step = rng.choice([1, 7, 100, 1000, 1 << 20])
        step = max(step, len(self.body) // 2000)
        parts = [self.body[at : at + step] for at in range(0, len(self.body), step)]
        chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(part), rng.choice([b"", b";a=b"]), part) for part in parts)
        return b"%btransfer-encoding: chunked\r\n\r\n%b0\r\n%b\r\n" % (head, chunks, rng.choice([b"", b"t: x\r\n"]))


def asked_json(rng: random.Random) -> Asked:
    """JSON that is wrong somewhere."""
    return Asked("POST", INFER, (), json_body(rng))


def asked_binary(rng: random.Random) -> Asked:
    """Binary tensors that are wrong somewhere."""
    body, head_bytes = binary_body(rng)
    return Asked("POST", INFER, (("inference-header-content-length", str(head_bytes)),), body)


def asked_compressed(rng: random.Random) -> Asked:
    """A compressed body."""
    body, coding = squeezed(rng)
    return Asked("POST", INFER, (("content-encoding", coding),), body)


def asked_headers(rng: random.Random) -> Asked:
    """A request that fits, with absurd headers."""
    names = rng.sample(sorted(HEADERS), rng.choice([1, 2, 4]))
    headers = [(name, rng.choice(HEADERS[name])) for name in names]
    if rng.random() < 0.1:
        headers += [(f"h{i}", "v") for i in range(500)]
    if "upgrade" in names:
        headers.append(("connection", "upgrade"))
    return Asked("POST", INFER, tuple(headers), json.dumps(as_json(rng)).encode())


def asked_path(rng: random.Random) -> Asked:
    """Any path by any method."""
    return Asked(rng.choice(METHODS), rng.choice(PATHS), (), rng.choice(BODIES))


PIPELINED: dict[str, Callable[[random.Random], Asked]] = {
    "JSON": asked_json,
    "binary tensors": asked_binary,
    "compressed bodies": asked_compressed,
    "headers": asked_headers,
    "paths": asked_path,
}

# Attacks -------------------------------------------------------------------------------------------------------------


class Found(Exception):
    """The server did what it must not; the text says what."""


@dataclass(slots=True)
class Attack:
    """A server, and what it has answered: by kind, how many inputs, and how often which status."""

    server: faults.Server
    grpc_address: str
    inputs: Counter[str] = field(default_factory=Counter)
    statuses: dict[str, Counter[str]] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)

    def count(self, kind: str, statuses: list[str], inputs: int) -> None:
        """Count a batch."""
        self.inputs[kind] += inputs
        self.statuses.setdefault(kind, Counter()).update(statuses)


async def pipelined(attack: Attack, kind: str, rng: random.Random) -> None:
    """A batch of well framed requests on one connection: answered in turn, each under its id."""
    drawn = [PIPELINED[kind](rng) for _ in range(BATCH)]
    asked = [one for one in drawn if not one.may_close]
    last = next((one for one in drawn if one.may_close), Asked("GET", "/livez"))
    last = replace(last, headers=(*last.headers, ("connection", "close")))
    asked.append(last)
    ids = [f"{kind[0]}{number}" for number in range(len(asked))]
    framed = b"".join(one.framed(id, rng) for one, id in zip(asked, ids, strict=True))
    answers = await exchanged(attack.server, [framed])
    told = answers_in(answers, [one.method == "HEAD" for one in asked])
    for number, (status, headers) in enumerate(told):
        if status != 400 and headers.get("x-request-id") != ids[number]:
            raise Found(f"answer {number} is to {headers.get('x-request-id')!r}: {asked[number : number + 1]}")
        if status >= 500 and status not in PROMISED:
            raise Found(f"status {status} for {asked[number]}")
    if len(told) < len(ids):
        raise Found(f"only {len(told)} of {len(ids)} were answered; not {asked[len(told) : len(told) + 1]}")
    attack.count(kind, [str(status) for status, _ in told], len(told))


async def bytes_alone(attack: Attack, kind: str, rng: random.Random) -> None:
    """Some streams that are hardly HTTP, each cut somewhere, some left by the client in the middle."""

    async def one(number: int) -> list[str]:
        requests = [
            rng.choice(list(PIPELINED.values()))(rng).framed(f"b{number}", rng) for _ in range(rng.choice([1, 2, 5]))
        ]
        stream = damaged(rng, b"".join(requests))
        if rng.random() < 0.1:
            stream = rng.randbytes(rng.choice([1, 10, 1000, 100_000]))
        cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.choice([0, 1, 3])))
        parts = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
        answers = await exchanged(attack.server, parts, patient=False, vanishes=rng.random() < 0.2)
        told = [int(status) for status in re.findall(rb"(?m)^HTTP/1\.1 ([0-9]{3}) [A-Z][A-Za-z ]+\r$", answers)]
        wrong = [status for status in told if status >= 500 and status not in PROMISED]
        if wrong:
            raise Found(f"statuses {wrong} for {stream[:4000]!r}")
        return [str(status) for status in told] or ["closed"]

    for number in range(0, BATCH, 10):
        for statuses in await asyncio.gather(*map(one, range(number, number + 10))):
            attack.count(kind, statuses, 1)


async def exchanged(
    server: faults.Server, parts: list[bytes], *, patient: bool = True, vanishes: bool = False
) -> bytes:
    """Send all, and answer what came until the server closes; who is not `patient` says soon that there is no more."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        async with asyncio.timeout(LONGEST_S):
            reading = asyncio.create_task(reader.read(-1))
            try:
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                if vanishes:
                    writer.transport.abort()
                elif not patient:
                    await asyncio.wait([reading], timeout=0.05)
                    writer.write_eof()
                return await reading
            except OSError:
                return b"" if reading.cancel() or reading.exception() else reading.result()
    finally:
        writer.transport.abort()


def answers_in(data: bytes, without_body: list[bool]) -> list[tuple[int, dict[str, str]]]:
    """Status and headers of each answer; raises `Found` for what is none."""
    found = []
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.1 ([0-9]{3}) .+", lines[0])
        if not match or not end:
            raise Found(f"this is no answer: {data[:300]!r}")
        if match[1] == "100":
            data = rest
            continue
        headers = dict(line.split(": ", 1) for line in lines[1:])
        no_request = match[1] == "400"  # of which not even the method counts
        length = 0 if without_body[len(found)] and not no_request else int(headers["content-length"])
        if len(rest) < length:
            raise Found(f"an answer was cut: {data[:300]!r}")
        found.append((int(match[1]), headers))
        data = rest[length:]
    return found


UNITS = (b"\x22\0", b"\x2a\0", b"\x32\0", b"\x3a\0", b"\x42\0", b"\x18\1", b"\x28\1", b"\x12\0", b"\1", b"\0", b"\xff")
"""Bytes that grow many times when they are parsed: empty fields and small numbers of any message."""


def large_message(rng: random.Random) -> bytes:
    """A gRPC message up to the bound that repeats one field, inside an input or outside of one."""
    unit = rng.choice(UNITS)
    data = unit * (rng.choice([1 << 16, 1 << 20, LARGEST_BODY_BYTES - 100]) // len(unit))
    for number in rng.choice([(), (3, 5), (5, 5), (5, 5, 5), (6, 5, 5), (8, 5, 5), (4, 5), (6,), (7,), (2, 4)]):
        data = varint(number << 3 | 2) + varint(len(data)) + data
    return b"\x0a\6faults" + data


def message(rng: random.Random) -> bytes:
    """A gRPC request of which something does not fit, or bytes that are hardly one."""
    if rng.random() < 0.02:
        return large_message(rng)
    rows = rng.choice([1, 1, 2, 20])
    asked = pb.ModelInferRequest(model_name="faults")
    raw = rng.random() < 0.6
    contents = {"x": "fp32_contents", "text": "bytes_contents", "flags": "bool_contents", "count": "int64_contents"}
    for name, array in tensors(rng, rows, 7).items():
        tensor = asked.inputs.add(
            name=name, datatype=next(s.datatype for s in INPUTS if s.name == name), shape=array.shape
        )
        if raw:
            asked.raw_input_contents.append(packed(array.reshape(-1)))
        elif name in contents:
            values = array.ravel().tolist()
            getattr(tensor.contents, contents[name]).extend([v.encode() for v in values] if name == "text" else values)
    for _ in range(rng.choice([0, 1, 1, 2])):
        tensor = rng.choice(asked.inputs) if asked.inputs else asked.inputs.add()
        match rng.randrange(12):
            case 0:
                del tensor.shape[:]
                tensor.shape.extend(
                    rng.choice([[], [0], [-1], [1 << 62] * 3, [1, 1, 1 << 40], [1] * 5000, [1 << 20], [2, 2]])
                )
            case 1:
                tensor.datatype = rng.choice(WORDS)
            case 2:
                tensor.name = rng.choice(WORDS)
            case 3:
                tensor.contents.int64_contents.extend([-(1 << 63)] * rng.choice([1, 100]))
            case 4:
                asked.raw_input_contents.append(rng.randbytes(rng.choice([0, 1, 8, 5000])))
            case 5 if asked.raw_input_contents:
                place = rng.randrange(len(asked.raw_input_contents))
                asked.raw_input_contents[place] = damaged(rng, asked.raw_input_contents[place])
            case 6:
                parameters = rng.choice([asked.parameters, tensor.parameters])
                choice = rng.choice([{"int64_param": -1}, {"string_param": "é"}, {"double_param": 1e300},
                {"bool_param": True},
                                     {"int64_param": (1 << 63) - 1}, {"uint64_param": (1 << 64) - 1},
                                     {"int64_param": 1}, {}])  # fmt: skip
                name = rng.choice(["priority", "timeout", "shared_memory_region", "binary_data_size", ""])
                parameters[name].CopyFrom(pb.InferParameter(**choice))
            case 7:
                asked.outputs.add(name=rng.choice(WORDS))
            case 8:
                asked.inputs.extend([tensor] * rng.choice([1, 5, 1100]))
            case 9:
                asked.model_name, asked.model_version = rng.choice(WORDS), rng.choice(["", "1", "2", "é" * 200])
            case 10:
                asked.id = rng.choice(WORDS)
            case _:
                del asked.inputs[rng.randrange(len(asked.inputs)) :]
    data: bytes = asked.SerializeToString()
    return damaged(rng, data) if rng.random() < 0.2 else data


METADATA = (
    (), (("x-slo-ms", "nan"),), (("x-slo-ms", "1"),), (("x-slo-ms", "9" * 300),), (("x-request-start", "t=-1"),),
    (("x-request-id", "a" * 500),), (("x-api-key", "k"),), (("authorization", "Bearer "),),
    (("x-request-start", "9" * 30), ("x-slo-ms", "0.0000000001")), (("odd-bin", b"\xff\x00"),),
)  # fmt: skip


@asynccontextmanager
async def channel_to(attack: Attack) -> AsyncIterator[grpc.aio.Channel]:
    """A channel of its own connection."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_metadata_size", 1 << 16)]
    async with grpc.aio.insecure_channel(attack.grpc_address, options=options) as channel:
        yield channel


async def calls(attack: Attack, kind: str, rng: random.Random) -> None:
    """A batch of calls at once, some with hardly any time, some cancelled, some of other methods."""
    methods = ["ModelInfer"] * 8 + ["ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics", "RepositoryIndex",
                                    "RepositoryModelLoad", "ServerMetadata", "None"]  # fmt: skip

    async def one(
        channel: grpc.aio.Channel, method: str, data: bytes, longest_s: float, cancels: bool, metadata: Any
    ) -> str:
        call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}", None, None)(
            data, timeout=longest_s, metadata=metadata
        )
        try:
            if cancels:
                await asyncio.sleep(0)
                call.cancel()
            await call
        except asyncio.CancelledError:
            return "CANCELLED"
        except grpc.aio.AioRpcError as error:
            if error.code() in GRPC_FAULTS:
                raise Found(
                    f"{error.code().name} ({error.details()}) for {method} {metadata} {data[:4000]!r}"
                ) from None
            return error.code().name
        return "OK"

    drawn = [
        (
            rng.choice(methods),
            message(rng),
            rng.choice([LONGEST_S] * 8 + [0.0, 0.0005]),
            rng.random() < 0.05,
            rng.choice(METADATA),
        )
        for _ in range(BATCH)
    ]
    async with channel_to(attack) as channel:
        attack.count(kind, await asyncio.gather(*(one(channel, *asked) for asked in drawn)), BATCH)


async def streams(attack: Attack, kind: str, rng: random.Random) -> None:
    """A stream of messages: each is answered, or told why not, and the stream goes on; or the client leaves."""
    drawn = (message(rng) for _ in range(BATCH))
    sent = [data for data in drawn if len(data) <= LARGEST_BODY_BYTES]  # a larger one ends its stream
    leaves_after = rng.choice([None, None, 0, BATCH // 2])
    statuses = []
    async with channel_to(attack) as channel:
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer", None, None)(iter(sent))
        async for data in call:
            answer = pb.ModelStreamInferResponse.FromString(data)
            if "an internal error" in answer.error_message:
                raise Found(f"{answer.error_message} for {sent[len(statuses)][:4000]!r}")
            statuses.append("error" if answer.error_message else "OK")
            if len(statuses) == leaves_after:
                call.cancel()
                break
        else:
            if len(statuses) != len(sent):
                raise Found(f"a stream of {len(sent)} messages had {len(statuses)} answers")
    attack.count(kind, statuses, len(sent))


KINDS: dict[str, Callable[[Attack, str, random.Random], Awaitable[None]]] = {
    **dict.fromkeys(PIPELINED, pipelined),
    "bytes": bytes_alone,
    "gRPC calls": calls,
    "gRPC streams": streams,
}

# The whole -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def attacked(folder: Path) -> AsyncIterator[Attack]:
    """A server to attack."""
    bounds = ("--largest-body-bytes", str(LARGEST_BODY_BYTES), "--largest-header-bytes", str(16 << 10))
    options = ("--grpc-port", "0", "--plans", str(folder), *bounds)
    async with faults.serving(folder, *options, world=write_world) as server:
        address = re.search(r"and grpc://(\S+)", server.lines[-1])
        if address is None:
            raise Found(f"the server does not answer gRPC: {server.lines}")
        yield Attack(server, address[1])


async def check_right(attack: Attack, rng: random.Random) -> None:
    """A request that fits is answered right, over HTTP and now and then over gRPC."""
    number = rng.randrange(1 << 40)
    asked = as_json(random.Random(3), number)
    asked.pop("parameters", None), asked.pop("outputs", None)
    one = Asked("POST", INFER, (("connection", "close"),), json.dumps(asked).encode())
    answer = await exchanged(attack.server, [one.framed("right", random.Random(0))])
    if b'"data":[%d' % number not in answer:
        raise Found(f"a request that fits was answered so: {answer[:500]!r}")
    if number % 4:
        return
    arrays = tensors(random.Random(3), 1, number)
    call = pb.ModelInferRequest(
        model_name="faults", raw_input_contents=[packed(a.reshape(-1)) for a in arrays.values()]
    )
    for spec in INPUTS:
        call.inputs.add(name=spec.name, datatype=spec.datatype, shape=arrays[spec.name].shape)
    async with channel_to(attack) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", None, None)
        if packed(arrays["count"]) not in await infer(call.SerializeToString(), timeout=LONGEST_S):
            raise Found("a gRPC message that fits was not answered right")


@dataclass(frozen=True, slots=True)
class Held:
    """What the server's processes hold: memory of both in bytes, open files of the server, the workers."""

    server_bytes: int
    worker_bytes: int
    files: int
    workers: tuple[int, ...]


async def held_by(attack: Attack) -> Held:
    """What is held once nobody asks anything; raises `Found` where requests or their bytes still are."""
    pid, deadline = attack.server.process.pid, time.monotonic() + LONGEST_S
    while True:
        status = json.loads((await attack.server.get("/v2/gearshift/status"))[1])
        connections = [c for c in psutil.Process(pid).net_connections("tcp") if c.status == "ESTABLISHED"]
        over_http = [c for c in connections if c.laddr.port == attack.server.port]
        kept = {name: status[name] for name in ("waiting", "open_requests", "held_bytes") if status[name]}
        if not kept and len(over_http) <= 1:
            break
        if time.monotonic() > deadline:
            raise Found(f"nobody asks, and still are held {kept} and {len(over_http)} connections")
        await asyncio.sleep(0.1)
    workers = tuple(attack.server.workers())
    memory = [psutil.Process(one).memory_info().rss for one in (pid, *workers)]
    return Held(memory[0], sum(memory[1:]), len(os.listdir(f"/proc/{pid}/fd")) - len(connections), workers)


async def attack_all(attack: Attack, kinds: list[str], inputs: int, first: int, seed: int) -> tuple[Held, Held]:
    """Batches of each kind in turn until there were so many inputs; what was held after a fifth, and at the end."""
    numbers = iter(range(first * len(kinds), 1 << 60))

    async def client(until: int) -> None:
        while attack.inputs.total() < until and not attack.found:
            drawn = next(numbers)
            kind, number = kinds[drawn % len(kinds)], drawn // len(kinds)
            rng = random.Random(f"{seed} {kind} {number}")
            try:
                await KINDS[kind](attack, kind, rng)
                await check_right(attack, rng)
            except (Found, OSError, TimeoutError, grpc.aio.AioRpcError) as error:
                attack.found.append(f"{kind}, batch {number}: {error!r:.3000}")
            if drawn % 50 == 0:
                print(f"\r{attack.inputs.total():,} inputs", end="", file=sys.stderr, flush=True)

    held = []
    for until in (inputs // 5, inputs):
        await asyncio.gather(*(client(until) for _ in range(CLIENTS)))
        try:
            held.append(await held_by(attack))
        except Found as error:
            attack.found.append(str(error))
            held.append(Held(0, 0, 0, ()))
    print(file=sys.stderr)
    return held[0], held[1]


async def schemathesis(attack: Attack, peers: Path, examples: int, seed: int) -> None:
    """Let it make up requests by the description; its report counts cases and names the failures."""
    command = (
        peers / "schemathesis" / "bin" / "st", "run", f"http://{attack.server.host}:{attack.server.port}/openapi.json",
        "--exclude-path", "/v2/gearshift/drain", "--max-examples", str(examples), "--seed", str(seed),
        "--checks", "not_a_server_error,response_schema_conformance,content_type_conformance,status_code_conformance",
        "--continue-on-failure", "--suppress-health-check", "all", "--phases", "examples,coverage,fuzzing",
        "--no-color",
    )  # fmt: skip
    process = await asyncio.create_subprocess_exec(*map(str, command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = (await process.communicate())[0].decode()
    counted = re.search(r"(\d+) generated", said)
    attack.count(
        "schemathesis", ["no failure" if process.returncode == 0 else "failures"], int(counted[1]) if counted else 0
    )
    if process.returncode != 0:
        attack.found.append(f"schemathesis: {said[-8000:]}")
    await check_right(attack, random.Random(seed))


def table(attack: Attack) -> str:
    """A line for each kind."""
    lines = ["| kind | inputs | answers |", "| --- | ---: | --- |"]
    for kind, inputs in attack.inputs.items():
        told = ", ".join(f"{count:,} x {status}" for status, count in sorted(attack.statuses[kind].items()))
        lines.append(f"| {kind} | {inputs:,} | {told} |")
    return "\n".join([*lines, f"| all | {attack.inputs.total():,} | |"])


def growth(begin: Held, end: Held) -> list[str]:
    """What has grown or changed."""
    found = []
    for name in ("server_bytes", "worker_bytes"):
        grown = getattr(end, name) - getattr(begin, name)
        if grown > GROWTH_BYTES:
            found.append(f"{name} have grown by {grown >> 20} MiB")
    if end.files > begin.files:
        found.append(f"{end.files} files are open, {begin.files} were")
    if end.workers != begin.workers:
        found.append(f"the workers are {end.workers}, they were {begin.workers}")
    return found


async def run(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with attacked(Path(folder)) as attack:
            begun = time.monotonic()
            if (arguments.peers / "schemathesis").is_dir() and not arguments.kind:
                await schemathesis(attack, arguments.peers, arguments.examples, arguments.seed)
            held = await attack_all(
                attack, arguments.kind or list(KINDS), arguments.inputs, arguments.first, arguments.seed
            )
            found = attack.found + growth(*held)
            if (status := await attack.server.end()) != 0:
                found.append(f"the server ended with {status}")
            found += [line for line in attack.server.lines if "fault, id" in line or "Traceback" in line]
    print(describe())
    print(table(attack))
    print(f"{time.monotonic() - begun:.0f} s; after a fifth {held[0]}; at the end {held[1]}")
    for one in found:
        print(f"FOUND {one}", file=sys.stderr)
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="in all, beside those of schemathesis")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", choices=sorted(KINDS), help="this kind alone; may be repeated")
    parser.add_argument("--first", type=int, default=0, help="the number of the first batch of each kind")
    parser.add_argument(
        "--examples", type=int, default=SCHEMATHESIS_EXAMPLES, help="of schemathesis, for each operation"
    )
    parser.add_argument("--install", action="store_true", help="make the environment of schemathesis first")
    parser.add_argument("--peers", type=Path, default=Path.home() / ".cache" / "gearshift-peers", help="where that is")
    arguments = parser.parse_args()
    if arguments.install and not (arguments.peers / "schemathesis").is_dir():
        environment = arguments.peers / "schemathesis"
        subprocess.run((sys.executable, "-m", "venv", environment), check=True)
        subprocess.run((environment / "bin" / "pip", "install", "--quiet", "schemathesis"), check=True)
    return asyncio.run(run(arguments))


if __name__ == "__main__":
    sys.exit(main())
