"""What SQL over a plan costs beside its models: conversion per row, HTTP, operators side by side, a bad row.

Bars: conversion at most 1 us a row at 2,048 rows a call; 12,000 rows/s through HTTP with server and client on two
cores; two operators over one relation at least 1.8 times as fast as nested functions; one bad row costs one row.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa

import gearshift
import gearshift.sql
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from benchmarks.shared.plan_by_hand import plan_by_hand
from gearshift.bulk.answers import Answers
from gearshift.bulk.operator import Operator
from gearshift.cascade import Cascade
from gearshift.gear import Gear, LoadRange, ReplicaSettings, alone
from gearshift.hardware import identical_devices
from gearshift.model import TensorSpec
from gearshift.placement import Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.store import write_profile
from gearshift.sql import functions

PROJECT = """
operator = "{name}"
samples = "model.py:samples"
[models.{name}]
load = "model.py:model"
"""

MODEL = """
import time
import numpy as np

def samples(): ...

def model():
    def run(x):
        time.sleep({sleep_us}e-6 * len(x))
        if (x == {bad}).any():
            raise ValueError("a bad row")
        label = x > 0.5 if x.ndim == 1 else x[:, 0] > 0.5
        return label.astype(np.int64), np.abs(x if x.ndim == 1 else x[:, 0])
    return run
"""
BAD = 666.0


def write_task(folder: Path, name: str, *, sleep_us: float = 0.0, batch: int = 256) -> Path:
    """A project of one model that takes `sleep_us` a row and no processor, as one on an accelerator; its plan."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gearshift.toml").write_text(PROJECT.format(name=name))
    (folder / "model.py").write_text(MODEL.format(sleep_us=sleep_us, bad=BAD))
    seconds = (1e-4 + sleep_us * 1e-6, 1e-4 + sleep_us * 1e-6 * batch)
    profile = Profile(
        operator=name,
        curves=(RunTimeCurve(model=name, batch_sizes=(1, batch), median_s=seconds, p95_s=seconds),),
        predictions=PredictionRecords(
            models=(name,), quality=np.ones((1, 4)), certainty=np.ones((1, 4)), part=np.array([0, 1, 0, 1], np.int8)
        ),
        inputs=(TensorSpec(name="x", datatype="FP64", shape=(-1,)),),
        outputs=(TensorSpec(name="label", datatype="INT64", shape=(-1,)),),
        project="../gearshift.toml",
    )
    settings = ReplicaSettings(replica=f"{name}-0", load_share=1.0, largest_batch_size=batch)
    gear = Gear(load_range=LoadRange(from_=0), cascades=alone(name, Cascade(models=(name,))), replicas=(settings,))
    plan = plan_by_hand(
        name,
        [gear],
        [Replica(id=f"{name}-0", model=name, device_ids=("cpu-0",))],
        identical_devices(1),
        profile_sha256=write_profile(profile, folder / "profile").sha256,
    )
    write_plan(plan, folder / "plan.json")
    return folder / "plan.json"


class NoModel(Operator):
    """Stands for an operator: answers that were made before, so that what remains is conversion."""

    pipeline, choice = "no_model", None

    def __init__(self, spec: TensorSpec, label: TensorSpec) -> None:
        self.inputs, self.label = (spec,), label
        texts = label.datatype == "BYTES"
        self._labels = np.array([f"vendor {i % 7}" for i in range(2048)], dtype=object) if texts else np.arange(2048)
        self._certainty = np.random.default_rng(0).random(2048)

    def submit(self, inputs: Any, rows: int, end_s: float | None = None, calls: Any = None) -> "Future[Answers]":
        made = Answers.none_yet(rows)
        made.keep(np.arange(rows), self._labels[:rows], self._certainty[:rows])
        future: Future[Answers] = Future()
        future.set_result(made)
        return future

    def close(self) -> None: ...


class NoMemo:
    """In place of the memo, so that its share of the cost can be told."""

    def __init__(self, rows: int) -> None: ...

    def of(self, query: int) -> "NoMemo":
        return self

    def answers(self, keys: Any, run: Callable[[Any], Answers]) -> Answers:
        return run(np.arange(len(keys)))


def cpu_us_per_row(work: Callable[[], object], rows: int, repeats: int) -> tuple[float, float]:
    """Least and median microseconds of the processor (all threads)."""
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        work()
        times.append((time.process_time() - begun) / rows * 1e6)
    return min(times), sorted(times)[len(times) // 2]


def conversion(rows: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Microseconds a row of a query with a function, less those of the same query with a built-in one."""
    number, text = (TensorSpec(name="x", datatype=kind, shape=(-1,)) for kind in ("FP64", "BYTES"))
    vector = TensorSpec(name="x", datatype="FP32", shape=(-1, 64))
    labels = {kind: TensorSpec(name="label", datatype=kind, shape=(-1,)) for kind in ("INT64", "BYTES")}
    cases = {
        "number to number": (number, labels["INT64"], "(i * 0.5)::DOUBLE", "x"),
        "text to text": (text, labels["BYTES"], "'invoice of vendor ' || i", "length(x)"),
        "64 FLOAT to number": (vector, labels["INT64"], "[(i + j)::FLOAT FOR j IN range(64)]::FLOAT[64]", "x[1]"),
    }
    found = {}
    memos = functions.Memos
    for case, (spec, label, column, built_in) in cases.items():
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute(f"CREATE TABLE t AS SELECT {column} AS x FROM range({rows}) r(i)")

            def run(expression: str, connection: Any = connection) -> None:
                connection.execute(f"SELECT sum({expression}) FROM t").fetchall()

            base, _ = cpu_us_per_row(lambda run=run, built_in=built_in: run(built_in), rows, repeats)  # type: ignore[misc]
            for memo, kind in ((memos, "with its memo"), (NoMemo, "conversion alone")):
                functions.Memos = memo  # type: ignore[misc]
                operator: Any = NoModel(spec, label)
                with gearshift.sql.register(connection, operator):
                    work = lambda run=run: run("no_model(x).certainty")  # noqa: E731
                    least, median = cpu_us_per_row(work, rows, repeats)
                found[f"{case}, {kind}"] = (least - base, median - base)
    functions.Memos = memos  # type: ignore[misc]
    return found


def through_http(folder: Path, rows: int) -> tuple[list[float], dict[str, float]]:
    """Rows a second of three runs at a server that shares this machine, and microseconds of processor a row."""
    plan = write_task(folder, "http")
    command = [sys.executable, "-m", "gearshift", "serve", str(plan), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            url = next(line for line in server.stderr if line.startswith("serving ")).split(" at ")[1].split()[0]
            table = pa.table({"x": np.random.default_rng(0).random(rows)})
            rates = []
            with gearshift.open_operator(url) as operator:
                gearshift.map(table.slice(0, rows // 10), operator)
                before, runs = _processor_s(server.pid), 3
                for _ in range(runs):
                    begun = time.perf_counter()
                    answered = gearshift.map(table, operator)
                    rates.append(rows / (time.perf_counter() - begun))
                    assert answered["outcome"].unique().to_pylist() == ["answered"]
                after = _processor_s(server.pid)
            return rates, {who: (after[who] - before[who]) / (runs * rows) * 1e6 for who in after}
        finally:
            server.send_signal(signal.SIGTERM)


def _processor_s(server: int) -> dict[str, float]:
    process = psutil.Process(server)
    workers = [child.cpu_times() for child in process.children(recursive=True)]
    here, there = time.process_time(), process.cpu_times()
    return {
        "client": here,
        "server": there.user + there.system,
        "worker": sum(times.user + times.system for times in workers),
    }


def side_by_side(folder: Path, rows: int, sleep_us: float, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of nested functions and of streams that read from each other, in turn."""
    nested, streamed = [], []
    plans = [write_task(folder / name, name, sleep_us=sleep_us) for name in ("one", "two")]
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT random() AS x FROM range({rows}) r(i)")
        first, second = (gearshift.open_operator(plan, workers=1) for plan in plans)
        with first, second:
            gearshift.sql.register(connection, first)
            gearshift.sql.register(connection, second)
            for _ in range(repeats):
                begun = time.perf_counter()
                sql = "SELECT count(*) FROM t WHERE one_label(x) >= 0 AND two_label(x) >= 0"
                assert connection.execute(sql).fetchall() == [(rows,)]
                nested.append(time.perf_counter() - begun)
                begun = time.perf_counter()
                stream = gearshift.query(connection.sql("SELECT x FROM t"), first, prefix="one_")
                stream = gearshift.query(stream, second, prefix="two_")
                assert sum(batch.num_rows for batch in stream) == rows
                streamed.append(time.perf_counter() - begun)
    return nested, streamed


def bad_row(folder: Path, rows: int) -> int:
    """How many rows of a table with one bad one have no answer."""
    x = np.linspace(0, 1, rows)
    x[rows // 3] = BAD
    with gearshift.open_operator(write_task(folder, "rows")) as operator:
        return gearshift.map({"x": x}, operator)["label"].null_count


def main() -> None:
    options = parser_of(__doc__, quick="a tenth of the rows, once").parse_args()
    scale, repeats = (10, 1) if options.quick else (1, 5)
    print(describe(), f"DuckDB {duckdb.__version__}, Arrow {pa.__version__}")
    bars = Bars()
    costs = conversion(204_800 // scale, repeats)
    for case, (least, median) in costs.items():
        print(f"{case:>44}: {least:.2f} us a row ({median:.2f} median)")
    alone = max(least for case, (least, _) in costs.items() if case.endswith("alone"))
    bars.at_most("us of conversion a row, the dearest kind", alone, 1.0)
    with tempfile.TemporaryDirectory() as name:
        rates, costs_us = through_http(Path(name) / "http", 100_000 // scale)
        told = ", ".join(f"{who} {us:.1f}" for who, us in costs_us.items())
        print(f"processor through HTTP: {told} us a row, {2e6 / sum(costs_us.values()):,.0f} rows/s of two whole cores")
        print(f"through HTTP: {', '.join(f'{rate:,.0f}' for rate in rates)} rows/s")
        bars.at_least("rows/s through HTTP", sorted(rates)[1], 12_000)
        nested, streamed = side_by_side(Path(name) / "two", 40_960 // scale, 30.0, 1 if options.quick else 3)
        ratio = float(np.median(nested) / np.median(streamed))
        print(f"nested {json.dumps(nested)} s, streamed {json.dumps(streamed)} s: {ratio:.2f} times as fast")
        bars.at_least("times as fast with two operators side by side", ratio, 1.8)
        lost = bad_row(Path(name) / "bad", 50_000 // scale)
        bars.at_most("rows without an answer for one bad row", lost, 1)
    print(bars)


if __name__ == "__main__":
    main()
