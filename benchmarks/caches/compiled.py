"""What PyTorch's compilers would make of a model that is run in spans between learned caches, without any lookup.

A ResNet for images of 32 x 32, whole and in spans of some blocks: as the module is, with batch norms folded, by
torch.compile, and compiled ahead of time (torch.export and AOTInductor, weights frozen, so that they are laid out for
the processor once).  One row at a time, on one core and on all; weights do not matter.

    python -m benchmarks.caches.compiled [--network resnet56] [--every 2] [--rounds 9] [--quick]

Six minutes for resnet56 on two cores, nearly all of it compiling.
"""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.caches.tasks import Timed, in_turn, on_cores
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.cifar_networks import DEPTHS, ResNet
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import spread
from gearshift.caches.network.chain import Chain
from gearshift.caches.network.tracing import chain_of

Part = Callable[[torch.Tensor], torch.Tensor]
ROWS = 60


def spans_of(chain: Chain, every: int) -> list[nn.Module]:
    """The chain in spans that end after every so many segments."""
    ends = [*range(every - 1, len(chain) - 1, every), len(chain) - 1]
    begins = [0, *(end + 1 for end in ends[:-1])]
    return [chain.span(first, last) for first, last in zip(begins, ends, strict=True)]


def ahead_of_time(parts: Sequence[nn.Module], row: torch.Tensor, folder: Path) -> list[Part]:
    """Each compiled for one row."""
    made, given = list[Part](), row
    with torch.no_grad():
        for part in parts:
            path = str(folder / f"{len(list(folder.iterdir()))}.pt2")
            exported = torch.export.export(part, (given,))
            torch._inductor.aoti_compile_and_package(exported, package_path=path, inductor_configs={"freezing": True})
            made.append(torch._inductor.aoti_load_package(path))
            given = part(given)
    return made


def runs_of(module: nn.Module, every: int, row: torch.Tensor, folder: Path) -> dict[str, list[Part]]:
    """What runs one after another, by how it was made."""
    chain = chain_of(module)
    spans = spans_of(chain, every)
    made: dict[str, list[Part]] = {"module": [module], "folded": [chain.body], f"folded, {len(spans)} spans": spans}
    for name, parts in (("module", [module]), (f"{len(spans)} spans", spans)):
        for how in ("torch.compile", "ahead of time"):
            began = time.perf_counter()
            compiled = ahead_of_time(parts, row, folder) if how == "ahead of time" else [*map(torch.compile, parts)]
            with torch.inference_mode():
                through(compiled, row)
            made[f"{name}, {how}"] = compiled
            print(f"{name}, {how}: {time.perf_counter() - began:.0f} s", flush=True)
    return made


def through(parts: Sequence[Part], row: torch.Tensor) -> torch.Tensor:
    """What they answer, one after another."""
    for part in parts:
        row = part(row)
    return row


def timed_run(parts: Sequence[Part], cores: frozenset[int]) -> Timed:
    """These parts on those cores."""

    def run(rows: np.ndarray) -> None:
        with torch.inference_mode():
            through(parts, torch.from_numpy(rows))

    return Timed(run, cores)


def main() -> int:
    parser = parser_of(__doc__, quick="small, to show only that it works")
    parser.add_argument("--network", choices=list(DEPTHS), default="resnet56")
    parser.add_argument("--every", type=int, default=2, help="segments of a span")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(describe(), f"PyTorch {torch.__version__}", sep=", ")
    torch.manual_seed(0)
    module = ResNet(1 if options.quick else DEPTHS[options.network]).eval()
    images = np.random.default_rng(0).standard_normal((ROWS, 3, 32, 32), dtype=np.float32)
    every = sorted(os.sched_getaffinity(0))
    for count in sorted({1, len(every)}):
        cores = frozenset(every[:count])
        torch._dynamo.reset()
        with on_cores(cores), tempfile.TemporaryDirectory() as folder:
            runs = runs_of(module, options.every, torch.from_numpy(images[:1]), Path(folder))
            seconds = in_turn(
                {name: timed_run(parts, cores) for name, parts in runs.items()},
                images, rounds=2 if options.quick else options.rounds,
            )  # fmt: skip
        means = {name: each.mean(axis=1) for name, each in seconds.items()}
        print(f"\n{count} cores: milliseconds of a row, median (range), and how many times as fast as the module\n")
        for name, mean in means.items():
            print(f"| {name} | {spread(1e3 * mean)} | {spread(means['module'] / mean)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
