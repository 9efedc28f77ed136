"""Learned caches beside what a user might take instead, on the same model, images and machine.

Dynamic int8 quantisation and bf16 through PyTorch, batch norms folded, which caches come with, torch.compile, a smaller
network distilled from the model, and a cascade of a small network before the model, whose threshold is chosen on the
images that build the caches.  Latency is of single images on one core, in rounds in turn: median over the rounds of
their mean and p99, and the range.  Lookups beside the model have a second core.  Agreement is with the model, on images
that nothing was trained or chosen on.

Learned caches and cascades can be had for any agreement, the others only for the one that they have.  So both are also
made for what each of int8, bf16 and the distilled network keeps on the images that build the caches (lookups in line,
the small network first): these rows stand beside it at equal agreement, as far as new images bear that out.

    python -m benchmarks.caches.alternatives [--data DIR --network resnet56 | --digits] [--quick]

About a quarter of an hour for digits; for resnet56 an hour and a quarter more than `cifar.py`, as the large
network teaches the distilled one (`--leave-out distilled for` spares that, and the rows at equal agreement).
"""

import warnings
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from benchmarks.caches.tasks import (
    Images,
    Run,
    Task,
    Timed,
    agreement,
    base_run,
    cached_run,
    cascade_threshold,
    cascaded,
    classes_of,
    in_turn,
    options_of,
    softened,
    task_of,
)
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import spread
from gearshift import caches
from gearshift.caches.network.tracing import chain_of
from gearshift.caches.running.concurrent_lookups import divided_cores

BASE, EVERY = "base model", "base model, all cores"
INT8, BF16, DISTILLED = FIXED = "dynamic int8", "bf16", "distilled, smaller"
"""What has the agreement that it has."""


def quantised(network: nn.Module) -> Run:
    """Linear layers with int8 weights; PyTorch quantises convolutions only statically."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return base_run(torch.ao.quantization.quantize_dynamic(network, {nn.Linear}, dtype=torch.qint8))


def in_bf16(network: nn.Module) -> Run:
    """Everything in bfloat16."""
    halved = deepcopy(network).to(torch.bfloat16)

    def run(images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return halved(torch.from_numpy(images).to(torch.bfloat16)).float().numpy()

    return run


def compiled(network: nn.Module) -> Run:
    """By PyTorch's compiler, anew for each size of batch; raises where there is no C++ compiler."""
    return base_run(torch.compile(deepcopy(network), dynamic=False))


@dataclass(frozen=True, slots=True)
class Contest:
    """A network, and the images that caches are built and thresholds are chosen by."""

    task: Task
    network: nn.Module
    build: Images

    def cascade(self, size: str, target: float) -> Run:
        """A network of that size before the large one."""
        large = base_run(self.network)
        stages = softened(base_run(self.task.network(size))), softened(large)
        base = classes_of(large, self.build[0])
        return cascaded(*stages, cascade_threshold(*stages, base, self.build[0], target))

    def with_caches(self, lookups: str, target: float) -> Run:
        """Learned caches, of what lies explored."""
        folder = self.task.caches_folder("large")
        self.task.built(self.network, self.build, folder, accuracy=target, lookups=lookups)
        return cached_run(caches.load(folder, self.network))

    def alternatives(self, target: float) -> dict[str, Callable[[], Run]]:
        """What to compare, by name, each made when asked for."""
        return {
            BASE: lambda: base_run(self.network),
            EVERY: lambda: base_run(self.network),
            "learned caches, in line": lambda: self.with_caches("inline", target),
            "learned caches, beside": lambda: self.with_caches("beside", target),
            INT8: lambda: quantised(self.network),
            BF16: lambda: in_bf16(self.network),
            "batch norms folded": lambda: base_run(chain_of(self.network).body),
            "torch.compile": lambda: compiled(self.network),
            DISTILLED: lambda: base_run(self.task.network("distilled")),
            "cascade of smaller": lambda: self.cascade("small", target),
            "cascade of distilled": lambda: self.cascade("distilled", target),
        }

    def as_agreeing_as(self, run: Run) -> dict[str, Callable[[], Run]]:
        """What keeps on these images the agreement that `run` has on them."""
        images, _ = self.build
        target = float((classes_of(run, images) == classes_of(base_run(self.network), images)).mean())
        return {
            f"caches for {target:.2%}": lambda: self.with_caches("inline", target),
            f"cascade for {target:.2%}": lambda: self.cascade("small", target),
        }


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--leave-out", nargs="*", default=[], help="rows whose name holds one of these words")
    options = parser.parse_args()
    task = task_of(options)
    print(describe(), f"PyTorch {torch.__version__}", sep=", ")
    torch.set_num_threads(1)
    cores = divided_cores(1)
    contest = Contest(task, task.network("large"), task.images("build"))
    images, labels = task.images("test")
    timed: dict[str, Timed] = {}
    waiting = deque(contest.alternatives(options.accuracy).items())
    while waiting:
        name, make = waiting.popleft()
        if set(name.replace(",", "").split()).intersection(options.leave_out):
            continue
        if name.endswith("beside") and cores is None:
            print(f"{name}: left out, as this machine has one core")
            continue
        try:
            run = make()
            run(images[:1])
        except Exception as error:  # noqa: BLE001  whatever keeps it from running is told
            print(f"\n{name}: left out, as it does not run here ({type(error).__name__}: {str(error)[:200]})")
            continue
        if name in FIXED:
            waiting.extend(contest.as_agreeing_as(run).items())
        own = frozenset({0}) if cores is None else cores.base
        timed[name] = Timed(run, own if name != EVERY or cores is None else cores.base | cores.lookups)
    rounds, rows = (2, 20) if options.quick else (options.rounds, options.rows)
    seconds = in_turn(timed, images[:rows], rounds=rounds)
    base = classes_of(timed[BASE].run, images)
    print(
        f"\n{rounds} rounds of {rows} images one by one: milliseconds, median (range); target {options.accuracy:.0%}\n"
    )
    print(f"{'':26}{'mean':>24}{'p99':>26}{'gain':>22}   accuracy   agreement on {len(images)} images")
    means = {name: each.mean(axis=1) for name, each in seconds.items()}
    for name, one in timed.items():
        p99 = np.quantile(seconds[name], 0.99, axis=1, method="higher")
        told = f"{spread(1e3 * means[name]):>24}{spread(1e3 * p99):>26}{spread(means[BASE] / means[name]):>22}"
        right = float((classes_of(one.run, images) == labels).mean())
        print(f"{name:26}{told}     {right:.2%}   {agreement(one.run, base, images)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
