"""Residual networks for scikit-learn's digits (8 x 8 pixels, ten classes), and loaders for a folder with their files.

`python networks.py` trains one in seconds and writes its weights, the samples to build learned caches from, and those
to judge them by, beside this file.
"""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import gearshift
from gearshift import caches

FOLDER = Path(__file__).parent
TRAINED, BUILT = 700, 1400
"""Images before the first teach the network; up to the second they build caches; the others judge."""


class Block(nn.Module):
    """Two convolutions with their norms, and what goes past them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = self.layer(width), self.layer(width)

    @staticmethod
    def layer(width: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width, momentum=0.3))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.relu(hidden + self.second(torch.relu(self.first(hidden))))


class Network(nn.Module):
    """A stem, residual blocks, and a linear head on what is left of the pixels."""

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.head = nn.Linear(width * 16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.blocks(torch.relu(self.stem(images)))
        return self.head(functional.avg_pool2d(hidden, 2).flatten(1))


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images (1797, 1, 8, 8) and labels, shuffled."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return x[order].reshape(-1, 1, 8, 8).astype(np.float32) / 16, y[order]


def trained(network: Network, images: np.ndarray, labels: np.ndarray, *, epochs: int, seed: int = 0) -> Network:
    """The network after so many epochs of Adam."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    network.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(50):
            optimizer.zero_grad()
            functional.cross_entropy(network(x[rows]), y[rows]).backward()
            optimizer.step()
    return network.eval()


def make_files(folder: Path = FOLDER) -> float:
    """Train a network, write all files to `folder`; the share of unseen images that it gets right."""
    torch.set_num_threads(1)  # more would only get in each other's way in a network this small
    torch.manual_seed(0)
    images, labels = digits()
    network = trained(Network(blocks=8, width=16), images[:TRAINED], labels[:TRAINED], epochs=6)
    save_file(network.state_dict(), folder / "digits.safetensors")
    np.savez(folder / "build.npz", inputs=images[TRAINED:BUILT], labels=labels[TRAINED:BUILT])
    np.savez(folder / "test.npz", inputs=images[BUILT:], labels=labels[BUILT:])
    with torch.inference_mode():
        right = network(torch.from_numpy(images[BUILT:])).argmax(dim=1).numpy() == labels[BUILT:]
    return float(right.mean())


def load_network() -> Network:
    """The network as it was trained."""
    return gearshift.load_weights(Network(blocks=8, width=16), FOLDER / "digits.safetensors")


def load_cached() -> caches.CachedModel:
    """The same with the learned caches that were built for it."""
    return caches.load(FOLDER / "caches", load_network())


def load_samples() -> gearshift.Samples:
    """Images that neither the network nor its caches have seen."""
    with np.load(FOLDER / "test.npz") as arrays:
        return gearshift.Samples({"images": arrays["inputs"]}, labels=arrays["labels"])


if __name__ == "__main__":
    print(f"{make_files():.1%} of unseen images are right")
