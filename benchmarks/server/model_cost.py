"""A real model at saturation: samples per second through each server, and of the model alone in a loop.

The models are the demo's: of `medium` one sample takes about 2 ms, and of `small` a batch of eight.  The loop has the
very core that the model has when served; router and client have the other.  Each round has the loop and each server
once, and ours twice, the second time with workers that sleep between batches.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import gearshift
from benchmarks.server.closed_loop import Load, loaded
from benchmarks.server.compared import (
    HERE,
    OURS,
    Cores,
    Served,
    Server,
    Setting,
    environment,
    installed,
    ours,
    peer,
    running,
)
from benchmarks.server.digit_models import OPERATOR, Digits, capacities, profiled, trained
from benchmarks.shared.tables import print_bar, print_table, spread
from gearshift.support.processors import pinned
from gearshift.traces.generate import steady

CONNECTIONS = 64
PART = 0.95
ASLEEP = "gearshift, asleep"


def bare(served: Served, row: list[float], *, seconds: float) -> tuple[int, float]:
    """The best batch size, and samples per second with it."""
    command = (sys.executable, str(HERE / "peers" / "bare_model.py"), json.dumps(row), str(seconds))
    settings = {**os.environ, **environment(served, Setting())}
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=settings).stdout)
    return told["batch"], told["qps"]


def compare_models(arguments: argparse.Namespace, folder: Path, cores: Cores) -> None:
    digits = trained(folder, quick=arguments.quick)
    for model in arguments.models:
        compare_model(arguments, digits, model, cores)


def compare_model(arguments: argparse.Namespace, digits: Digits, model: str, cores: Cores) -> None:
    row, served = digits.rows[0], digits.served(model, cores)
    profile = profiled(digits, (model,), quick=arguments.quick)
    plan = profile.parent / "plan.json"
    trace = steady(0.5 * capacities(profile)[model], 5.0, seed=1)
    gearshift.plan(profile, trace, latency_s=2.0, ranges=1, out=plan)
    compared: dict[str, Server] = {
        OURS: ours(plan, OPERATOR, row, cores=cores),
        ASLEEP: ours(plan, OPERATOR, row, "--awake-s=0", cores=cores),
    }
    for name in installed(arguments.peers):
        compared[name] = peer(arguments.peers, name, row, served=served, setting=Setting())
    if arguments.only:
        compared = {name: compared[name] for name in arguments.only if name in compared}
    alone: list[tuple[int, float]] = []
    loads: dict[str, list[Load]] = {name: [] for name in compared}
    for _ in range(arguments.rounds):
        alone.append(bare(served, row, seconds=arguments.seconds))
        for name, server in compared.items():
            with running(server) as (url, root), pinned(frozenset((cores.front,))):
                loads[name].append(loaded(url, server.body, root, connections=CONNECTIONS, seconds=arguments.seconds))
    show(model, alone, loads)


def show(model: str, alone: list[tuple[int, float]], loads: dict[str, list[Load]]) -> None:
    of_alone = {
        name: [load.qps / qps for load, (_, qps) in zip(each, alone, strict=True)] for name, each in loads.items()
    }
    sizes = sorted({batch for batch, _ in alone})
    in_loop = f"in a loop, batches of {' or '.join(map(str, sizes))}"
    print_table(
        (f"{model}, {CONNECTIONS} connections", "samples/s", "of the loop's", "p50, ms", "refused"),
        [
            (in_loop, spread([qps for _, qps in alone], ".0f"), "1", "-", "-"),
            *(
                (
                    name,
                    spread([load.qps for load in each], ".0f"),
                    spread(of_alone[name], ".3f"),
                    spread([load.p50_ms for load in each], ".1f"),
                    f"{median(load.refused for load in each):.0%}",
                )
                for name, each in loads.items()
            ),
        ],
    )
    if OURS in of_alone:
        part = median(of_alone[OURS])
        print_bar(part >= PART, f"{PART:.0%} of the samples/s of {model} alone in a loop (it is {part:.1%})")
