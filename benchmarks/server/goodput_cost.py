"""Goodput when the load is three times what the largest model alone can carry: answers within their deadline.

Ours serves the plan that `gearshift plan` makes of the demo's four models for that load.  Each peer serves the largest
model alone, and in rows of its own the most accurate model that can carry the load alone.  A peer's batch size and the
bound of its queue are those of a few values with which it did best in a short search.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

import gearshift
from benchmarks.server.compared import OURS, Cores, Server, Setting, installed, ours, peer, running
from benchmarks.server.digit_models import OPERATOR, Digits, accuracies, capacities, profiled, trained
from benchmarks.server.open_loop import request_bytes, send
from benchmarks.shared.tables import print_bar, print_table, spread
from gearshift.demo import task
from gearshift.load_generator.replay_result import limit_s
from gearshift.support.processors import pinned
from gearshift.traces.generate import steady

TIMES_LARGEST, TIMES_PEER = 3.0, 2.0
CONNECTIONS = 1024
BATCHES = (1, 8, 32)
BOUNDS = ((0.5, True), (0.9, True), (0.5, False))
"""Parts of the deadline that a peer's queue may take, in requests, and whether by the clock as well."""
WARM_UP_S = np.arange(60) / 30
LEAST_MARGIN = 1.35


@dataclass(frozen=True, slots=True)
class Good:
    """Of one run: answers in time per second and their share, right ones among them, and the generator's lateness."""

    qps: float
    share: float
    accuracy: float
    lateness_ms: float


@dataclass(frozen=True, slots=True)
class Question:
    """What everyone is asked: samples in an order, when, and by when they want to be answered."""

    digits: Digits
    due_s: NDArray[np.float64]
    deadline_s: float

    def asked_of(self, server: Server, cores: Cores) -> Good:
        """One run against a server that is started for it."""
        headers = [f"x-slo-ms: {1000 * self.deadline_s:g}"]  # which peers do not know
        bodies = [server.body_of(row) for row in self.digits.rows]
        with running(server) as (url, _), pinned(frozenset((cores.front,))):
            requests = [request_bytes(url, body, headers) for body in bodies]
            send(url, requests, WARM_UP_S, connections=4)
            told = send(url, requests, self.due_s, connections=CONNECTIONS, give_up_s=self.deadline_s, keep=True)
        in_time = (told.status == 200) & (told.latency_s <= self.deadline_s)
        labels = self.digits.labels
        right = [label_of(told.bodies[k]) == labels[k % len(labels)] for k in np.flatnonzero(in_time)]
        return Good(
            qps=float(in_time.sum() / self.due_s[-1]),
            share=float(in_time.mean()),
            accuracy=float(np.mean(right)) if right else float("nan"),
            lateness_ms=told.lateness_p99_ms(),
        )


def label_of(body: bytes) -> int:
    answer = json.loads(body)
    return int((answer["outputs"][0] if "outputs" in answer else answer)["data"][0])


def question(digits: Digits, qps: float, seconds: float, deadline_s: float, *, seed: int) -> Question:
    """Poisson arrivals for so long."""
    return Question(digits, steady(qps, seconds, seed=seed).arrivals_ns / 1e9, deadline_s)


@dataclass(frozen=True, slots=True)
class Rivals:
    """How each peer serves a model alone."""

    peers: Path
    digits: Digits
    cores: Cores
    capacity_qps: dict[str, float]

    def server(self, name: str, model: str, setting: Setting) -> Server:
        served = self.digits.served(model, self.cores)
        return peer(self.peers, name, self.digits.rows[0], served=served, setting=setting)

    def settings(self, model: str, deadline_s: float, *, quick: bool) -> list[Setting]:
        """Batch sizes and bounds to try; a bound in requests is what the model answers within the bound."""
        made = [
            Setting(
                batch,
                part * deadline_s if timed else None,
                max(batch, round(part * deadline_s * self.capacity_qps[model])),
            )
            for batch, (part, timed) in product(BATCHES, BOUNDS)
        ]
        return made[-1:] if quick else made

    def best(self, name: str, model: str, settings: Sequence[Setting], asked: Question) -> Setting:
        """The setting with the most goodput, or the only one."""
        if len(settings) == 1:
            return settings[0]

        def goodput(setting: Setting) -> float:
            return asked.asked_of(self.server(name, model, setting), self.cores).qps

        return max(settings, key=goodput)


def largest_and_fallback(profile: Path, qps: float) -> tuple[str, str]:
    """The slowest model, and the most accurate of those that can carry the load; the fastest where none can."""
    capacity, accuracy = capacities(profile), accuracies(profile)
    able = [model for model in capacity if capacity[model] >= qps]
    fallback = max(able, key=accuracy.__getitem__) if able else max(capacity, key=capacity.__getitem__)
    return min(capacity, key=capacity.__getitem__), fallback


def compare_goodput(arguments: argparse.Namespace, folder: Path, cores: Cores) -> None:
    digits = trained(folder, quick=arguments.quick)
    profile = profiled(digits, task.MODEL_NAMES, quick=arguments.quick)
    capacity, deadline_s = capacities(profile), arguments.deadline_ms / 1e3
    load_qps = TIMES_LARGEST * min(capacity.values())
    if arguments.quick:
        load_qps = min(load_qps, 100.0)
    largest, fallback = largest_and_fallback(profile, load_qps)
    plan = profile.parent / "plan.json"
    trace = steady(load_qps, 10.0, seed=1)
    gearshift.plan(profile, trace, latency_s=deadline_s, percentile=0.99, least_margin=LEAST_MARGIN, out=plan)
    print(
        f"load {load_qps:.0f}/s, of which {largest} alone carries {capacity[largest]:.0f}/s and {fallback} alone "
        f"{capacity[fallback]:.0f}/s; deadline {arguments.deadline_ms:g} ms"
    )
    rivals = Rivals(arguments.peers, digits, cores, capacity)
    searched = question(digits, load_qps, max(1.0, arguments.seconds / 2), deadline_s, seed=2)
    compared: dict[tuple[str, str], tuple[str, Server]] = {
        (OURS, "plan"): ("-", ours(plan, OPERATOR, digits.rows[0], cores=cores))
    }
    for model, name in product(dict.fromkeys((largest, fallback)), installed(arguments.peers)):
        if arguments.only is None or name in arguments.only:
            tried = rivals.settings(model, deadline_s, quick=arguments.quick)
            setting = rivals.best(name, model, tried, searched)
            timed = "" if setting.bound_s is None else f", {1e3 * setting.bound_s:.0f} ms"
            told = f"batch {setting.batch}, {setting.waiting} waiting{timed}"
            compared[name, model] = told, rivals.server(name, model, setting)
            print(f"{name} with {model} does best with {told}", flush=True)
    runs: dict[tuple[str, str], list[Good]] = {who: [] for who in compared}
    for number in range(arguments.rounds):
        asked = question(digits, load_qps, arguments.seconds, deadline_s, seed=3 + number)
        for who, (_, server) in compared.items():
            runs[who].append(asked.asked_of(server, cores))
    show(runs, {who: told for who, (told, _) in compared.items()}, largest, deadline_s)


def show(
    runs: dict[tuple[str, str], list[Good]], settings: dict[tuple[str, str], str], largest: str, deadline_s: float
) -> None:
    best = runs[OURS, "plan"]
    rows = [
        (
            name,
            model,
            settings[name, model],
            spread([good.qps for good in goods], ".0f"),
            f"{median(good.share for good in goods):.1%}",
            f"{median(good.accuracy for good in goods):.2%}",
            spread([us.qps / good.qps if good.qps else float("inf") for us, good in zip(best, goods, strict=True)]),
            spread([good.lateness_ms for good in goods]),
        )
        for (name, model), goods in runs.items()
    ]
    header = ("server", "model", "best of settings", "in time/s", "share in time", "accuracy of those", "ours/its")
    print_table((*header, "generator late, p99, ms"), rows)
    alone = [median(good.qps for good in goods) for (_, model), goods in runs.items() if model == largest]
    if alone and max(alone) > 0:
        times = median(good.qps for good in best) / max(alone)
        bar = f"{TIMES_PEER:g}x the goodput of the best peer that serves the largest model (it is {times:.2f}x)"
        print_bar(times >= TIMES_PEER, bar)
    late_ms = max(median(good.lateness_ms for good in goods) for goods in runs.values())
    if late_ms > 1e3 * limit_s(deadline_s):
        print(f"not a measurement: the generator was {late_ms:.1f} ms late at p99")
