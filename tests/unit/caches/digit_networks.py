"""The example's networks for digits, a tiny one of them trained, and learned caches built for it."""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch

from gearshift.caches.building.build import Built, build
from gearshift.caches.network.train import Training

EXAMPLE = Path(__file__).parents[3] / "examples" / "learned_caches" / "networks.py"
QUICK = Training(epochs=4, levels=(0.8, 0.95))
BLOCKS = ("blocks.0", "blocks.1")
VARIANTS = ("FC(16)", "Pool(32,16)")
SEGMENT_S, LOOKUP_S = (1e-4, 1e-4, 5e-4), 3e-5
"""About what they take; as measured, what is chosen would depend on the machine's load."""


@cache
def example() -> ModuleType:
    """A module of its own, not in `sys.modules`."""
    spec = importlib.util.spec_from_file_location("example_networks", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def digits() -> tuple[Any, Any]:
    images, labels = example().digits()
    return images, labels


def few() -> tuple[Any, Any]:
    """Samples that the network has not seen."""
    images, labels = digits()
    return images[700:900], labels[700:900]


@cache
def network() -> Any:
    """Six thin blocks; not to be changed."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        images, labels = digits()
        return example().trained(example().Network(blocks=6, width=4), images[:500], labels[:500], epochs=3)


@cache
def built() -> Built:
    """Little trained caches after two of the blocks; much of the model comes after them, so that they pay."""
    images, labels = digits()

    def timed(chain: Any, explored: list[Any], *_: Any) -> Any:
        return "inline", np.array(SEGMENT_S), [LOOKUP_S] * len(explored)

    with mock.patch("gearshift.caches.building.build.timed", timed):
        return build(
            network(), images[700:1300], labels[700:1300],
            accuracy=0.8, blocks=BLOCKS, variants=VARIANTS, training=QUICK,
        )  # fmt: skip
