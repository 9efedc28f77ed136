"""Goodput under overload: an open loop sends more than a plan carries to a real server with a real model.

`python -m benchmarks.server.overload_live [--deadlines] [--rounds 4] [--folder FOLDER] [flags of serve]`.  The model is
profiled once, into the folder.  Requests come at 2.75 times what batches of 8 carry, for 8 s a round; in time is
within 600 ms of being due, which is the plan's objective and, with `--deadlines`, each client's deadline.  Another
checkout's package is measured with PYTHONPATH.
"""

import tempfile
from pathlib import Path

import gearshift
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.plan_by_hand import plan_by_hand
from benchmarks.shared.tables import spread
from gearshift.cascade import Cascade
from gearshift.gear import Gear, LoadRange, ReplicaSettings, alone
from gearshift.hardware import identical_devices
from gearshift.placement import Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.store import read_profile
from gearshift.serving.operate.child_server import ChildServer
from gearshift.traces.generate import steady
from gearshift.verbs.replay import replay

LOAD, SECONDS, OBJECTIVE_S, LARGEST = 2.75, 8.0, 0.6, 8

PROJECT = """
operator = "work"
samples = "task.py:samples"
[models.net]
load = "task.py:net"
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

def net():
    weights = np.random.default_rng(0).standard_normal((320, 320)).astype(np.float32)
    def model(x):
        for _ in range(10 + 8 * len(x)):
            weights @ weights
        return {"label": np.array(["right"] * len(x), dtype=object)}, np.ones(len(x))
    return model
"""


def make(folder: Path) -> None:
    """Project, profile and plan: one model on one core."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gearshift.toml").write_text(PROJECT)
    (folder / "task.py").write_text(TASK)
    profile = gearshift.profile(folder / "gearshift.toml", out=folder / "profile")
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades=alone("work", Cascade(models=("net",))),
        replicas=(ReplicaSettings(replica="net-0", load_share=1.0, largest_batch_size=LARGEST),),
    )
    plan = plan_by_hand(
        "work",
        (gear,),
        (Replica(id="net-0", model="net", device_ids=("cpu-0",)),),
        identical_devices(1),
        latency_s=OBJECTIVE_S,
        profile_sha256=profile.sha256,
    )
    write_plan(plan, folder / "plan.json")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--deadlines", action="store_true")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--folder", type=Path)
    given, flags = parser.parse_known_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="gearshift-"))
    if not (folder / "plan.json").exists():
        make(folder)
    curve = read_profile(folder / "profile").curves[0]
    carries_qps = LARGEST / float(curve.table_ns()[LARGEST] / 1e9)
    goodput, late, refused, p95 = [], [], [], []
    for seed in range(given.rounds):
        with ChildServer(folder / "plan.json", *flags) as server:
            run = replay(
                server.url,
                steady(LOAD * carries_qps, SECONDS, seed=seed),
                folder / "profile",
                project=folder / "gearshift.toml",
                slo_s=OBJECTIVE_S,
                deadline_s=OBJECTIVE_S if given.deadlines else None,
                largest_lateness_s=10.0,
            )
        result = run.result
        goodput.append(result.goodput_qps / carries_qps)
        late.append(1 - (1 - result.share_late) / (1 - result.share_refused))
        refused.append(result.share_refused)
        p95.append(1e3 * result.latency_s.p95)
    print(f"carries {carries_qps:.0f}/s by its profile")
    print(f"in time, of what it carries: {spread(goodput)}")
    print(f"late, of those answered: {spread(late)}; refused: {spread(refused)}; p95 {spread(p95)} ms")


if __name__ == "__main__":
    main()
