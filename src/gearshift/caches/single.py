"""The lookup of one row on a processor in few operations, as each costs more than what it computes."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from gearshift.caches.networks import LearnedCache, Predictor

Look = Callable[[Tensor], NDArray[np.float32] | None]
"""Class probabilities (1, classes) where a hidden output (1, ...) hits, else None."""


def row_lookup(cache: nn.Module) -> Look:
    """What `cache` answers for one row, to rounding; its weights as they are now, its threshold as it is then.

    What follows the logits is done by NumPy, whose operations on a few numbers cost a third of PyTorch's.
    """
    if type(cache) is not LearnedCache or cache.scale.device.type != "cpu":
        return partial(_whole, cache)
    steps, state = (
        _steps(cache),
        {name: tensor.detach().numpy() for name, tensor in cache.selector.state_dict().items()},
    )
    inner, inner_bias, outer, outer_bias = (state[name] for name in ("0.weight", "0.bias", "2.weight", "2.bias"))
    top_classes, threshold = cache.top, cache.threshold.numpy()  # which shares its memory

    def look(hidden: Tensor) -> NDArray[np.float32] | None:
        x = hidden if hidden.dtype == torch.float32 else hidden.float()
        for step in steps:
            x = step(x)
        logits = x.numpy()
        top = logits.max()
        if not math.isfinite(top):
            cache.not_finite += 1
            return None
        odds = np.exp(logits - top)
        probabilities: NDArray[np.float32] = odds / odds.sum()
        highest = np.sort(probabilities)[: -top_classes - 1 : -1]
        sure = outer @ np.maximum(inner @ highest + inner_bias, 0) + outer_bias
        return probabilities[None] if sure[0] >= threshold else None

    return look


def _whole(cache: nn.Module, hidden: Tensor) -> NDArray[np.float32] | None:
    probabilities, hits = cache(hidden)
    found: NDArray[np.float32] = probabilities.cpu().numpy()
    return found if bool(hits) else None


def _steps(cache: LearnedCache) -> list[Callable[[Tensor], Tensor]]:
    """Hidden output (1, ...) to logits (classes,); a user's own predictor whole.

    The first linear layer divides by the scale as well, since weights of another size would be a second copy; what
    stands before it answers half as much for half as much, a convolution once its few biases are scaled.
    """
    if not isinstance(cache.predictor, Predictor):
        return [lambda hidden: cache.predicted(hidden)[0]]
    steps: list[Callable[[Tensor], Tensor]] = []
    factor = 1 / float(cache.scale)
    for module in cache.predictor:
        if isinstance(module, nn.Linear):
            steps.append(partial(_linear, module.weight.detach(), module.bias.detach(), factor))
            factor = 1.0
        elif isinstance(module, nn.Conv2d):
            bias = None if module.bias is None else module.bias.detach() / factor
            steps.append(partial(_conv, module, module.weight.detach(), bias))
        elif isinstance(module, nn.ReLU):
            steps.append(torch.relu)
        elif not isinstance(module, nn.Flatten):
            steps.append(module)
    return steps


def _linear(weight: Tensor, bias: Tensor, factor: float, x: Tensor) -> Tensor:
    return torch.addmv(bias, weight, x.reshape(-1), alpha=factor)


def _conv(module: nn.Conv2d, weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    return functional.conv2d(x, weight, bias, module.stride, module.padding)
