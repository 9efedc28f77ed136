"""The tail of a server whose learned caches adapt, against the same server whose caches do not, on the same trace.

The example's network for digits with learned caches, one device.  Another class dominates every 20 s, so that caches
are set for other classes and versions swapped in.  Rounds of both in turn, the other one first each time; each serves
the same arrivals and samples from the caches as they were built.  Without `--adapt` nothing is audited either, so
that no process stands beside the workers.  The ratios are of one round each: their median, and the range over rounds.

    python -m benchmarks.caches.adapt_tail [--rounds 5] [--seconds 60] [--qps 50] [--interval 10] [--change 20]
                                           [--quick]

By its parts some eleven minutes; `--quick` takes one or two and shows only that it works.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import gearshift
from benchmarks.caches.tasks import QUICK_TRAINING, digit_networks
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.class_local_streams import class_local_stream
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import spread
from gearshift import caches
from gearshift.load_generator.replay import run_replay
from gearshift.load_generator.replay_result import Replay
from gearshift.load_generator.targets import Sending
from gearshift.profiles.profile import PART_B
from gearshift.profiles.store import read_profile
from gearshift.runtime.backends.local import router_cores
from gearshift.serving.operate.child_server import ChildServer
from gearshift.support.processors import pinned
from gearshift.traces.generate import steady
from gearshift.verbs.common.inputs import workload_of
from gearshift.verbs.rows.replay import source_of
from gearshift.workload import Trace

EXAMPLE = Path(digit_networks.__file__).parent
VARIANTS = ("FC(32)", "Pool(64,32)")
TARGET = 0.9
EXPONENT = 3.0
"""Of Zipf's law of classes."""
ADAPTING, STILL = "adapting", "not adapting"


def make(folder: Path, trace: Trace, training: caches.Training) -> Path:
    """The example's network, its learned caches, and a plan for them."""
    for file in ("networks.py", "gearshift.toml"):
        shutil.copy(EXAMPLE / file, folder)
    subprocess.run([sys.executable, "networks.py"], cwd=folder, check=True)
    network = digit_networks.Network(blocks=8, width=16)
    gearshift.load_weights(network, folder / "digits.safetensors")
    with np.load(folder / "build.npz") as build:
        images, labels = build["inputs"], build["labels"]
    caches.build(network, images, labels, accuracy=TARGET, variants=VARIANTS, training=training, out=folder / "built")
    shutil.copytree(folder / "built", folder / "caches")
    gearshift.profile(folder / "gearshift.toml", out=folder / "profile")
    gearshift.write_trace(trace, folder / "trace.csv")
    gearshift.plan(folder / "profile", folder / "trace.csv", latency_s=1.0, out=folder / "plan.json")
    return folder / "plan.json"


def served(plan: Path, trace: Trace, flags: list[str], change: int, seed: int) -> tuple[Replay, int]:
    """One replay against a server with the caches as they were built, and how many other versions workers took up.

    Another class dominates after each `change` requests.
    """
    folder = plan.parent
    shutil.rmtree(folder / "caches")
    shutil.copytree(folder / "built", folder / "caches")
    profile = read_profile(folder / "profile")
    source = source_of(profile, folder / "profile", project=None, emulated=False)
    workload = workload_of(profile, trace, seed=seed)
    rows = profile.predictions.indices(PART_B)
    labels = digit_networks.digits()[1][digit_networks.BUILT :][rows]
    drawn = class_local_stream(labels, len(workload.record), exponent=EXPONENT, window=change, seed=seed)
    workload = replace(workload, record=rows[drawn.rows].astype(workload.record.dtype))
    journal = folder / "journal"
    journal.unlink(missing_ok=True)
    with (
        ChildServer(plan, "--journal", str(journal), *flags) as server,
        pinned(router_cores(gearshift.inspect(plan).hardware)),
    ):
        run = run_replay(server.url, workload, source, sending=Sending())
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    return run, sum(event["event"] == "cache_version" and event["version"] > 0 for event in events)


def main() -> int:
    parser = parser_of(__doc__, quick="small, to show only that it works")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--qps", type=float, default=50.0)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between retrainings")
    parser.add_argument("--change", type=float, default=20.0, help="seconds until another class dominates")
    options = parser.parse_args()
    change = max(1, round(options.qps * options.change))
    rounds, seconds = (1, 8.0) if options.quick else (options.rounds, options.seconds)
    interval_s = 2.0 if options.quick else options.interval
    flags = {
        STILL: ["--cache-audit-share", "0"],
        ADAPTING: ["--adapt", "cached", "--adapt-interval-s", f"{interval_s:g}"],
    }
    trace = steady(options.qps, seconds, seed=0)
    print(describe(), flush=True)
    torch.set_num_threads(1)  # as the example does
    latency_s: dict[str, list[np.ndarray]] = {name: [] for name in flags}
    with tempfile.TemporaryDirectory() as temporary:
        plan = make(Path(temporary), trace, QUICK_TRAINING if options.quick else caches.Training())
        for seed in range(rounds):
            for name in list(flags) if seed % 2 == 0 else list(flags)[::-1]:
                run, versions = served(plan, trace, flags[name], change, seed)
                one = run.result.latency_s
                latency_s[name].append(np.array([one.p50, one.p99]))
                print(
                    f"round {seed}, {name}: p50 {1e3 * one.p50:.2f} ms, p99 {1e3 * one.p99:.2f} ms, {len(run.log)} "
                    f"requests, {run.result.accuracy:.2%} right, {versions} versions taken up, "
                    f"generator {'valid' if run.valid else 'late'}",
                    flush=True,
                )
    ratios = np.array(latency_s[ADAPTING]) / np.array(latency_s[STILL])
    for name, ratio in zip(("p50", "p99"), ratios.T, strict=True):
        print(f"{name}, adapting over not: {spread(ratio, '.3f')} in {rounds} rounds")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
