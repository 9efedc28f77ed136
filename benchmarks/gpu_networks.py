"""Two residual networks and images made up for them; `on_a_gpu.py` copies this file into the project that it serves.

A stem, four stages of blocks, each with half of the pixels and twice the channels of the one before, and a linear head:
two blocks a stage and 64 channels are ResNet-18 as it is used for images of 32 x 32.
"""

import json
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import gearshift
from gearshift import caches

FOLDER = Path(__file__).parent
CLASSES, SIDE, LOOKS = 10, 32, 4
HARDEST = 0.55
"""The share of another class's image that is mixed into the hardest images: above a half nobody can know better."""
LOUDEST = 1.0
SIZES, TEST = "sizes.json", "test.npz"


class Block(nn.Module):
    """Two convolutions, and what goes past them."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        same = stride == 1 and before == width
        past = nn.Conv2d(before, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)
        self.past = nn.Identity() if same else nn.Sequential(*past)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(inner + self.past(x))


class Network(nn.Module):
    """So many blocks in each of four stages, of which the first has `width` channels."""

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        stages, before = [], width
        for stage in range(4):
            after = width << stage
            strides = (1 if stage == 0 else 2, *(1,) * (blocks - 1))
            stages.append(nn.Sequential(*(Block(before if k == 0 else after, after, s) for k, s in enumerate(strides))))
            before = after
        self.stages = nn.Sequential(*stages)
        self.linear = nn.Linear(before, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.bn1(self.conv1(images)))
        return self.linear(self.stages(x).mean(dim=(2, 3)))


def made_up(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 3, 32, 32) of each class's looks, moved, mixed with another class and noisy, and their classes (n,).

    How much is mixed in, and how loud the noise is, differ from image to image: some are easy, and some are hopeless.
    """
    looks = np.random.default_rng(1).standard_normal((CLASSES, LOOKS, 3, 8, 8)).astype(np.float32)
    looks = looks.repeat(SIDE // 8, axis=3).repeat(SIDE // 8, axis=4)
    generator = np.random.default_rng([seed, 2])
    labels = generator.integers(0, CLASSES, count)
    others = (labels + generator.integers(1, CLASSES, count)) % CLASSES
    mixed = HARDEST * generator.random((count, 1, 1, 1), dtype=np.float32) ** 2
    mine, theirs = (looks[of, generator.integers(0, LOOKS, count)] for of in (labels, others))
    images = (1 - mixed) * mine + mixed * theirs
    for i, (y, x) in enumerate(generator.integers(0, 8, (count, 2)).tolist()):
        images[i] = np.roll(images[i], (y, x), (1, 2))
    images += (
        LOUDEST
        * generator.random((count, 1, 1, 1), dtype=np.float32)
        * generator.standard_normal(images.shape, dtype=np.float32)
    )
    return images, labels


def empty(name: str) -> Network:
    """A network of the size that the folder says, not trained."""
    torch.manual_seed(0)
    return Network(*json.loads((FOLDER / SIZES).read_text())[name])


def load_small() -> nn.Module:
    """The small network with its weights."""
    return gearshift.load_weights(empty("small"), FOLDER / "small.safetensors")


def load_large() -> nn.Module:
    """The large network with its weights."""
    return gearshift.load_weights(empty("large"), FOLDER / "large.safetensors")


def load_cached() -> caches.CachedModel:
    """The large network with its learned caches."""
    return caches.load(FOLDER / "caches", load_large())


def load_samples() -> gearshift.Samples:
    """Images that neither networks nor caches have seen."""
    with np.load(FOLDER / TEST) as arrays:
        return gearshift.Samples({"images": arrays["inputs"]}, labels=arrays["labels"])
