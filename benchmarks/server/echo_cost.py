"""What a request costs: an echo of 16 floats through HTTP, queue, batch and worker, in a closed and an open loop."""

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

import gearshift
from benchmarks.server.closed_loop import Load, loaded
from benchmarks.server.compared import (
    BARE,
    OURS,
    PYTHON_FRONT_ENDS,
    Server,
    Setting,
    bare_uvicorn,
    installed,
    ours,
    peer,
    running,
)
from benchmarks.server.open_loop import Answers, request_bytes, send
from benchmarks.shared.tables import print_bar, print_table, spread
from gearshift.load_generator.replay_result import limit_s
from gearshift.traces.generate import steady

CONNECTIONS = (1, 64)
FEW, MANY = 16, 256
LOAD = 0.5
ROW = [round(0.01 * k + 0.1, 2) for k in range(16)]

PROJECT = """operator = "echo"
samples = "models.py:load_samples"
certainty = "top_two_difference"

[models.echo]
load = "models.py:load_echo"

[profile]
batch_sizes = [1, 2, 4, 8, 16, 32]
repeats = 5
"""
MODELS = """import numpy as np

import gearshift


def load_samples():
    x = np.random.default_rng(0).random((500, 16), dtype=np.float32)
    return gearshift.Samples(inputs=x, labels=x.argmax(axis=1))


def load_echo():
    return lambda x: x
"""


@dataclass(slots=True)
class Measured:
    """What the rounds gave, by server and connections; of the open loop p99 and the generator's lateness."""

    closed: dict[tuple[str, int], list[Load]] = field(default_factory=dict)
    open: dict[tuple[str, int], list[tuple[float, float]]] = field(default_factory=dict)
    rates: dict[str, list[float]] = field(default_factory=dict)


def echo_servers(peers: Path, folder: Path) -> dict[str, Server]:
    """Ours, with batches of up to 32, the bare HTTP library, and the peers that are installed."""
    folder.mkdir()
    (folder / "gearshift.toml").write_text(PROJECT)
    (folder / "models.py").write_text(MODELS)
    gearshift.profile(folder / "gearshift.toml", out=folder / "profile")
    trace = steady(500, 2.0, arrivals="uniform")
    gearshift.plan(folder / "profile", trace, latency_s=1.0, ranges=1, out=folder / "plan.json")
    found = {OURS: ours(folder / "plan.json", "echo", ROW, cores=None)}
    if (peers / "uvicorn").is_dir():
        found[BARE] = bare_uvicorn(peers, ROW)
    return found | {name: peer(peers, name, ROW, served=None, setting=Setting()) for name in installed(peers)}


def measure(compared: dict[str, Server], *, rounds: int, seconds: int) -> Measured:
    measured = Measured()
    for _ in range(rounds):
        for name, server in compared.items():
            with running(server) as (url, root):
                for connections in CONNECTIONS:
                    load = loaded(url, server.body, root, connections=connections, seconds=seconds)
                    measured.closed.setdefault((name, connections), []).append(load)
                rate = LOAD * load.qps
                measured.rates.setdefault(name, []).append(rate)
                for connections in (FEW, MANY):
                    told = open_loop(url, server, rate, connections=connections, seconds=seconds)
                    one = (told.p99_ms(), told.lateness_p99_ms())
                    measured.open.setdefault((name, connections), []).append(one)
    return measured


def open_loop(url: str, server: Server, rate: float, *, connections: int, seconds: float) -> Answers:
    """A constant rate for so long, after half a second to warm up."""
    request = request_bytes(url, server.body)
    for duration_s in (0.5, seconds):
        due_s = np.arange(max(1, int(rate * duration_s))) / rate
        told = send(url, [request], due_s, connections=connections)
    return told


def print_closed(measured: Measured, connections: int) -> None:
    rows = []
    for name in measured.rates:
        loads, best = measured.closed[name, connections], measured.closed.get((OURS, connections), [])
        rows.append(
            (
                name,
                spread([load.qps for load in loads], ".0f"),
                spread([load.p50_ms for load in loads]),
                spread([load.p99_ms for load in loads]),
                spread([load.cpu_us for load in loads], ".0f"),
                f"{median(load.refused for load in loads):.0%}",
                spread([us.qps / load.qps for us, load in zip(best, loads, strict=False)]),
            )
        )
    print_table(
        (f"{connections} connections", "requests/s", "p50, ms", "p99, ms", "CPU us/request", "refused", "ours/its"),
        rows,
    )


def ratios(measured: Measured, name: str) -> list[float]:
    """By round, p99 over many connections to that over few."""
    pairs = zip(measured.open[name, MANY], measured.open[name, FEW], strict=True)
    return [many / few for (many, _), (few, _) in pairs]


def kept_time(measured: Measured, name: str) -> bool:
    """Whether in the middle round the generator was as little late as `gearshift replay` demands of itself."""
    runs = [measured.open[name, connections] for connections in (FEW, MANY)]
    return all(median(late for _, late in run) <= 1e3 * limit_s(median(p99 for p99, _ in run) / 1e3) for run in runs)


def print_open(measured: Measured) -> None:
    rows = [
        (
            name,
            spread(rates, ".0f"),
            *(spread([p99 for p99, _ in measured.open[name, connections]]) for connections in (FEW, MANY)),
            spread(ratios(measured, name)),
            spread([late for connections in (FEW, MANY) for _, late in measured.open[name, connections]]),
            kept_time(measured, name),
        )
        for name, rates in measured.rates.items()
    ]
    header = ("open loop at half of that", "requests/s", f"p99 over {FEW}, ms", f"over {MANY}, ms", f"{MANY}/{FEW}")
    print_table((*header, "generator late, p99, ms", "kept its time"), rows)


def print_bars(measured: Measured) -> None:
    """The bars of a request's cost, each where what it compares was measured."""

    def middle(name: str, connections: int, figure: str) -> float | None:
        loads = measured.closed.get((name, connections))
        return None if loads is None else median(getattr(load, figure) for load in loads)

    best = middle(OURS, 64, "qps")
    python = [qps for name in PYTHON_FRONT_ENDS if (qps := middle(name, 64, "qps")) is not None]
    if best is not None and python:
        times = best / max(python)
        print_bar(times >= 5, f"at 64 connections 5x the best Python front end's requests/s (it is {times:.2f}x)")
    rust = middle("mosec", 64, "qps")
    if best is not None and rust is not None:
        print_bar(best >= 0.5 * rust, f"at 64 connections half of mosec's requests/s (it is {best / rust:.2f} of it)")
    one, bare = middle(OURS, 1, "p50_ms"), middle(BARE, 1, "p50_ms")
    if one is not None and bare is not None:
        print_bar(one - bare <= 1.0, f"one connection within 1 ms of the bare HTTP library ({one - bare:.2f} ms more)")
    if OURS in measured.rates:
        times = median(ratios(measured, OURS))
        bar = f"at half of that load p99 over {MANY} connections within 2x of that over {FEW} (it is {times:.2f}x)"
        print_bar(times <= 2, bar)
        if not kept_time(measured, OURS):
            print("not a measurement of the open loop: the generator did not keep its time")


def compare_echo(arguments: argparse.Namespace, folder: Path) -> None:
    compared = echo_servers(arguments.peers, folder / "echo")
    if arguments.only:
        compared = {name: compared[name] for name in arguments.only if name in compared}
    measured = measure(compared, rounds=arguments.rounds, seconds=arguments.seconds)
    for connections in CONNECTIONS:
        print_closed(measured, connections)
    print_open(measured)
    print_bars(measured)
