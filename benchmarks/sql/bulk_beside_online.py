"""A table goes through a server while online requests do: their p95 without and beside it, the gear, the labels.

Two models that sleep, as on an accelerator, on a device each: `small` 8 ms and 1 ms a row, `large` 10 ms and 2 ms a
row, which every row of the table goes on to in gear 0. Online requests come at random, 8 a second, with an objective of
400 ms. Bars: p95 grows by at most a twentieth of the objective at each of the two models; no gear but 0 is ever in
force, although 2,000 rows of the table wait; every label is that of the tuple that the table keeps.
"""

import asyncio
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import gearshift
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from benchmarks.shared.plan_by_hand import plan_by_hand
from gearshift.bulk.operator import open_operator
from gearshift.cascade import Cascade
from gearshift.client.client import AsyncClient
from gearshift.gear import Gear, LoadRange, ReplicaSettings, alone
from gearshift.hardware import identical_devices
from gearshift.model import TensorSpec
from gearshift.placement import Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.store import write_profile
from gearshift.result import percentile

OBJECTIVE_S, EDGE_QPS, QPS = 0.4, 20.0, 8.0
BATCH = 16
TIMES_S = {"small": (0.008, 0.001), "large": (0.010, 0.002)}
"""Seconds of a batch of b: first + b x second."""

PROJECT = 'operator = "task"\nsamples = "model.py:samples"\n' + "".join(
    f'[models.{name}]\nload = "model.py:{name}"\n' for name in TIMES_S
)
MODEL = """
import time
import numpy as np

def samples(): ...

def model(label, first_s, row_s, certainty):
    def run(x):
        time.sleep(first_s + row_s * len(x))
        return np.full(len(x), label), np.full(len(x), certainty)
    return run

def small(): return model(0, {small[0]}, {small[1]}, 0.0)
def large(): return model(1, {large[0]}, {large[1]}, 1.0)
"""


def write_task(folder: Path) -> Path:
    (folder / "gearshift.toml").write_text(PROJECT)
    (folder / "model.py").write_text(MODEL.format(**TIMES_S))
    curves = []
    for name, (first_s, row_s) in TIMES_S.items():
        seconds = (first_s + row_s, first_s + row_s * BATCH)
        curves.append(RunTimeCurve(model=name, batch_sizes=(1, BATCH), median_s=seconds, p95_s=seconds))
    profile = Profile(
        operator="task",
        curves=tuple(curves),
        predictions=PredictionRecords(
            models=tuple(TIMES_S),
            quality=np.array([[0.5] * 4, [1.0] * 4]),
            certainty=np.array([[0.0] * 4, [1.0] * 4]),
            part=np.array([0, 1, 0, 1], np.int8),
        ),
        inputs=(TensorSpec(name="x", datatype="FP64", shape=(-1,)),),
        outputs=(TensorSpec(name="label", datatype="INT64", shape=(-1,)),),
        project="../gearshift.toml",
    )
    gears = [
        Gear(
            load_range=LoadRange(from_=from_, to=to),
            cascades=alone("task", cascade),
            replicas=tuple(
                ReplicaSettings(replica=f"{name}-0", load_share=float(name in cascade.models), largest_batch_size=BATCH)
                for name in TIMES_S
            ),
        )
        for from_, to, cascade in (
            (0.0, EDGE_QPS, Cascade(models=("small", "large"), thresholds=(0.5,))),
            (EDGE_QPS, None, Cascade(models=("small",))),
        )
    ]
    plan = plan_by_hand(
        "task",
        gears,
        [Replica(id=f"{name}-0", model=name, device_ids=(f"cpu-{i}",)) for i, name in enumerate(TIMES_S)],
        identical_devices(2),
        latency_s=OBJECTIVE_S,
        profile_sha256=write_profile(profile, folder / "profile").sha256,
    )
    write_plan(plan, folder / "plan.json")
    return folder / "plan.json"


async def online(url: str, seconds: float) -> list[float]:
    """Seconds from sending to answer of requests that come at random."""
    generator = np.random.default_rng(0)
    latencies: list[float] = []

    async def ask(client: AsyncClient) -> None:
        begun = time.perf_counter()
        await client.infer({"x": [1.0]})
        latencies.append(time.perf_counter() - begun)

    async with AsyncClient(url, "task", connections=64) as client, asyncio.TaskGroup() as group:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            group.create_task(ask(client))
            await asyncio.sleep(generator.exponential(1 / QPS))
    return latencies


class Table(threading.Thread):
    """Sends rows in gear 0 until it is stopped; `labels` are all that came."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.rows, self.labels, self.ends = url, 0, set[Any](), False

    def run(self) -> None:
        with open_operator(self.url, gear=0) as operator:
            while not self.ends:
                answered = gearshift.map({"x": np.ones(2000)}, operator)
                self.labels |= set(answered["label"].to_pylist())
                self.rows += len(answered)


def gear_in_force(url: str) -> int:
    with urllib.request.urlopen(f"{url}/v2/gearshift/status", timeout=10) as answer:
        return int(msgspec.json.decode(answer.read())["pipelines"][0]["gear"])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    seconds = parser.parse_args().seconds
    print(describe())
    bars = Bars()
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "gearshift", "serve", str(write_task(Path(name))), "--port", "0"]
        command += ["--audit-share", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            try:
                url = next(line for line in server.stderr if line.startswith("serving ")).split(" at ")[1].split()[0]
                without = asyncio.run(online(url, seconds))
                table = Table(url)
                table.start()
                try:
                    beside, gears = asyncio.run(watched(url, seconds))
                finally:
                    table.ends = True
                    table.join()
            finally:
                server.send_signal(signal.SIGTERM)
    for told, latencies in (("without", without), ("beside the table", beside)):
        values = np.array(latencies) * 1e3
        p50, p95 = (percentile(values, share) for share in (0.5, 0.95))
        print(f"{told:>16}: {len(values)} online requests, p50 {p50:.0f} ms, p95 {p95:.0f} ms")
    print(f"{table.rows} rows of the table, labels {sorted(table.labels)}, gears seen {sorted(gears)}")
    p95_s = [percentile(np.array(latencies), 0.95) for latencies in (without, beside)]
    bars.at_most("ms more at p95", (p95_s[1] - p95_s[0]) * 1e3, 2 * OBJECTIVE_S / 20 * 1e3)
    bars.at_most("the highest gear in force", max(gears), 0)
    bars.at_most("labels that are not the tuple's", len(table.labels - {1}), 0)
    print(bars)


async def watched(url: str, seconds: float) -> tuple[list[float], set[int]]:
    """Online requests, and the gears in force meanwhile."""
    gears: set[int] = set()

    async def look() -> None:
        while True:
            gears.add(await asyncio.to_thread(gear_in_force, url))
            await asyncio.sleep(0.2)

    looking = asyncio.create_task(look())
    try:
        return await online(url, seconds), gears
    finally:
        looking.cancel()


if __name__ == "__main__":
    main()
