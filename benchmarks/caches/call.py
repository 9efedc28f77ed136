"""What a call of a model with learned caches costs beside its module where there is nothing to look up.

One row at a time, on one core, in turn: the module, from an array to probabilities; the same with batch norms folded;
and the cached model without a cache, which also says where the row left.  One call after another, which the bar is for,
and with other memory read in between, where the processor has forgotten all that a call needs, so that each operation
of PyTorch's costs three times as much, as a few more do then.

    python -m benchmarks.caches.call [--rounds 400]

Half a minute.  The bar: 0.02 ms more than the module.
"""

import os
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.cifar_networks import DEPTHS, ResNet
from benchmarks.shared.machine import describe
from gearshift.caches.network.tracing import chain_of
from gearshift.caches.running.cached_model import CachedModel

MOST_MORE_S = 2e-5
COLD_BYTES = 32 << 20
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "three layers, no norms": (lambda: layers(3), (64,)),
    "thirty layers, no norms": (lambda: layers(30), (64,)),
    "ResNet-20": (lambda: ResNet(DEPTHS["resnet20"]), (3, 32, 32)),
}


def layers(count: int) -> nn.Module:
    """So many linear layers of 64 numbers."""
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(count)), nn.Linear(64, 10))


def as_arrays(module: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[np.ndarray], np.ndarray]:
    """A module's class probabilities, from array to array."""

    def run(rows: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return torch.softmax(module(torch.from_numpy(rows)), dim=1).numpy()

    return run


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args().rounds
    print(describe(), f"PyTorch {torch.__version__}", sep=", ")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    torch.manual_seed(0)
    bars, other = Bars(), np.ones(COLD_BYTES // 8)
    print("microseconds of processor time, medians: module, norms folded, cached model without a cache\n")
    for name, (make, shape) in NETWORKS.items():
        module = make().eval().requires_grad_(False)
        model = CachedModel(chain_of(module), {}, logits=True)
        row = np.random.default_rng(0).standard_normal((1, *shape), dtype=np.float32)
        ways = as_arrays(module), as_arrays(model.chain.body), model.predict
        for cold in (False, True):
            took = np.zeros((rounds + 20, len(ways)))
            for i in range(len(took)):
                for k, way in enumerate(ways):
                    if cold:
                        other.sum()
                    began = time.thread_time()
                    way(row)
                    took[i, k] = time.thread_time() - began
            median = np.median(took[20:], axis=0)
            told = f"{name}, {'other memory read between' if cold else 'one after another'}"
            print(f"{told:50}{''.join(f'{1e6 * each:8.0f}' for each in median)}")
            if not cold:
                bars.at_most(f"{name}: ms more than the module", 1e3 * (median[2] - median[0]), 1e3 * MOST_MORE_S)
    print(f"\n{bars}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
