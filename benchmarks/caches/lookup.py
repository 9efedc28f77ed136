"""A lookup of one row in line, as a batch would do it and as a row alone does, in turn, for hidden outputs of ResNets.

The last columns are the clock of both between segments of a ResNet-20, where `gearshift caches build` times lookups:
there the processor's caches are full of the model, not of the predictor.

    python -m benchmarks.caches.lookup [--rounds 300]

Under a minute on one core.  Hidden outputs are those of the ResNet's second and third stage; weights do not matter.
"""

import time

import numpy as np
import torch

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.cifar_networks import DEPTHS, ResNet
from benchmarks.shared.machine import describe
from gearshift.caches.building.evaluation import measure_in_line
from gearshift.caches.network.chain import Chain
from gearshift.caches.network.learned_cache import LearnedCache, make_predictor
from gearshift.caches.network.tracing import chain_of
from gearshift.caches.network.train import Explored, Trained
from gearshift.caches.running.row_lookup import lookup_of

SHAPES = (32, 16, 16), (64, 8, 8)
IMAGE = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 3, 32, 32), dtype=np.float32))
VARIANTS = ("FC(128)", "FC(64)", "Pool(1024,128)", "Pool(512,128)", "Conv(3,1)", "Conv(5,2)")


class AsBatch(LearnedCache):
    """One that is looked up by PyTorch's operations, as what is none of ours."""


def placed(chain: Chain, variant: str, shape: tuple[int, ...], cache: LearnedCache) -> Explored:
    nothing = np.empty(0, dtype=bool)
    layer = next(i for i, hidden in enumerate(chain.hidden(IMAGE)) if hidden.shape[1:] == shape)
    return Explored(layer, variant, shape, Trained(cache, (), (), nothing, nothing))


def timed(cache: LearnedCache, hidden: torch.Tensor, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Microseconds as a batch and as a row alone: the median of processor time, and the least of the clock."""
    look = lookup_of(cache).row
    ways = (lambda: bool(cache(hidden)[1]), lambda: look(hidden))
    cpu, wall = np.zeros((rounds, 2)), np.zeros((rounds, 2))
    with torch.inference_mode():
        for i in range(-20, rounds):
            for k, way in enumerate(ways):
                began, began_cpu = time.perf_counter(), time.thread_time()
                way()
                cpu[i, k], wall[i, k] = time.thread_time() - began_cpu, time.perf_counter() - began
    return 1e6 * np.median(cpu, axis=0), 1e6 * wall.min(axis=0)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    print(describe(), f"PyTorch {torch.__version__}", sep=", ")
    torch.set_num_threads(1)
    print(
        "hidden output, variant: microseconds as a batch, as a row, share; least of the clock; between segments, share"
    )
    chain = chain_of(ResNet(DEPTHS["resnet20"]).eval().requires_grad_(False))
    for shape in SHAPES:
        kinds = [
            [kind(make_predictor(variant, shape, 10), 10).eval().requires_grad_(False) for variant in VARIANTS]
            for kind in (AsBatch, LearnedCache)
        ]
        for cache in [*kinds[0], *kinds[1]]:
            cache.threshold.fill_(np.inf)
        explored = [
            placed(chain, *one)
            for one in zip(VARIANTS * 2, [shape] * 2 * len(VARIANTS), [*kinds[0], *kinds[1]], strict=True)
        ]
        between = np.reshape(measure_in_line(chain, explored, IMAGE.numpy())[1], (2, -1))
        for variant, cache, (whole_s, row_s) in zip(VARIANTS, kinds[1], between.T, strict=True):
            (batch, row), least = timed(cache, torch.randn((1, *shape)), rounds)
            told = f"{batch:5.0f} {row:5.0f}   {row / batch:.2f}; {least[0]:5.0f} {least[1]:5.0f}; "
            told += f"{1e6 * whole_s:5.0f} {1e6 * row_s:5.0f}   {row_s / whole_s:.2f}"
            print(f"{shape!s:>12} {variant:15} {told}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
