"""Goodput of a plan that refines, at three times what its first model can screen, and how soon it is well again.

A real server with two real models on one worker; clients give no deadline.  The defaults are to reach nine tenths of
the goodput of the best bound on waiting requests set by hand, and requests are to be in time again 2 s after the load
has fallen to half of what the first model carries: from then on, at most 5 % in each half second, which is what the
objective's percentile allows, are late or refused.  The last late or refused request of all is told beside.  Bounds
and defaults are served in turn, `--rounds` times.
"""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

import gearshift
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.plan_by_hand import plan_by_hand
from benchmarks.shared.tables import print_bar, print_table, spread
from gearshift.cascade import Cascade, ExpectedGain
from gearshift.gear import Gear, LoadRange, ReplicaSettings, alone
from gearshift.hardware import identical_devices
from gearshift.placement import Replica
from gearshift.planner.refine.way import WAY_BACK
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.store import read_profile
from gearshift.serving.operate.child_server import ChildServer
from gearshift.traces.generate import steady
from gearshift.verbs.replay import replay
from gearshift.workload import PlannedLoad, Trace

OVERLOAD, CALM, OVERLOAD_S, CALM_S = 3.0, 0.5, 8.0, 6.0
OBJECTIVE_S, LARGEST, WELL_AGAIN_S, LEAST_GOODPUT = 0.3, 8, 2.0, 0.9
WINDOW_S, MOST_LATE = 0.5, 0.05
BOUNDS = (8, 16, 32, 64, 128)

PROJECT = """
operator = "work"
samples = "task.py:samples"
[models.small]
load = "task.py:small"
[models.large]
load = "task.py:large"
[profile]
batch_sizes = [1, 2, 4, 8]
repeats = 12
longest_s = 6.0
"""
TASK = """
import gearshift
import numpy as np

def samples():
    x = np.arange(100, dtype=np.float64)
    return gearshift.Samples(inputs={"x": x.reshape(-1, 1)}, labels=np.array(["right"] * 100))

def net(products, certainty, label):
    weights = np.random.default_rng(0).standard_normal((320, 320)).astype(np.float32)
    def model(x):
        for _ in range(products * (4 + len(x))):
            weights @ weights
        odd = x[:, 0] % 2 == 1
        return {"label": np.where(odd, label, "right").astype(object)}, np.where(odd, certainty, 1.0)
    return model

def small():
    return net(2, 0.0, "wrong")

def large():
    return net(8, 1.0, "right")
"""


def make(folder: Path) -> None:
    """Project, profile and plan: two models on one core; every other row gains from the second."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gearshift.toml").write_text(PROJECT)
    (folder / "task.py").write_text(TASK)
    profile = gearshift.profile(folder / "gearshift.toml", out=folder / "profile")
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades=alone("work", Cascade(models=("small", "large"), thresholds=(0.5,))),
        replicas=tuple(
            ReplicaSettings(replica=f"{model}-0", load_share=1.0, largest_batch_size=LARGEST)
            for model in ("small", "large")
        ),
        order="gain",
        answer_by_margin_s=WAY_BACK * profile.front_end_s,
    )
    plan = plan_by_hand(
        "work",
        (gear,),
        tuple(Replica(id=f"{model}-0", model=model, device_ids=("cpu-0",)) for model in ("small", "large")),
        identical_devices(1),
        latency_s=OBJECTIVE_S,
        profile_sha256=profile.sha256,
        gains=(ExpectedGain(kept="small", later="large", certainty=(0.0, 0.5), gain=(1.0, 0.0)),),
        planned_load=PlannedLoad(shares=(1.0,), over_s=60.0),
    )
    write_plan(plan, folder / "plan.json")


def overload(carries_qps: float, seed: int) -> Trace:
    """Three times what the first model carries, then half of it."""
    first, then = (steady(share * carries_qps, s, seed=seed) for share, s in ((OVERLOAD, OVERLOAD_S), (CALM, CALM_S)))
    arrivals_ns = np.concatenate([first.arrivals_ns, then.arrivals_ns + round(OVERLOAD_S * 1e9)])
    return Trace(arrivals_ns=arrivals_ns, duration_s=OVERLOAD_S + CALM_S)


class Served(NamedTuple):
    """Requests in time for each second of overload, and how long after it some were still late or refused.

    `well_after_s`: more than `MOST_LATE` of a window; `last_after_s`: any.
    """

    goodput_qps: float
    well_after_s: float
    last_after_s: float


def served(folder: Path, carries_qps: float, seed: int, *flags: str) -> Served:
    with ChildServer(folder / "plan.json", *flags) as server:
        run = replay(
            server.url,
            overload(carries_qps, seed),
            folder / "profile",
            project=folder / "gearshift.toml",
            slo_s=OBJECTIVE_S,
            largest_lateness_s=10.0,
        )
    log = run.log
    in_time = log.answered & (log.latency_s <= OBJECTIVE_S)
    goodput_qps = float(np.count_nonzero(in_time & (log.due_s < OVERLOAD_S))) / OVERLOAD_S
    after_s, bad = log.due_s - OVERLOAD_S, ~in_time
    windows = np.arange(0, CALM_S, WINDOW_S)
    unwell = [
        from_s for from_s in windows if bad[(after_s >= from_s) & (after_s < from_s + WINDOW_S)].mean() > MOST_LATE
    ]
    last_s = float(after_s.max(where=bad, initial=0.0))
    return Served(goodput_qps, float(max(unwell) + WINDOW_S) if unwell else 0.0, last_s)


def main() -> None:
    parser = parser_of(__doc__, quick="one round of one bound: no measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where project, profile and plan are, or are made")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="gearshift-"))
    if not (folder / "plan.json").exists():
        make(folder)
    rounds, bounds = (1, BOUNDS[1:2]) if asked.quick else (asked.rounds, BOUNDS)
    curve = next(curve for curve in read_profile(folder / "profile").curves if curve.model == "small")
    carries_qps = LARGEST / float(curve.table_ns()[LARGEST] / 1e9)
    ways = {"defaults": ()} | {f"at most {bound}": ("--most-waiting-requests", str(bound)) for bound in bounds}
    found: dict[str, list[Served]] = {name: [] for name in ways}
    for seed in range(rounds):
        for name, flags in ways.items():
            found[name].append(served(folder, carries_qps, seed, *flags))
    print(describe())
    print(f"the first model carries {carries_qps:.0f}/s by its profile")
    rows = [
        (
            name,
            spread([run.goodput_qps / carries_qps for run in each]),
            spread([run.well_after_s for run in each]),
            spread([run.last_after_s for run in each]),
        )
        for name, each in found.items()
    ]
    header = ("waiting", "in time, of what it carries", "s until 95 % are in time again", "s until all are")
    print_table(header, rows)
    goodput = {name: float(np.median([run.goodput_qps for run in each])) for name, each in found.items()}
    best = max(qps for name, qps in goodput.items() if name != "defaults")
    share = goodput["defaults"] / best
    print_bar(share >= LEAST_GOODPUT, f"goodput at least {LEAST_GOODPUT:g} of the best bound by hand ({share:.2f})")
    slowest_s = max(run.well_after_s for run in found["defaults"])
    print_bar(slowest_s <= WELL_AGAIN_S, f"in time again {WELL_AGAIN_S:g} s after overload ({slowest_s:.1f} s)")


if __name__ == "__main__":
    main()
