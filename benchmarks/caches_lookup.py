"""A lookup of one row in line, as a batch would do it and as a row alone does, in turn, for hidden outputs of ResNets.

    python benchmarks/caches_lookup.py [--rounds 300]

Under a minute on one core.  Shapes are those of a ResNet-20's second and third stage; weights do not matter.
"""

import argparse
import time

import numpy as np
import torch
from machine import describe

from gearshift.caches.networks import LearnedCache, make_predictor
from gearshift.caches.single import row_lookup

SHAPES = (32, 16, 16), (64, 8, 8)
VARIANTS = ("FC(128)", "FC(64)", "Pool(1024,128)", "Pool(512,128)", "Conv(3,1)", "Conv(5,2)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    print(describe(), f"PyTorch {torch.__version__}", sep=", ")
    torch.set_num_threads(1)
    print(
        "hidden output, variant: microseconds as a batch, as a row, share; median of processor time, least of the clock"
    )
    for shape in SHAPES:
        for variant in VARIANTS:
            cache = LearnedCache(make_predictor(variant, shape, 10), 10).eval().requires_grad_(False)
            cache.threshold.fill_(np.inf)
            hidden, look = torch.randn((1, *shape)), row_lookup(cache)
            ways = (lambda: bool(cache(hidden)[1]), lambda: look(hidden))  # noqa: B023 - called within the round
            cpu, wall = np.zeros((rounds, 2)), np.zeros((rounds, 2))
            with torch.inference_mode():
                for i in range(-20, rounds):
                    for k, way in enumerate(ways):
                        began, began_cpu = time.perf_counter(), time.thread_time()
                        way()
                        cpu[i, k], wall[i, k] = time.thread_time() - began_cpu, time.perf_counter() - began
            (batch, row), least = 1e6 * np.median(cpu, axis=0), 1e6 * wall.min(axis=0)
            told = f"{batch:5.0f} {row:5.0f}   {row / batch:.2f}; {least[0]:5.0f} {least[1]:5.0f}"
            print(f"{shape!s:>12} {variant:15} {told}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
