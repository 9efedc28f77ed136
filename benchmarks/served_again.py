"""Serves the plan of a demo's folder again and again: how far apart the same plan's p95 is on this machine.

The prediction is one number for all runs, so its error cannot be less than their spread.
"""

import argparse
from pathlib import Path

import numpy as np
from machine import describe

from gearshift import api
from gearshift.demo.run import GIVE_UP_S, SEED, _beside
from gearshift.demo.server_process import ServerProcess
from gearshift.plan_file import read_plan
from gearshift.profiles.store import read_profile
from gearshift.traces.read import read_trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of an earlier `gearshift demo --folder`")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    plan, profile = read_plan(folder / "plan.json"), read_profile(folder / "profile")
    trace = read_trace(folder / "trace.csv")
    predicted_s = float(np.quantile(api.simulate(plan, trace, profile=profile, seed=SEED).latency_s, 0.95))
    print(describe())
    served_ms = []
    for _ in range(arguments.runs):
        with ServerProcess(folder / "plan.json") as server, _beside(plan.hardware):
            replay = api.replay(
                server.url, trace, profile, project=folder / "gearshift.toml", seed=SEED, longest_s=GIVE_UP_S, devices=1
            )
        served_ms.append(replay.result.latency_s.p95 * 1e3)
    print(f"predicted {predicted_s * 1e3:.1f} ms; served {', '.join(f'{ms:.1f}' for ms in served_ms)} ms")
    print(f"greatest over least: {max(served_ms) / min(served_ms):.2f}")


if __name__ == "__main__":
    main()
