"""Train and judge every variant after every block, within bounds of disk and time; can be resumed."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gearshift.caches.building.sizing import Worth, worth_of
from gearshift.caches.building.training_jobs import Job, has_key, is_done, read_trained, train_all
from gearshift.caches.network.chain import Chain, check_chain, weights_sha256
from gearshift.caches.network.collect import (
    Augment,
    BaseAnswers,
    as_answers,
    as_tensor,
    base_scores,
    collect_hidden,
    hidden_path,
    hidden_shapes,
    with_copies,
    write_array,
)
from gearshift.caches.network.learned_cache import Factory, make_predictor
from gearshift.caches.network.tracing import chain_of
from gearshift.caches.network.train import Explored, Training
from gearshift.caches.store.manifest import CHECKED_SHARE
from gearshift.errors import InvalidInput, require
from gearshift.models.classes import class_names
from gearshift.support.decoding import UNREADABLE
from gearshift.support.extras import load_extra
from gearshift.support.files import read_bytes, write_atomically

WHERE = "learned caches"
CHECKED_ROWS = 8
MOST_BYTES = 8 << 30
COPIES = 4
"""Altered copies of each sample that predictors learn from, if `augment` is given."""
TRAINED_SHARE = 1 - CHECKED_SHARE
FITTED_SHARE = 0.75
"""Share of the training samples that predictors learn from; the rest is for selectors."""
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Disjoint rows: `fit` for predictors, `judge` for selectors, `check` to judge caches."""

    fit: NDArray[np.int64]
    judge: NDArray[np.int64]
    check: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.fit) + len(self.judge) + len(self.check)


@dataclass(frozen=True, slots=True, eq=False)
class Exploration:
    """Trained variants after every block but the last, and the split of the samples.

    `left_out` variants were not trained within `most_s`. `answers` are the base model's; `labels`
    (n,) are class numbers, if known.
    """

    chain: Chain
    answers: BaseAnswers
    explored: list[Explored]
    split: Split
    labels: NDArray[np.int64] | None
    left_out: int


def split_rows(n: int, seed: int) -> Split:
    """Split n rows: 60 % for predictors, 20 % for selectors, and 20 % to judge caches."""
    order = np.random.default_rng([seed, 80]).permutation(n)
    trained = int(n * TRAINED_SHARE)
    fitted = int(trained * FITTED_SHARE)
    return Split(*(np.sort(part) for part in (order[:fitted], order[fitted:trained], order[trained:])))


def explore_module(
    module: nn.Module,
    inputs: NDArray[Any],
    labels: NDArray[Any] | None = None,
    *,
    blocks: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
    own: Mapping[str, Factory] | None = None,
    training: Training | None = None,
    augment: Augment | None = None,
    copies: int = COPIES,
    out: Path | str | None = None,
    processes: int = 1,
    most_bytes: int = MOST_BYTES,
    most_s: float = math.inf,
    seed: int = 0,
    progress: Progress = lambda what, share: None,
) -> Exploration:
    """Train the variants that `build` chooses from, with the same arguments, errors and `out`."""
    chain = chain_of(module, blocks)
    classes = check_chain(chain, as_tensor(inputs[:CHECKED_ROWS]).to(chain.device))
    known = None if labels is None else class_numbers(module, np.asarray(labels), len(inputs), classes)
    split = split_rows(len(inputs), seed)
    require(copies > 0, f"copies is {copies}", where="augment", remedy="give 1 or more")
    with ExitStack() as stack:
        folder = stack.enter_context(_scratch()) if out is None else Path(out) / "exploration"
        everything = inputs
        if augment is not None:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / "inputs.npy"
            stack.callback(path.unlink, missing_ok=True)
            everything = with_copies(inputs, split.fit, augment, copies, seed, path)
        answers, explored, left_out = explore(
            chain, everything, known, split, folder,
            variants=variants, own=own or {}, how=training or Training(), seed=seed, processes=processes,
            most_bytes=most_bytes, most_s=most_s, progress=progress,
            key=_module_key(weights_sha256(module), everything, known, chain.names),
        )  # fmt: skip
    return Exploration(chain, answers, explored, split, known, left_out)


@contextmanager
def _scratch() -> Iterator[Path]:
    try:
        made = TemporaryDirectory()
    except OSError as error:
        raise InvalidInput(
            f"no folder for hidden outputs can be made ({error.strerror})",
            remedy="give out=, or set TMPDIR to a folder that can be written",
        ) from None
    with made as folder:
        yield Path(folder)


def class_numbers(module: nn.Module, labels: NDArray[Any], n: int, classes: int) -> NDArray[np.int64]:
    """Convert labels (n,) to class numbers by the module's `classes_`, if it has them."""
    require(labels.shape == (n,), f"labels have shape {labels.shape}, needs ({n},)", where=WHERE)
    known = class_names(np.asarray(getattr(module, "classes_", np.arange(classes))))
    place = {name: i for i, name in enumerate(known.tolist())}
    numbers = np.array([place.get(name, -1) for name in class_names(labels).tolist()], dtype=np.int64)
    require(
        bool(((numbers >= 0) & (numbers < classes)).all()),
        f"labels are not among the model's {classes} classes",
        where=WHERE,
        remedy=f"give whole numbers from 0 to {classes - 1}, or name the classes in the module's classes_",
    )
    return numbers


def _module_key(weights: str, inputs: NDArray[Any], labels: NDArray[np.int64] | None, blocks: tuple[str, ...]) -> str:
    digest = hashlib.sha256(f"{weights} {inputs.dtype} {inputs.shape} {blocks}".encode())
    digest.update(np.ascontiguousarray(inputs).data)
    digest.update(b"" if labels is None else labels.tobytes())
    return digest.hexdigest()


def explore(
    chain: Chain,
    inputs: NDArray[Any],
    labels: NDArray[np.int64] | None,
    split: Split,
    folder: Path,
    *,
    variants: Sequence[str] | None,
    own: Mapping[str, Factory],
    how: Training,
    seed: int,
    key: str,
    processes: int,
    most_bytes: int,
    progress: Progress,
    most_s: float = math.inf,
) -> tuple[BaseAnswers, list[Explored], int]:
    """Return the base model's answers, trained variants, and the number of variants left out.

    `inputs` are (n, ...); rows after those of `split` are altered copies, which only predictors
    learn from. Variants that may save most come first, and none except the first is begun after
    `most_s`. Results in `folder` under the same `key` are reused. Hidden outputs take at most
    `most_bytes` of disk at a time. A user's own variants are trained in this process. Raises
    `InvalidInput` if a hidden output is unusable, `GearshiftError` if a process dies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shapes = hidden_shapes(chain, inputs[:1])
    answers = as_answers(_scores(chain, inputs, folder, key, progress))
    n, classes = len(split), answers.probabilities.shape[1]
    _write_material(folder, answers, labels, split)
    ends_s = time.monotonic() + most_s
    progress("timing the model", 0.1)
    worth = _worth(chain, inputs[:1], variants, classes, folder, key)
    jobs = [
        Job(
            layer=one.layer, variant=one.variant, shape=shapes[one.layer], classes=classes, how=how, key=key,
            folder=folder, seed=_seed(seed, one.layer, one.variant), device=str(chain.device),
        )
        for one in worth
    ]  # fmt: skip
    for job in jobs:
        if job.variant not in own:
            with torch.device("meta"):
                make_predictor(job.variant, job.shape, classes)
    groups = groups_of([4 * math.prod(shape) * len(inputs) for shape in shapes], most_bytes, chain.names)
    done = _train(chain, inputs, jobs, groups, own, processes, ends_s, progress)
    of_samples = replace(answers, probabilities=answers.probabilities[:n])
    trained = sorted((job for job in jobs if job in done), key=lambda job: job.layer)
    explored = [Explored(job.layer, job.variant, job.shape, read_trained(job, own)) for job in trained]
    return of_samples, explored, len(jobs) - len(done)


def _write_material(folder: Path, answers: BaseAnswers, labels: NDArray[np.int64] | None, split: Split) -> None:
    """Write what every training reads; rows after those of `split` are copies to learn from."""
    n = len(split)
    copies = np.arange(n, len(answers.best))
    write_array(folder / "probabilities.npy", answers.probabilities)
    write_array(folder / "labels.npy", answers.best if labels is None else np.append(labels, answers.best[n:]))
    for part, rows in (("fit", np.append(split.fit, copies)), ("judge", split.judge), ("check", split.check)):
        write_array(folder / f"{part}.npy", rows)


def _train(
    chain: Chain,
    inputs: NDArray[Any],
    jobs: Sequence[Job],
    groups: Sequence[range],
    own: Mapping[str, Factory],
    processes: int,
    ends_s: float,
    progress: Progress,
) -> list[Job]:
    """Train group by group, as hidden outputs of one fit on disk; return what is done in the end."""
    done = [job for job in jobs if is_done(job)]
    for i, layers in enumerate(groups):
        todo = [job for job in jobs if job.layer in layers and job not in done]
        waiting = sum(job.layer in group for group in groups[i:] for job in jobs if job not in done)
        now_s = time.monotonic()
        if not todo or (done and now_s >= ends_s):
            continue
        folder = todo[0].folder
        collect_hidden(chain, inputs, sorted({job.layer for job in todo}), folder)
        try:
            for job in train_all(todo, own, processes, now_s + (ends_s - now_s) * len(todo) / waiting):
                done.append(job)
                what = f"trained {job.variant} after {chain.names[job.layer]}"
                progress(what, 0.1 + 0.8 * len(done) / len(jobs))
        finally:
            for layer in layers:
                hidden_path(folder, layer).unlink(missing_ok=True)
    return done


def groups_of(sizes: Sequence[int], most_bytes: int, names: Sequence[str]) -> list[range]:
    """Group layers whose hidden outputs fit on disk; `InvalidInput` if one alone does not."""
    groups: list[range] = []
    begin = 0
    for layer, size in enumerate(sizes):
        what = f"its hidden outputs take {size / 2**20:.0f} MiB, more than the {most_bytes / 2**20:.0f} allowed"
        require(size <= most_bytes, what, where=f"block {names[layer]!r}", remedy="give fewer samples, or allow more")
        if sum(sizes[begin : layer + 1]) > most_bytes:
            groups.append(range(begin, layer))
            begin = layer
    return [*groups, range(begin, len(sizes))]


def _worth(
    chain: Chain, row: NDArray[Any], variants: Sequence[str] | None, classes: int, folder: Path, key: str
) -> list[Worth]:
    """Return the variants to train; stored, because a second timing may give other sizes."""
    path, key = folder / "variants.json", f"{key} {chain.device} {list(variants or ())}"
    try:
        known = msgspec.json.decode(read_bytes(path), type=tuple[str, list[Worth]])
    except UNREADABLE:
        known = "", []
    if known[0] != key:
        known = key, worth_of(chain, as_tensor(row).to(chain.device), variants, classes)
        write_atomically(path, msgspec.json.encode(known))
    return known[1]


def _scores(chain: Chain, inputs: NDArray[Any], folder: Path, key: str, progress: Progress) -> NDArray[np.float32]:
    torch_files, path = load_extra("safetensors.torch", extra="torch", where=str(folder)), folder / "scores.safetensors"
    if has_key(path, key):
        known: NDArray[np.float32] = torch_files.load_file(path)["scores"].numpy()
        return known
    scores = base_scores(chain, inputs, lambda share: progress("asking the model", 0.1 * share))
    write_atomically(path, torch_files.save({"scores": torch.from_numpy(scores)}, metadata={"key": key}))
    return scores


def _seed(seed: int, layer: int, variant: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {layer} {variant}".encode()).digest()[:6])
