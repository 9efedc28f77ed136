"""Sponge live on two cores: a worker whose quota follows a 4G trace, against the simulation of the same requests.

python -m benchmarks.papers.sponge_live --data DIR [--seconds 120] [--quick]

The worker is pinned to one processor; quotas of 0.25, 0.5, 0.75 and 1 of it, at a period of 5 ms, stand for four core
counts, and are profiled so.  Client and router are on the other.  The model multiplies matrices on one thread.  For
each size of image, requests are sent at a share of what four cores bear, and `simulate_vertical` is given the same
requests, the profile and the same scaler.  A refused request is a violation.  Needs a control group that may be made.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.plan_by_hand import plan_by_hand
from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.gear import Gear, GearPlan, LoadRange, ReplicaSettings, alone
from gearshift.hardware import identical_devices
from gearshift.placement import Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import core_table_ns
from gearshift.simulator.compared.scalers import ExactScaler
from gearshift.simulator.compared.vertical import Setting, simulate_vertical
from gearshift.traces.network import Uplink, read_network
from gearshift.verbs.profile import profile as measured_profile
from gearshift.verbs.replay import replay
from gearshift.workload import Trace, Workload

SLO_S, EFFECT_S, PERIOD_S = 1.0, 0.01, 1.0
CORES, SHARE, SIZES = (1, 2, 3, 4), 0.25, (1, 2, 4, 8)
SIZES_KB, LOADS = (200, 500), (0.25, 0.6)
VIOLATIONS_WITHIN, CORES_WITHIN, LONGEST_EFFECT_S = 0.01, 0.10, 0.01

PROJECT = f"""
operator = "images"
samples = "task.py:samples"
[models.net]
load = "task.py:net"
[profile]
batch_sizes = {list(SIZES)}
repeats = REPEATS
"""
TASK = """
import gearshift
import numpy as np

def samples():
    return gearshift.Samples(inputs={"x": np.arange(20.0).reshape(20, 1)}, labels=np.array(["a"] * 20))

def net():
    weights = np.random.default_rng(0).standard_normal((320, 320)).astype(np.float32)
    def model(x):
        for _ in range(1 + 2 * len(x)):
            weights @ weights
        return {"label": np.array(["a"] * len(x), dtype=object)}, np.ones(len(x))
    return model
"""


@dataclass(frozen=True)
class Outcome:
    violations: float
    core_seconds: float


def the_plan(profile: Profile) -> GearPlan:
    """One replica that begins with all cores."""
    most = CORES[-1]
    hardware = identical_devices(1, cores=most)
    settings = ReplicaSettings(replica="net-0", load_share=1.0, largest_batch_size=SIZES[-1], cores=most)
    gear = Gear(load_range=LoadRange(from_=0), cascades=alone("images", Cascade(models=("net",))), replicas=(settings,))
    return plan_by_hand(
        "images",
        (gear,),
        (Replica(id="net-0", model="net", device_ids=("cpu-0",), cores=most),),
        hardware,
        latency_s=SLO_S,
        profile_sha256=profile.sha256,
    )


def tables_ns(profile: Profile) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Medians, and what cores are chosen by, as `gearshift serve` has them."""
    (replica,) = the_plan(profile).placement.replicas
    medians, tails = (
        core_table_ns(replica, "cpu", profile, most_cores=CORES[-1], largest=SIZES[-1], statistic=statistic)
        for statistic in ("median", "p95")
    )
    return medians, np.maximum(medians, tails)


def simulated(profile: Profile, trace: Trace, uplink: Uplink, first_cores: int) -> Outcome:
    medians, planned = tables_ns(profile)
    sent = Workload(
        arrivals_ns=trace.arrivals_ns,
        record=np.zeros(len(trace.arrivals_ns), dtype=np.int32),
        duration_s=trace.duration_s,
    )
    run = simulate_vertical(
        uplink.carry(sent).workload,
        medians.tolist(),
        ExactScaler(planned, period_s=PERIOD_S, effect_s=EFFECT_S),
        first=Setting(first_cores, SIZES[-1]),
        period_s=PERIOD_S,
        effect_s=EFFECT_S,
        gives_way=True,
    )
    return Outcome(float(run.violations.mean()), run.core_seconds)


def live(folder: Path, trace: Trace, uplink: Uplink) -> tuple[Outcome, int, str, bool]:
    """What was measured, the cores at first, and how long changes took, with whether all were short enough."""
    journal = folder / "journal.jsonl"
    journal.unlink(missing_ok=True)
    options = ["--scaler", "exact", "--core-share", str(SHARE), "--scaler-period-s", str(PERIOD_S), "--port", "0"]
    command = [sys.executable, "-m", "gearshift", "serve", str(folder / "plan.json"), "--journal", str(journal)]
    before = os.sched_getaffinity(0)
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = next(word for word in server.stderr.readline().split() if word.startswith("http"))
            os.sched_setaffinity(0, {min(before)})
            run = replay(
                url, trace, folder / "profile", uplink=uplink, slo_s=SLO_S, deadline_s=SLO_S, longest_s=10 * SLO_S
            )
            begun = time.time() - float(run.log.answered_s.max())
            with urllib.request.urlopen(f"{url}/metrics") as answer:
                metrics = answer.read().decode()
        finally:
            os.sched_setaffinity(0, before)
            server.terminate()
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    changes = [(event["at"], event["cores"]) for event in events if event["event"] == "cores"]
    changes = [(0.0, float(CORES[-1])), *changes]
    effects, short = effects_of(metrics)
    measured = Outcome(run.result.share_late, core_seconds(changes, begun, begun + trace.duration_s))
    return measured, round(next(cores for at, cores in reversed(changes) if at <= begun)), effects, short


def core_seconds(changes: list[tuple[float, float]], begun: float, ended: float) -> float:
    """Of cores that are so many from each of these instants on, the first of them before `begun`."""
    total = 0.0
    for (at, cores), (until, _) in zip(changes, [*changes[1:], (ended, 0.0)], strict=True):
        total += cores * max(0.0, min(until, ended) - max(at, begun))
    return total


def effects_of(metrics: str) -> tuple[str, bool]:
    """How many changes there were and how many took too long, in words; whether none did."""
    counts = {
        float(le): float(count)
        for le, count in re.findall(r'gearshift_core_effect_seconds_bucket\{le="([^"]+)"\} (\S+)', metrics)
    }
    whole, short = counts[float("inf")], counts[LONGEST_EFFECT_S]
    return f"{whole:.0f} changes, {whole - short:.0f} longer than {1e3 * LONGEST_EFFECT_S:.0f} ms", whole == short


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="a few seconds of one cell, to see that it works")
    parser.add_argument("--seconds", type=int, default=120)
    options = parser.parse_args()
    network = read_network(data_of(options) / "traces" / "lte_bus_0001.log")
    seconds = 6 if options.quick else options.seconds
    print(describe())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "gearshift.toml").write_text(PROJECT.replace("REPEATS", "4" if options.quick else "40"))
        (folder / "task.py").write_text(TASK)
        profile = measured_profile(folder / "gearshift.toml", out=folder / "profile", cores=CORES, core_share=SHARE)
        write_plan(the_plan(profile), folder / "plan.json")
        medians, _ = tables_ns(profile)
        most_qps = SIZES[-1] * NS_PER_S / int(medians[CORES[-1], SIZES[-1]])
        errors = [one.held_out_error for one in profile.performance if one.statistic == "median"]
        print(f"{most_qps:.0f} requests/s on 4 cores; performance model off by {100 * errors[0]:.1f} % where held out")
        print("KB   rate/s   violations live / simulated   core-seconds live / simulated   effect          bars")
        cells = [(SIZES_KB[0], LOADS[1])] if options.quick else [(kb, load) for kb in SIZES_KB for load in LOADS]
        for size_kb, load in cells:
            count = round(load * most_qps * seconds)
            trace = Trace(
                arrivals_ns=np.arange(count, dtype=np.int64) * (seconds * NS_PER_S) // count, duration_s=float(seconds)
            )
            uplink = Uplink(network, 1e3 * size_kb, SLO_S)
            here, first_cores, effect, short = live(folder, trace, uplink)
            there = simulated(profile, trace, uplink, first_cores)
            kept = (
                abs(here.violations - there.violations) <= VIOLATIONS_WITHIN
                and abs(here.core_seconds / there.core_seconds - 1) <= CORES_WITHIN
                and short
            )
            print(
                f"{size_kb:<4} {load * most_qps:<8.1f} {100 * here.violations:.2f} % / {100 * there.violations:.2f} %"
                f"   {here.core_seconds:.1f} / {there.core_seconds:.1f}   {effect}   {'kept' if kept else 'MISSED'}"
            )


if __name__ == "__main__":
    main()
