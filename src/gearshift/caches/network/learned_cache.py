"""A learned cache: a predictor (Gati Table 3, by variant), and a selector that judges it."""

import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gearshift.errors import InvalidInput, require

Factory = Callable[[tuple[int, ...], int], nn.Module]
"""Makes a user's own predictor from the shape of a hidden output, without rows, and the number
of classes. It answers logits (n, classes)."""

WIDTH = 1024
PAPER_BASE_PARAMETERS = 11_000_000
"""Size of ResNet-18, which the paper's widths are for; smaller models get smaller ones."""
LEAST_WIDTH = 16
LEAST_SIZES = {"FC": (64,), "Pool": (512, 128), "Token": (64,)}
"""Sizes by kind below which variants are not shrunk to save time."""
MOST_WIDTH = 1 << 16
CONV_SIDE = 4
MOST_CONV_CHANNELS = 32
_NAME = re.compile(r"(FC|Pool|Conv|Token)\((\d{1,6})(?:,(\d{1,6}))?\)")


def default_variants(shape: tuple[int, ...], base_parameters: int) -> tuple[str, ...]:
    """Return the variants to explore for a hidden output of `shape` (without rows).

    For images those of the paper: FC(1024), FC(512), Pool(8192), Pool(4096), Conv(3,1) and
    Conv(5,2); for sequences Token(1024) and Token(512); otherwise FC alone. Widths shrink with the
    root of `base_parameters`.
    """
    scale = min(1.0, (base_parameters / PAPER_BASE_PARAMETERS) ** 0.5)
    wide, narrow, pool = (max(LEAST_WIDTH, 1 << round(size * scale).bit_length() - 1) for size in (1024, 512, 8192))
    if len(shape) == 3:
        pools = f"Pool({pool},{wide})", f"Pool({max(LEAST_WIDTH, pool // 2)},{wide})"
        return tuple(dict.fromkeys((f"FC({wide})", f"FC({narrow})", *pools, "Conv(3,1)", "Conv(5,2)")))
    kind = "Token" if len(shape) == 2 else "FC"
    return tuple(dict.fromkeys((f"{kind}({wide})", f"{kind}({narrow})")))


def smaller(variant: str) -> str:
    """Halve the sizes of a variant, not below `LEAST_SIZES`; `Conv` has none to halve."""
    match = _NAME.fullmatch(variant)
    if match is None or match[1] == "Conv":
        return variant
    sizes = [int(size) for size in match.groups()[1:] if size is not None]
    least = LEAST_SIZES[match[1]][: len(sizes)]
    halved = [max(min(size, floor), size // 2) for size, floor in zip(sizes, least, strict=True)]
    return f"{match[1]}({','.join(map(str, halved))})"


def make_predictor(
    variant: str, shape: tuple[int, ...], classes: int, own: Mapping[str, Factory] | None = None
) -> nn.Module:
    """Make a predictor for hidden outputs of `shape`; it answers logits (n, classes).

    Raises `InvalidInput` for an unknown name, or one for hidden outputs of another form.
    """
    if own is not None and variant in own:
        return own[variant](shape, classes)
    kind, first, second = _sizes(variant, own or {})
    dimensions = {"Pool": (3,), "Conv": (3,), "Token": (2,), "FC": (1, 2, 3)}[kind]
    require(
        len(shape) in dimensions,
        f"variant {variant!r} cannot look at hidden outputs of shape {list(shape)}",
        where="learned caches",
        remedy="use FC(h), for sequences Token(h), for images Pool(h) and Conv(k,s)",
    )
    match kind:
        case "FC":
            flat = int(torch.Size(shape).numel())
            return Predictor(nn.Flatten(), nn.Linear(flat, first), nn.ReLU(), nn.Linear(first, classes))
        case "Token":
            return Predictor(_Pooled(), nn.Linear(2 * shape[1], first), nn.ReLU(), nn.Linear(first, classes))
        case "Pool":
            return _pool(shape, first, second or WIDTH, classes)
        case _:
            return _convolution(shape, first, second or 1, classes)


def _sizes(variant: str, own: Mapping[str, Factory]) -> tuple[str, int, int | None]:
    """Return kind and sizes of a built-in variant."""
    match = _NAME.fullmatch(variant)
    if match is None:
        known = ", ".join(("FC(h)", "Pool(h)", "Pool(h,width)", "Conv(k,s)", "Token(h)", *own))
        raise InvalidInput(f"variant {variant!r} is unknown", where="learned caches", remedy=f"use one of {known}")
    sizes = [int(size) for size in match.groups()[1:] if size is not None]
    within = all(1 <= size <= MOST_WIDTH for size in sizes)
    require(within, f"variant {variant!r} has sizes beyond 1 to {MOST_WIDTH}", where="learned caches")
    return match[1], sizes[0], sizes[1] if len(sizes) > 1 else None


def _pool(shape: tuple[int, ...], size: int, width: int, classes: int) -> "Predictor":
    side = max(1, min(shape[1], shape[2], int((size / shape[0]) ** 0.5)))
    pool = nn.AdaptiveAvgPool2d(side), nn.Flatten()
    return Predictor(*pool, nn.Linear(shape[0] * side * side, width), nn.ReLU(), nn.Linear(width, classes))


def _convolution(shape: tuple[int, ...], kernel: int, stride: int, classes: int) -> "Predictor":
    channels, side = min(shape[0], MOST_CONV_CHANNELS), min(CONV_SIDE, *shape[1:])
    return Predictor(
        nn.Conv2d(shape[0], channels, kernel, stride=stride, padding=kernel // 2),
        *(nn.ReLU(), nn.AdaptiveAvgPool2d(side), nn.Flatten(), nn.Linear(channels * side * side, classes)),
    )


class Predictor(nn.Sequential):
    """A built-in predictor, whose layers `row_lookup` can run for one row."""


class _Pooled(nn.Module):
    """The mean of all tokens and the first token: (n, tokens, width) to (n, 2 width)."""

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.cat([hidden.mean(dim=1), hidden[:, 0]], dim=1)


SELECTOR_WIDTH = 32
TOP_CLASSES = 5
"""Number of a predictor's highest class probabilities that its selector sees."""
PRIOR = "prior"


class LearnedCache(nn.Module):
    """A predictor, a selector that judges its class distribution, and the threshold for a hit.

    The selector sees the highest class probabilities in descending order, not their classes: what
    it learns about single classes from a few hundred samples misleads it
    (docs/design/learned-caches.md). Hidden outputs are divided by `scale`, their size in training.
    `prior` is added to logits: per class, the logarithm of how much more frequent it is than in
    the training samples.
    """

    def __init__(self, predictor: nn.Module, classes: int) -> None:
        super().__init__()
        self.predictor, self.classes = predictor, classes
        self.top = min(TOP_CLASSES, classes)
        self.selector = nn.Sequential(nn.Linear(self.top, SELECTOR_WIDTH), nn.ReLU(), nn.Linear(SELECTOR_WIDTH, 1))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("threshold", torch.zeros(()))
        self.register_buffer(PRIOR, torch.zeros(classes))
        self.not_finite = 0
        """Rows looked up that held NaN or infinity."""
        self.made_as: tuple[str, tuple[int, ...]] | None = None
        """Variant and shape to make it in another process; None for a user's own predictor."""
        self.scale: Tensor
        self.threshold: Tensor
        self.prior: Tensor

    def predicted(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.predictor(hidden.float() / self.scale)
        return logits + self.prior

    def judged(self, probabilities: Tensor) -> Tensor:
        """Return the selector's logit (n,) that the base model will choose the same class."""
        sure: Tensor = self.selector(probabilities.topk(self.top, dim=1).values)
        return sure[:, 0]

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return class probabilities (n, classes) and hits (n,); a row with NaN is a miss."""
        probabilities, sure = self.told(self.predicted(hidden))
        self.not_finite += int(torch.isnan(sure).sum())
        return probabilities, sure >= self.threshold

    def told(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        probabilities = torch.softmax(logits, dim=1)
        return probabilities, self.judged(probabilities)

    @property
    def memory_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.state_dict().values())


def split_predictor(network: LearnedCache) -> tuple[nn.Sequential, LearnedCache]:
    """Split off the first layers without weights; the rest is a cache that shares its weights."""
    predictor = network.predictor
    if not isinstance(predictor, nn.Sequential):
        predictor = nn.Sequential(predictor)
    parts = list(predictor)
    first = next((i for i, part in enumerate(parts) if any(True for _ in part.parameters())), 0)
    with torch.device("meta"):
        head = LearnedCache(nn.Identity(), network.classes)
    head.predictor, head.selector = nn.Sequential(*parts[first:]), network.selector
    head.scale, head.threshold = torch.ones((), device=network.scale.device), network.threshold
    head.prior = network.prior
    return nn.Sequential(*parts[:first]), head.eval()


def features_of(network: LearnedCache, hidden: Tensor) -> NDArray[np.float32]:
    features: Tensor = split_predictor(network)[0](hidden.float() / network.scale)
    made: NDArray[np.float32] = features.cpu().numpy()
    return made


def learned_cache(
    variant: str, shape: tuple[int, ...], classes: int, own: Mapping[str, Factory] | None = None
) -> LearnedCache:
    cache = LearnedCache(make_predictor(variant, shape, classes, own), classes)
    cache.made_as = None if own is not None and variant in own else (variant, shape)
    return cache


def restored(cache: LearnedCache, state: Mapping[str, Tensor]) -> LearnedCache:
    """Load `state` into `cache`, not to be trained; a missing prior is zero, as in older files.

    Raises `RuntimeError` if they do not match.
    """
    cache.load_state_dict({PRIOR: torch.zeros(cache.classes), **state}, assign=True)
    return cache.requires_grad_(False).eval()


def state_of(caches: Mapping[int, LearnedCache]) -> dict[str, Tensor]:
    return {
        f"{layer}.{name}": tensor.cpu().contiguous()
        for layer, cache in caches.items()
        for name, tensor in cache.state_dict().items()
    }


def filled(
    entries: Iterable[tuple[int, str, tuple[int, ...]]],
    classes: int,
    state: Mapping[str, Tensor],
    own: Mapping[str, Factory] | None = None,
) -> dict[int, LearnedCache]:
    """Make trained caches from the tensors of `state_of`; `RuntimeError` if they do not match."""
    caches = {}
    for layer, variant, shape in entries:
        with torch.device("meta"):
            cache = learned_cache(variant, shape, classes, own)
        prefix = f"{layer}."
        own_state = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        caches[layer] = restored(cache, own_state)
    return caches
