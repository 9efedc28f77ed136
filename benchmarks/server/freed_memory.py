"""What it brings that workers keep the memory that they free: a batch of a network, with and without, in turn.

A ResNet-56 for 32 x 32 pixels with random weights, on one thread, each time in a process of its own, by batch size:
milliseconds a batch as glibc is, with `keep_freed_memory`, and their ratio; median and range over rounds.

    python -m benchmarks.server.freed_memory [--rounds 5] [--batches 40]

Two minutes.
"""

import json
import subprocess
import sys
import time

import numpy as np
import torch

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.cifar_networks import DEPTHS, ResNet
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_head, spread
from gearshift.support.kept_memory import keep_freed_memory

MODULE = "benchmarks.server.freed_memory"
SIZES = (1, 8, 16, 32, 64)
WAYS = ("as it is", "kept")
WARM_UP = 5


def timed(way: str, batches: int) -> list[float]:
    """Median seconds of a batch by size, in this process."""
    if way == "kept":
        keep_freed_memory()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network, found = ResNet(DEPTHS["resnet56"]).eval(), []
    with torch.inference_mode():
        for size in SIZES:
            seconds = []
            for _ in range(WARM_UP + batches):
                images = torch.rand((size, 3, 32, 32))
                began = time.perf_counter()
                network(images)
                seconds.append(time.perf_counter() - began)
            found.append(float(np.median(seconds[WARM_UP:])))
    return found


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--way", choices=WAYS, help="of this process alone, as JSON")
    options = parser.parse_args()
    if options.way is not None:
        print(json.dumps(timed(options.way, options.batches)))
        return 0
    print(describe(), f"PyTorch {torch.__version__}, one thread", sep=", ")
    found: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for number in range(options.rounds):
        for way in WAYS if number % 2 == 0 else WAYS[::-1]:
            command = (sys.executable, "-m", MODULE, "--way", way, "--batches", str(options.batches))
            found[way].append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    plain, kept = (np.array(found[way]) for way in WAYS)
    print_head("| batch | as it is, ms | kept, ms | kept over it |")
    for i, size in enumerate(SIZES):
        cells = (spread(1e3 * plain[:, i]), spread(1e3 * kept[:, i]), spread(kept[:, i] / plain[:, i]))
        print(f"| {size} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
