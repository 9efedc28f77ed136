"""A learned cache: a predictor, and a selector that judges it."""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gearshift.caches.network.predictors import Factory, make_predictor

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
