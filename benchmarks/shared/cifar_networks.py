"""Residual networks for CIFAR-10, their published weights, and fine-tuning on JPEG images (which needs Pillow)."""

import io
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)[:, None, None]
DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)[:, None, None]
DEPTHS = {"resnet20": 3, "resnet32": 5, "resnet44": 7, "resnet56": 9}
PADDING = 4


class Block(nn.Module):
    """Two convolutions; where the stage begins, the way past them skips pixels and adds empty channels."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        stride = width // before
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.added = (width - before) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        past = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.added, self.added)) if self.added else x
        inner = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(past + inner)


class ResNet(nn.Module):
    """A stem, three stages of so many blocks, and a linear head."""

    def __init__(self, depth: int, width: int = 16) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        stages = []
        before = width
        for after in (width, 2 * width, 4 * width):
            stages.append(nn.Sequential(*(Block(before if k == 0 else after, after) for k in range(depth))))
            before = after
        self.layer1, self.layer2, self.layer3 = stages
        self.linear = nn.Linear(before, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.bn1(self.conv1(images)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean(dim=(2, 3)))


def published(name: str, folder: Path) -> ResNet:
    """The network with the weights in `folder/cifar10`, which were trained on lossless images."""
    network = ResNet(DEPTHS[name])
    missing, unknown = network.load_state_dict(load_file(folder / "cifar10" / f"{name}.safetensors"), strict=False)
    assert not unknown, unknown
    assert all(key.endswith("num_batches_tracked") for key in missing), missing
    return network.eval()


def images_of(folder: Path, part: str, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Normalised images (n, 3, 32, 32) and labels (n,) of `train` or `test`."""
    from PIL import Image

    with np.load(folder / "cifar10" / f"{part}_jpeg.npz") as data:
        jpeg, offsets, labels = data["jpeg"], data["offsets"], data["labels"][:most].astype(np.int64)
    ends = pairwise(offsets[: len(labels) + 1])
    raw = [np.asarray(Image.open(io.BytesIO(jpeg[begin:end].tobytes()))) for begin, end in ends]
    return normalised(np.stack(raw).transpose(0, 3, 1, 2).astype(np.float32) / 255), labels


def normalised(pixels: np.ndarray) -> np.ndarray:
    """Images (n, 3, 32, 32) with pixels in [0, 1] as the networks take them."""
    return (pixels - MEAN) / DEVIATION


def pixels_of(images: np.ndarray) -> np.ndarray:
    """The pixels in [0, 1] of normalised images."""
    return np.clip(images * DEVIATION + MEAN, 0.0, 1.0)


def home_of(work: Path, *, quick: bool) -> Path:
    """The folder in `work` that all benchmarks of learned caches share for CIFAR-10.

    It holds one fine-tuned file per network, and one folder of caches per network and set of images.
    """
    return work / ("quick" if quick else "full")


def fine_tuned(name: str, folder: Path, out: Path, *, epochs: int, most: int | None, seed: int = 0) -> ResNet:
    """The published network after some epochs on the JPEG training images; kept in `out`, and taken from there."""
    network = published(name, folder)
    path = out / f"{name}-{epochs}-{most or 'all'}.safetensors"
    if path.is_file():
        network.load_state_dict(load_file(path))
        return network.eval()
    images, labels = images_of(folder, "train", most)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4, nesterov=True)
    steps = epochs * -(-len(x) // 128)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    began = time.perf_counter()
    network.train()
    for epoch in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(128):
            optimizer.zero_grad()
            functional.cross_entropy(network(_moved(x[rows], generator)), y[rows]).backward()
            optimizer.step()
            schedule.step()
        print(f"fine-tuned {name}, epoch {epoch + 1} of {epochs}, {time.perf_counter() - began:.0f} s", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    save_file(network.state_dict(), path)
    return network.eval()


def altered(images: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Each image shifted by up to four pixels of its own, mirrored half of the time, and mixed with another such image.

    What a model says of mixtures tells a predictor more than what it says of images alone (Beyer et al. 2022).
    """
    padded = np.pad(images, ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)))
    moved = np.empty_like(images)
    for i, (y, x) in enumerate(generator.integers(0, 2 * PADDING + 1, (len(images), 2)).tolist()):
        moved[i] = padded[i, :, y : y + images.shape[2], x : x + images.shape[3]]
    mirrored = generator.random(len(images)) < 0.5
    moved[mirrored] = moved[mirrored][..., ::-1]
    share = generator.random(len(images), dtype=np.float32)[:, None, None, None]
    return share * moved + (1 - share) * moved[generator.permutation(len(images))]


def _moved(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The batch shifted by up to four pixels and mirrored, half of the time."""
    padded = functional.pad(images, (PADDING,) * 4)
    y, x = torch.randint(0, 2 * PADDING + 1, (2,), generator=generator).tolist()
    moved = padded[:, :, y : y + images.shape[2], x : x + images.shape[3]]
    return moved.flip(3) if torch.rand((), generator=generator) < 0.5 else moved
