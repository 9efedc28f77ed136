"""Hidden outputs of a model on disk, layer by layer, to train networks on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gearshift.caches.network.chain import Chain
from gearshift.errors import InvalidInput, require
from gearshift.support.files import written_atomically

BATCH = 64
SURE = 1e-3
Augment = Callable[[NDArray[Any], np.random.Generator], NDArray[Any]]
"""A user's function: alters rows (n, ...), keeping number and shape, with the given generator."""


@dataclass(frozen=True, slots=True, eq=False)
class BaseAnswers:
    """The base model's probabilities (n, classes), and whether its scores are logits."""

    probabilities: NDArray[np.float32]
    logits: bool

    @property
    def best(self) -> NDArray[np.int64]:
        return np.asarray(self.probabilities.argmax(axis=1))


def base_scores(chain: Chain, inputs: NDArray[Any], progress: Callable[[float], None]) -> NDArray[np.float32]:
    """Return the class scores (n, classes) of `inputs` (n, ...).

    Raises `InvalidInput` with the block whose output is NaN or infinite, is no tensor of n rows,
    or varies in shape.
    """
    scores: list[NDArray[np.float32]] = []
    for rows, layer, hidden in _hidden(chain, inputs, len(chain) - 1):
        if layer == len(chain) - 1:
            scores.append(hidden.float().cpu().numpy())
            progress(rows.stop / len(inputs))
    return np.concatenate(scores)


def collect_hidden(chain: Chain, inputs: NDArray[Any], layers: Sequence[int], folder: Path) -> None:
    """Write the hidden outputs of `layers` for `inputs` (n, ...) to `folder` (`hidden_path`).

    No later layer runs, and one batch at a time is in memory. Files appear when complete. Raises
    as `base_scores`.
    """
    files: dict[int, Any] = {}
    temporary = {layer: hidden_path(folder, layer).with_suffix(".part") for layer in layers}
    try:
        for rows, layer, hidden in _hidden(chain, inputs, max(layers)):
            if layer not in temporary:
                continue
            if layer not in files:
                shape = (len(inputs), *hidden.shape[1:])
                files[layer] = np.lib.format.open_memmap(temporary[layer], mode="w+", dtype=np.float32, shape=shape)
            files[layer][rows] = hidden.float().cpu().numpy()
        for layer, file in files.items():
            file.flush()
            temporary[layer].replace(hidden_path(folder, layer))
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)


def with_copies(
    inputs: NDArray[Any], rows: NDArray[np.int64], augment: Augment, copies: int, seed: int, path: Path
) -> NDArray[Any]:
    """Return `inputs` (n, ...) followed by altered copies of `rows`, on disk at `path`.

    One batch at a time is in memory. Raises `InvalidInput` if `augment` returns rows of another
    form.
    """
    generator = np.random.default_rng([seed, 5])
    shape = (len(inputs) + copies * len(rows), *inputs.shape[1:])
    everything = np.lib.format.open_memmap(path, mode="w+", dtype=inputs.dtype, shape=shape)
    everything[: len(inputs)] = inputs
    for begin in range(0, copies * len(rows), BATCH):
        given = inputs[rows[np.arange(begin, min(begin + BATCH, copies * len(rows))) % len(rows)]]
        altered = np.asarray(augment(given, generator))
        told = f"answers rows of shape {altered.shape} and type {altered.dtype} for {given.shape} and {given.dtype}"
        alike = altered.shape == given.shape and np.can_cast(altered.dtype, given.dtype, "same_kind")
        require(alike, told, where="augment", remedy="give as many rows of the same form")
        at = len(inputs) + begin
        everything[at : at + len(given)] = altered
    everything.flush()
    return everything


def hidden_path(folder: Path, layer: int) -> Path:
    return folder / f"hidden-{layer:03d}.npy"


def hidden_shapes(chain: Chain, row: NDArray[Any]) -> list[tuple[int, ...]]:
    """Return the shape of each segment's output but the last, without rows, for a row (1, ...)."""
    with torch.inference_mode():
        return [tuple(hidden.shape[1:]) for hidden in chain.hidden(as_tensor(row).to(chain.device))][:-1]


def as_answers(scores: NDArray[Any]) -> BaseAnswers:
    """Convert scores (n, classes) to probabilities; they are logits if a row is no distribution."""
    sums = scores.sum(axis=1)
    logits = bool((scores < 0).any() or (np.abs(sums - 1) > SURE).any())
    return BaseAnswers(as_probabilities(torch.from_numpy(scores), logits=logits).numpy(), logits)


def as_probabilities(scores: Tensor, *, logits: bool) -> Tensor:
    single = scores if scores.dtype is torch.float32 else scores.float()
    return torch.softmax(single, dim=1) if logits else single


def as_tensor(array: NDArray[Any]) -> Tensor:
    """Copy rows to a tensor; raises `InvalidInput` for a single value or no numbers."""
    if array.ndim > 0 and array.dtype.kind in "biufc":
        return torch.from_numpy(np.array(array))
    told = f"type {array.dtype}" if array.ndim else "a single value"
    raise InvalidInput(f"{told} is no input of a module", where="inputs", remedy="give an array of one row per sample")


def write_array(path: Path, array: NDArray[Any]) -> None:
    with written_atomically(path) as file:
        np.save(file, array)


def _hidden(chain: Chain, inputs: NDArray[Any], last: int) -> Iterator[tuple[slice, int, Tensor]]:
    shapes: dict[int, tuple[int, ...]] = {}
    with torch.inference_mode():
        for begin in range(0, len(inputs), BATCH):
            rows = slice(begin, min(begin + BATCH, len(inputs)))
            given = as_tensor(inputs[rows]).to(chain.device)
            for layer, hidden in enumerate(islice(chain.hidden(given), last + 1)):
                _check(chain, layer, hidden, rows, shapes)
                yield rows, layer, hidden


def _check(chain: Chain, layer: int, hidden: Tensor, rows: slice, shapes: dict[int, tuple[int, ...]]) -> None:
    where, n = f"block {chain.names[layer]!r}", rows.stop - rows.start
    require(
        isinstance(hidden, Tensor) and hidden.ndim >= 2 and hidden.shape[0] == n,
        f"puts out {tuple(hidden.shape) if isinstance(hidden, Tensor) else type(hidden).__name__} for {n} rows",
        where=where,
        remedy="name blocks whose output is a tensor of one row per input row",
    )
    shape = shapes.setdefault(layer, tuple(hidden.shape[1:]))
    require(
        tuple(hidden.shape[1:]) == shape,
        f"puts out rows of shape {tuple(hidden.shape[1:])} for some inputs and {shape} for others",
        where=where,
        remedy="give inputs of one size, or name other blocks",
    )
    finite = torch.isfinite(hidden.flatten(1)).all(dim=1)
    if not bool(finite.all()):
        row = rows.start + int(torch.nonzero(~finite)[0])
        require(False, f"puts out NaN or infinity for row {row}", where=where, remedy="mend the model or that input")
