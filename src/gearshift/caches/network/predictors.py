"""The predictors of learned caches (Gati Table 3), by the names of their variants."""

import re
from collections.abc import Callable, Mapping

import torch
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
