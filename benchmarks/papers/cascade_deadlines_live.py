"""The live part of `cascade_deadlines.py`: two models that multiply matrices and answer as was recorded."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.sponge_live import core_seconds
from benchmarks.shared.plan_by_hand import plan_by_hand
from benchmarks.shared.tables import print_head, spread
from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, ReplicaSettings, alone
from gearshift.hardware import identical_devices
from gearshift.placement import Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import Profile
from gearshift.serving.operate.child_server import ChildServer
from gearshift.support.processors import pinned
from gearshift.traces.network import Uplink
from gearshift.verbs.profile import profile as measured_profile
from gearshift.verbs.replay import replay
from gearshift.workload import Trace, Workload

CORES, SHARE, SIZES, SAMPLES = (1, 2, 3, 4), 0.25, (1, 2, 4, 8), 200
Send = Callable[[float, float], NDArray[np.int64]]
"""Instants of sending, of so many requests a second for so many seconds."""
LARGE, SMALL = 5, 1
"""Matrix products of a batch, and twice as many for each of its samples."""

PROJECT = f"""
operator = "commands"
samples = "task.py:samples"
[models.small]
load = "task.py:small"
[models.large]
load = "task.py:large"
[profile]
batch_sizes = {list(SIZES)}
repeats = 12
longest_s = 4.0
"""
TASK = f"""
from pathlib import Path
import gearshift
import numpy as np

records = np.load(Path(__file__).parent / "records.npz")

def samples():
    x = np.arange({SAMPLES}, dtype=np.float64)
    return gearshift.Samples(inputs={{"x": x.reshape(-1, 1)}}, labels=np.array(["right"] * {SAMPLES}))

def answering(row, products):
    weights = np.random.default_rng(0).standard_normal((320, 320)).astype(np.float32)
    said = np.where(records["quality"][row] == 1, "right", "wrong").astype(object)
    def model(x):
        for _ in range(products * (1 + 2 * len(x))):
            weights @ weights
        asked = x[:, 0].astype(int)
        return {{"label": said[asked]}}, records["certainty"][row][asked]
    return model

def small():
    return answering(0, {SMALL})

def large():
    return answering(1, {LARGE})
"""


@dataclass(frozen=True)
class Measured:
    """Of all requests the shares in time, right and in time, and degraded; and core-seconds."""

    in_time: float
    right: float
    degraded: float
    core_seconds: float


class LiveTask:
    """A project in a folder, its profile on four shares of a processor, and a plan for each who serves."""

    def __init__(self, folder: Path, quality: NDArray[np.float64], certainty: NDArray[np.float64], threshold: float):
        np.savez(folder / "records.npz", quality=quality[:, :SAMPLES], certainty=certainty[:, :SAMPLES])
        (folder / "gearshift.toml").write_text(PROJECT)
        (folder / "task.py").write_text(TASK)
        self._folder = folder
        profile = measured_profile(folder / "gearshift.toml", out=folder / "profile", cores=CORES, core_share=SHARE)
        self.most_qps = SIZES[-1] / profile.curve("large", device_kind="cpu", cores=CORES[-1]).seconds(SIZES[-1])
        write_plan(plan_of(profile, ("large",), ()), folder / "large.json")
        write_plan(plan_of(profile, ("small", "large"), (threshold,)), folder / "cascade.json")

    def serve(self, plan: str, trace: Trace, uplink: Uplink, *, aware: bool) -> Measured:
        """Send the trace over the network; with `aware` each request says by when it wants its answer."""
        slo_s, journal = uplink.slo_s, self._folder / "journal.jsonl"
        assert slo_s is not None
        journal.unlink(missing_ok=True)
        options = ("--scaler", "exact", "--core-share", str(SHARE), "--journal", str(journal))
        with ChildServer(self._folder / f"{plan}.json", *options) as server, pinned(first_processor()):
            run = replay(
                server.url,
                trace,
                self._folder / "profile",
                uplink=uplink,
                slo_s=slo_s,
                deadline_s=slo_s if aware else None,
                longest_s=20.0,
            )
            begun = time.time() - float(run.log.answered_s.max())
        events = [json.loads(line) for line in journal.read_text().splitlines()]
        changes = [(0.0, float(CORES[-1])), *((e["at"], e["cores"]) for e in events if e["event"] == "cores")]
        n = len(run.log)
        sent = Workload(arrivals_ns=trace.arrivals_ns, record=np.zeros(n, dtype=np.int32), duration_s=trace.duration_s)
        latency_s = run.log.latency_s + uplink.carry(sent).communication_s
        in_time = run.log.answered & (latency_s <= slo_s)
        return Measured(
            float(in_time.mean()),
            float(np.where(in_time, np.nan_to_num(run.log.quality), 0).mean()),
            run.result.share_degraded,
            core_seconds(changes, begun, begun + trace.duration_s),
        )


def first_processor() -> frozenset[int]:
    return frozenset({min(os.sched_getaffinity(0))})


def plan_of(profile: Profile, models: tuple[str, ...], thresholds: tuple[float, ...]) -> GearPlan:
    """All models on one worker that begins with all cores."""
    most = CORES[-1]
    hardware = identical_devices(1, cores=most)
    (device,) = hardware.devices
    settings = tuple(
        ReplicaSettings(replica=m, load_share=1.0, largest_batch_size=SIZES[-1], cores=most) for m in models
    )
    gear = Gear(
        load_range=LoadRange(from_=0),
        cascades=alone("commands", Cascade(models=models, thresholds=thresholds)),
        replicas=settings,
    )
    replicas = tuple(Replica(id=m, model=m, device_ids=(device.id,), cores=most) for m in models)
    return plan_by_hand("commands", (gear,), replicas, hardware, latency_s=1.0, profile_sha256=profile.sha256)


WHO = (
    ("(a) largest, Sponge", "large", True),
    ("(b) cascade", "cascade", False),
    ("(c) cascade, deadlines", "cascade", True),
)


def live(
    quality: NDArray[np.float64],
    certainty: NDArray[np.float64],
    threshold: float,
    traces: Mapping[str, tuple[Send, Uplink]],
    load: float,
    seconds: float,
    rounds: int,
) -> None:
    """Serve the traces, each given by when its requests are sent and over what, and print a table.

    A round of a trace has everyone once, so that all meet the same spells of the host.
    """
    with tempfile.TemporaryDirectory() as name:
        task = LiveTask(Path(name), quality, certainty, threshold)
        print(f"\nlive: the large model bears {task.most_qps:.1f} requests/s on a whole processor")
        print_head("| trace | load | who | mean cores | in time, % | right, % | degraded, % |")
        for trace_name, (send, uplink) in traces.items():
            trace = Trace(arrivals_ns=send(load * task.most_qps, seconds), duration_s=seconds)
            runs: dict[str, list[Measured]] = {who: [] for who, _, _ in WHO}
            for _ in range(rounds):
                for who, plan, aware in WHO:
                    runs[who].append(task.serve(plan, trace, uplink, aware=aware))
            for who, found in runs.items():
                print(f"| {trace_name} | {load:g} | {who} | {row(found, seconds)} |", flush=True)


def row(found: Sequence[Measured], seconds: float) -> str:
    """Its columns: median, least and most of the rounds."""
    columns = (
        spread([one.core_seconds / seconds for one in found]),
        *(
            spread([100 * share for share in shares])
            for shares in zip(*((one.in_time, one.right, one.degraded) for one in found), strict=True)
        ),
    )
    return " | ".join(columns)
