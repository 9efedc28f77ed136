"""Learned caches beside what a user might take instead, on the same model, images and machine.

Dynamic int8 quantisation and bf16 through PyTorch, torch.compile, a smaller network distilled from the model, and a
cascade of a small network before the model, whose threshold is chosen on the images that build the caches.  Latency is
of single images on one core, in rounds in turn: median over the rounds of their mean and p99, and the range.  Lookups
beside the model have a second core.  Agreement is with the model, on images that nothing was trained or chosen on.

    python benchmarks/caches_alternatives.py [--data DIR --network resnet56 | --digits] [--quick]

About ten minutes for digits; for resnet56 an hour more than `caches_cifar.py`, as the large network teaches the
distilled one.
"""

import warnings
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch
from cache_tasks import (
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
    spread,
    task_of,
)
from machine import describe
from torch import nn

from gearshift import caches
from gearshift.caches.beside import divided

BASE, EVERY = "base model", "base model, all cores"


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


def alternatives(task: Task, network: nn.Module, build: Images, target: float) -> dict[str, Callable[[], Run]]:
    """What to compare, by name, each made when asked for."""
    large = base_run(network)

    def cascade(size: str) -> Run:
        stages = softened(base_run(task.network(size))), softened(large)
        base = classes_of(large, build[0])
        return cascaded(*stages, cascade_threshold(*stages, base, build[0], target))

    def with_caches(lookups: str) -> Run:
        folder = task.caches_folder("large")
        task.built(network, build, folder, accuracy=target, lookups=lookups)
        return cached_run(caches.load(folder, network))

    return {
        BASE: lambda: large,
        EVERY: lambda: large,
        "learned caches, in line": lambda: with_caches("inline"),
        "learned caches, beside": lambda: with_caches("beside"),
        "dynamic int8": lambda: quantised(network),
        "bf16": lambda: in_bf16(network),
        "torch.compile": lambda: compiled(network),
        "distilled, smaller": lambda: base_run(task.network("distilled")),
        "cascade of smaller": lambda: cascade("small"),
        "cascade of distilled": lambda: cascade("distilled"),
    }


def main() -> int:
    options = options_of(__doc__).parse_args()
    task = task_of(options)
    print(describe(), f"PyTorch {torch.__version__}", sep=", ")
    torch.set_num_threads(1)
    cores = divided(1)
    network, build = task.network("large"), task.images("build")
    images, labels = task.images("test")
    timed: dict[str, Timed] = {}
    for name, make in alternatives(task, network, build, options.accuracy).items():
        if name.endswith("beside") and cores is None:
            print(f"{name}: left out, as this machine has one core")
            continue
        try:
            run = make()
            run(images[:1])
        except Exception as error:  # noqa: BLE001  whatever keeps it from running is told
            print(f"\n{name}: left out, as it does not run here ({type(error).__name__}: {str(error)[:200]})")
            continue
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
