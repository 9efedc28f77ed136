"""What the benchmarks of learned caches share: networks for digits or, where the data are, CIFAR-10; timing in turn."""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.cifar_networks import DEPTHS, PADDING, ResNet, altered, fine_tuned, home_of, images_of, published
from examples.learned_caches import networks as digit_networks
from gearshift import caches
from gearshift.caches.building.exploration import Exploration, explore_module
from gearshift.models.certainty import softmax, top_two_difference
from gearshift.result import wilson_interval
from gearshift.support.kept_memory import keep_freed_memory

SIZES = {"large": (12, 48), "small": (3, 12), "distilled": (3, 24)}
"""Blocks and channels of the networks for digits, of which the large one is far larger than digits need."""
QUICK_SIZES = {"large": (6, 8), "small": (1, 4), "distilled": (1, 4)}
QUICK_VARIANTS, QUICK_TRAINING = ("FC(16)", "Pool(64,16)", "Conv(3,1)"), caches.Training(epochs=2)
CIFAR = {"small": "resnet20", "distilled": "resnet20"}
SOFTENED, DISTILLED = 2.0, 0.7
Images = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True)
class Task:
    """Networks and images; what is trained lies in `work`, and is taken from there.

    For CIFAR-10 that is where `cifar.py` and `streams.py` keep theirs.
    """

    work: Path
    data: Path | None
    cifar: str
    epochs: int
    quick: bool
    variants: tuple[str, ...] | None = None
    copies: int = 0

    @property
    def name(self) -> str:
        return f"digits{'-quick' * self.quick}" if self.data is None else f"{self.cifar}{'-quick' * self.quick}"

    @property
    def home(self) -> Path:
        """Where networks and caches lie."""
        return self.work if self.data is None else home_of(self.work, quick=self.quick)

    def caches_folder(self, size: str, images: str = "build") -> Path:
        """The caches of a network made from a set of images, explored once whatever is asked of them."""
        name = f"{self.name}-{size}" if self.data is None else CIFAR.get(size, self.cifar)
        return self.home / (name if images == "build" else f"{name}-{images}")

    def images(self, part: str) -> Images:
        """Images and labels of `train`, of `build`, which stands for the user's validation set, or of `test`."""
        if self.data is None:
            x, y = digit_networks.digits()
            rows = {"train": slice(0, 700), "build": slice(700, 1400), "test": slice(1400, None)}[part]
            return x[rows], y[rows]
        count = 300 if self.quick else 5000
        if part == "train":
            return images_of(self.data, "train", 256 if self.quick else None)
        x, y = images_of(self.data, "test", 2 * count)
        return (x[:count], y[:count]) if part == "build" else (x[count:], y[count:])

    def network(self, size: str) -> nn.Module:
        """The `large` network, a `small` one trained by labels, or one `distilled` from the large one."""
        if self.data is not None and size != "distilled":  # which keeps its own file
            most = 256 if self.quick else None
            return fine_tuned(CIFAR.get(size, self.cifar), self.data, self.home, epochs=self._epochs(size), most=most)
        path = self.home / f"{self.name}-{size}.safetensors"
        if path.is_file():
            network = self._empty(size)
            network.load_state_dict(load_file(path))
            return network.eval()
        began = time.perf_counter()
        network = self._trained(size)
        self.home.mkdir(parents=True, exist_ok=True)
        save_file(network.state_dict(), path)
        print(f"made the {size} network, {time.perf_counter() - began:.0f} s", flush=True)
        return network.eval()

    def _empty(self, size: str) -> nn.Module:
        if self.data is not None:
            return ResNet(DEPTHS[CIFAR.get(size, self.cifar)])
        blocks, width = (QUICK_SIZES if self.quick else SIZES)[size]
        return digit_networks.Network(blocks=blocks, width=width)

    def _trained(self, size: str) -> nn.Module:
        torch.manual_seed(0)
        if size == "distilled":
            start = self._empty(size) if self.data is None else published(CIFAR[size], self.data)
            return distilled(start, self.network("large"), *self.images("train"), epochs=self._epochs(size))
        return digit_networks.trained(self._empty(size), *self.images("train"), epochs=self._epochs(size))

    def _epochs(self, size: str) -> int:
        if self.data is None:
            return 3 if self.quick else {"large": 8}.get(size, 20)
        return 1 if self.quick else self.epochs

    def built(self, network: nn.Module, images: Images, folder: Path, **asked: Any) -> caches.Built:
        """Learned caches for `network` from these images, in `folder`, where what was explored stays."""
        return caches.build(network, *images, out=folder, **self._how_to_explore(), **asked)

    def explored(self, network: nn.Module, images: Images, folder: Path, **asked: Any) -> Exploration:
        """What `built` chooses from; what lies in `folder` is shared with it."""
        return explore_module(network, *images, out=folder, **(self._how_to_explore() | asked))

    def _how_to_explore(self) -> dict[str, Any]:
        return {
            "variants": self.variants or (QUICK_VARIANTS if self.quick else None),
            "training": QUICK_TRAINING if self.quick else caches.Training(),
            "processes": 1 if self.data is None else len(os.sched_getaffinity(0)),
            "progress": lambda what, share: print(f"\r{share:4.0%} {what:60}", end="", flush=True),
        } | copies_of(self.copies)


def copies_of(copies: int) -> dict[str, Any]:
    """What has predictors learn from so many altered copies of each image, for `caches.build`."""
    return {"augment": altered, "copies": copies} if copies else {}


def add_exploring(parser: argparse.ArgumentParser) -> None:
    """The options of what is explored."""
    parser.add_argument("--variants", nargs="+", help="such as 'FC(512)' 'Conv(3,1)' [default: by the model's size]")
    parser.add_argument("--copies", type=int, default=0, help="altered ones, of each image for predictors")


def options_of(description: str | None) -> argparse.ArgumentParser:
    """The options that all of these benchmarks have."""
    parser = parser_of(description, data=True, quick="small, to show only that it works")
    parser.add_argument("--digits", action="store_true", help="digits, also where there is a folder of data")
    parser.add_argument("--network", choices=list(DEPTHS), default="resnet56")
    parser.add_argument("--epochs", type=int, default=5, help="of fine-tuning on CIFAR-10")
    parser.add_argument("--work", type=Path, default=Path("caches-work"))
    add_exploring(parser)
    parser.add_argument("--accuracy", type=float, default=0.97)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=300, help="timed one by one, per round")
    return parser


def task_of(options: argparse.Namespace) -> Task:
    """The task that the options name: digits where that is said or no data are there."""
    data = None if options.digits else options.data
    variants = None if options.variants is None else tuple(options.variants)
    named = options.work, data, options.network, options.epochs, options.quick
    return Task(*named, variants=variants, copies=options.copies)


def distilled(
    student: nn.Module, teacher: nn.Module, images: np.ndarray, labels: np.ndarray, *, epochs: int
) -> nn.Module:
    """`student` taught by the teacher's softened scores and the labels; images are shifted where they are in colour."""
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(student.parameters(), lr=0.002)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    student.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(64):
            given = x[rows] if x.shape[1] == 1 else shifted(x[rows], generator)
            with torch.no_grad():
                taught = functional.log_softmax(teacher(given) / SOFTENED, dim=1)
            scores = student(given)
            soft = functional.kl_div(
                functional.log_softmax(scores / SOFTENED, dim=1), taught, reduction="batchmean", log_target=True
            )
            optimizer.zero_grad()
            (DISTILLED * SOFTENED**2 * soft + (1 - DISTILLED) * functional.cross_entropy(scores, y[rows])).backward()
            optimizer.step()
        schedule.step()
    return student


def shifted(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The batch moved by some pixels."""
    y, x = torch.randint(0, 2 * PADDING + 1, (2,), generator=generator).tolist()
    return functional.pad(batch, (PADDING,) * 4)[:, :, y : y + batch.shape[2], x : x + batch.shape[3]]


# Running and timing --------------------------------------------------------------------------------------------------

Run = Callable[[np.ndarray], Any]


def base_run(network: nn.Module) -> Run:
    """Class scores (n, classes) of a network for images."""

    def run(images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return network(torch.from_numpy(images)).float().numpy()

    return run


def cached_run(model: caches.CachedModel) -> Run:
    """Class probabilities (n, classes) of a model with learned caches."""
    return lambda images: model.predict(images)["scores"]


def softened(run: Run) -> Run:
    """Its class scores as probabilities."""
    return lambda images: softmax(run(images))


def cascaded(small: Run, large: Run, threshold: float) -> Run:
    """The small model first; images of which it is not certain go on.  Both answer probabilities."""

    def run(images: np.ndarray) -> np.ndarray:
        scores = small(images)
        on = top_two_difference(scores) < threshold
        if on.any():
            scores[on] = large(images[on])
        return scores

    return run


def cascade_threshold(small: Run, large: Run, base: np.ndarray, images: np.ndarray, target: float) -> float:
    """The least certainty of the small model at which enough images are answered as in `base`; 1 if there is none."""
    scores = scores_of(small, images)
    certainty, wrong = top_two_difference(scores), scores.argmax(axis=1) != base
    wrong_later = classes_of(large, images) != base
    for threshold in np.sort(certainty):
        if np.where(certainty >= threshold, wrong, wrong_later).mean() <= 1 - target:
            return float(threshold)
    return 1.0


@contextmanager
def on_cores(cores: frozenset[int]) -> Iterator[None]:
    """The calling thread on these processors, computing with as many threads."""
    before, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(len(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True)
class Timed:
    """Something to time, and the processors that its calling thread has."""

    run: Run
    cores: frozenset[int]


def in_turn(timed: Mapping[str, Timed], images: np.ndarray, *, rounds: int, size: int = 1) -> dict[str, np.ndarray]:
    """Seconds of every batch of `size` images by name (rounds, batches); each round runs all, another one first.

    Freed memory is kept, as workers do.
    """
    keep_freed_memory()
    batches = [images[begin : begin + size] for begin in range(0, len(images) - size + 1, size)]
    names = list(timed)
    seconds = {name: np.zeros((rounds, len(batches))) for name in names}
    for round_ in range(rounds):
        first = round_ % len(names)
        for name in names[first:] + names[:first]:
            one = timed[name]
            with on_cores(one.cores):
                for batch in batches[:3]:
                    one.run(batch)
                for i, batch in enumerate(batches):
                    began = time.perf_counter()
                    one.run(batch)
                    seconds[name][round_, i] = time.perf_counter() - began
    return seconds


def agreement(run: Run, base: np.ndarray, images: np.ndarray) -> str:
    """The share of images for which the answer is that of `base` (n,), with its interval."""
    share = float((classes_of(run, images) == base).mean())
    low, high = wilson_interval(share, len(images))
    return f"{share:.2%} ({low:.2%} to {high:.2%})"


def classes_of(run: Run, images: np.ndarray) -> np.ndarray:
    """The class (n,) that each image is given."""
    return scores_of(run, images).argmax(axis=1)


def scores_of(run: Run, images: np.ndarray) -> np.ndarray:
    """What `run` says of images (n, classes), in batches."""
    return np.concatenate([run(images[begin : begin + 32]) for begin in range(0, len(images), 32)])
