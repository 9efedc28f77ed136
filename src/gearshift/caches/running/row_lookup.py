"""The lookup of one row on a processor in one compiled call, to avoid PyTorch's overhead."""

import ctypes
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from gearshift.caches.network.learned_cache import LearnedCache, Predictor
from gearshift.errors import ModelFailed

MOST_SHAPES = 64
"""Shapes of hidden outputs whose arguments are stored: images may differ in size."""
FEW_ROWS, FEW_POOLED_ROWS = 8, 32
"""Up to this many rows are looked up one by one; beyond, PyTorch's batch operations are faster.
The second is for predictors that pool, which PyTorch does slowly."""

Found = tuple[NDArray[np.float32], NDArray[np.bool_]]
"""Class probabilities of the rows that hit (hits, classes), and which rows hit (n,)."""


class Lookup(Protocol):
    """Looks into a cache with its current weights and threshold."""

    def row(self, hidden: Tensor) -> NDArray[np.float32] | None:
        """Return class probabilities (1, classes) if a hidden output (1, ...) hits, else None."""
        ...

    def rows(self, hidden: Tensor) -> Found: ...


def lookup_of(cache: nn.Module) -> Lookup:
    if type(cache) is LearnedCache and isinstance(cache.predictor, Predictor):
        state = cache.state_dict().values()
        if all(tensor.device.type == "cpu" and tensor.dtype is torch.float32 for tensor in state) and cache.scale > 0:
            return Compiled(cache, cache.predictor)
    return Whole(cache)


class Whole:
    def __init__(self, cache: nn.Module) -> None:
        self._cache = cache

    def row(self, hidden: Tensor) -> NDArray[np.float32] | None:
        probabilities, hits = self.rows(hidden)
        return probabilities if hits[0] else None

    def rows(self, hidden: Tensor) -> Found:
        probabilities, hits = self._cache(hidden)
        which: NDArray[np.bool_] = hits.cpu().numpy()
        if not which.any():
            return np.empty((0, probabilities.shape[1]), dtype=np.float32), which
        return (probabilities if which.all() else probabilities[hits]).cpu().numpy(), which


class Compiled:
    """PyTorch for convolutions, then one compiled call per row (`kernel.look_up`)."""

    def __init__(self, cache: LearnedCache, predictor: Predictor) -> None:
        from gearshift.caches.running import kernel

        threshold: Any = cache.threshold.numpy()
        self._cache, self._threshold = cache, memoryview(threshold)  # a view, to see changes
        self._look_up: Callable[..., float] = kernel.look_up
        self._classes, self._answer = cache.classes, ctypes.c_float * cache.classes
        linear = [layer for layer in predictor if isinstance(layer, nn.Linear)]
        inner, outer = (layer for layer in cache.selector if isinstance(layer, nn.Linear))
        before, pool, rectified = _before(list(predictor)[: list(predictor).index(linear[0])])
        self._factor = 1 / float(cache.scale)
        self._steps = [_scaled(module, self._factor) for module in before]
        biases = (
            (linear[0], linear[0].bias), (linear[-1], linear[-1].bias + cache.prior),
            (inner, inner.bias), (outer, outer.bias),
        )  # fmt: skip
        self._held = [part.detach().contiguous() for layer, bias in biases for part in (layer.weight, bias)]
        self._side = 0 if pool is None else int(pool.output_size)  # type: ignore[arg-type]
        self._features = linear[0].in_features
        hidden_width = linear[0].out_features if len(linear) > 1 else 0
        widths = hidden_width, cache.classes, inner.out_features, inner.in_features
        self._settings = self._side, int(rectified), *widths
        self._behind: dict[torch.Size, tuple[Any, ...]] = {}

    def row(self, hidden: Tensor) -> NDArray[np.float32] | None:
        given, found = self._given(hidden), self._answer()
        sure = self._look_up(given.data_ptr(), found, *self._arguments(given.shape[1:]))
        if sure >= self._threshold[()]:
            return np.array(found, dtype=np.float32)[None]
        if math.isnan(sure):
            self._cache.not_finite += 1
        return None

    def rows(self, hidden: Tensor) -> Found:
        if len(hidden) > (FEW_POOLED_ROWS if self._side else FEW_ROWS):
            return Whole(self._cache).rows(hidden)
        given, found = self._given(hidden), np.empty((len(hidden), self._classes), dtype=np.float32)
        begin, answer = given.data_ptr(), found.ctypes.data
        behind = self._arguments(given.shape[1:])
        size, width = given.stride(0) * given.itemsize, found.strides[0]
        sure = [self._look_up(begin + i * size, answer + i * width, *behind) for i in range(len(given))]
        self._cache.not_finite += sum(map(math.isnan, sure))
        hits = np.array(sure) >= self._threshold[()]
        return found[hits], hits

    def _given(self, hidden: Tensor) -> Tensor:
        given = hidden if hidden.dtype is torch.float32 else hidden.float()
        for step in self._steps:
            given = step(given)
        return given if given.is_contiguous() else given.contiguous()

    def _arguments(self, shape: torch.Size) -> tuple[Any, ...]:
        behind = self._behind.get(shape)
        return self._arguments_of(shape) if behind is None else behind

    def _arguments_of(self, shape: torch.Size) -> tuple[Any, ...]:
        image = self._side > 0
        features = shape[0] * self._side**2 if image and len(shape) == 3 else shape.numel()
        if features != self._features or (image and len(shape) != 3):
            raise ModelFailed(f"a learned cache is not made for hidden outputs of shape {list(shape)}")
        sizes = (*(shape if image else (features, 1, 1)), *self._settings)
        behind = (ctypes.c_int64 * len(sizes))(*sizes), self._factor, *(part.data_ptr() for part in self._held)
        if len(self._behind) >= MOST_SHAPES:
            self._behind = {}
        self._behind[shape] = behind
        return behind


def _before(layers: list[nn.Module]) -> tuple[list[nn.Module], nn.AdaptiveAvgPool2d | None, bool]:
    layers = [layer for layer in layers if not isinstance(layer, nn.Flatten)]
    pool = layers[-1] if layers and isinstance(layers[-1], nn.AdaptiveAvgPool2d) else None
    layers = layers if pool is None else layers[:-1]
    rectified = bool(layers) and isinstance(layers[-1], nn.ReLU)
    return layers[:-1] if rectified else layers, pool, rectified


def _scaled(module: nn.Module, factor: float) -> Callable[[Tensor], Tensor]:
    """Scale a convolution's biases, because its input is not divided by the scale."""
    if not isinstance(module, nn.Conv2d):
        return module
    bias = None if module.bias is None else module.bias.detach() / factor
    return partial(_convolved, module, module.weight.detach(), bias)


def _convolved(module: nn.Conv2d, weight: Tensor, bias: Tensor | None, hidden: Tensor) -> Tensor:
    return functional.conv2d(hidden, weight, bias, module.stride, module.padding)
