"""Train and judge every variant after every block, in parallel processes; can be resumed."""

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from gearshift.caches.building.sizing import Worth, worth_of
from gearshift.caches.network.chain import Chain
from gearshift.caches.network.collect import (
    BaseAnswers,
    as_answers,
    as_tensor,
    base_scores,
    collect_hidden,
    hidden_bytes,
    hidden_path,
    write_array,
)
from gearshift.caches.network.learned_cache import learned_cache, restored
from gearshift.caches.network.predictors import Factory, make_predictor
from gearshift.caches.network.train import Material, Trained, Training, train_cache
from gearshift.caches.store.manifest import CHECKED_SHARE, SCHEMA_VERSION
from gearshift.errors import GearshiftError, require
from gearshift.support.extras import load_extra
from gearshift.support.files import write_atomically

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One variant to train after one layer, with all that another process needs for it."""

    layer: int
    variant: str
    shape: tuple[int, ...]
    classes: int
    how: Training
    seed: int
    key: str
    folder: Path
    device: str = "cpu"

    @property
    def path(self) -> Path:
        return self.folder / f"{self.layer:03d}-{hashlib.sha256(self.variant.encode()).hexdigest()[:12]}.safetensors"


@dataclass(frozen=True, slots=True, eq=False)
class Explored:
    """A trained variant after a layer; `shape` is that of the hidden output of one row."""

    layer: int
    variant: str
    shape: tuple[int, ...]
    trained: Trained


def split_rows(n: int, seed: int) -> Split:
    """Split n rows: 60 % for predictors, 20 % for selectors, and 20 % to judge caches."""
    order = np.random.default_rng([seed, 80]).permutation(n)
    trained = int(n * TRAINED_SHARE)
    fitted = int(trained * FITTED_SHARE)
    return Split(*(np.sort(part) for part in (order[:fitted], order[fitted:trained], order[trained:])))


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
    sizes = hidden_bytes(chain, inputs[:1])
    answers = as_answers(_scores(chain, inputs, folder, key, progress))
    n, classes = len(split), answers.probabilities.shape[1]
    known = answers.best if labels is None else np.append(labels, answers.best[n:])
    copies = np.arange(n, len(inputs))
    write_array(folder / "probabilities.npy", answers.probabilities)
    write_array(folder / "labels.npy", known)
    for part, rows in (("fit", np.append(split.fit, copies)), ("judge", split.judge), ("check", split.check)):
        write_array(folder / f"{part}.npy", rows)
    shapes = _shapes(chain, inputs[:1])
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
    done = [job for job in jobs if _is_done(job)]
    groups = groups_of([size * len(inputs) for size in sizes], most_bytes, chain.names)
    for i, layers in enumerate(groups):
        todo = [job for job in jobs if job.layer in layers and job not in done]
        waiting = sum(job.layer in group for group in groups[i:] for job in jobs if job not in done)
        now_s = time.monotonic()
        if not todo or (done and now_s >= ends_s):
            continue
        collect_hidden(chain, inputs, sorted({job.layer for job in todo}), folder)
        try:
            for job in _train_all(todo, own, processes, now_s + (ends_s - now_s) * len(todo) / waiting):
                done.append(job)
                what = f"trained {job.variant} after {chain.names[job.layer]}"
                progress(what, 0.1 + 0.8 * len(done) / len(jobs))
        finally:
            for layer in layers:
                hidden_path(folder, layer).unlink(missing_ok=True)
    of_samples = replace(answers, probabilities=answers.probabilities[:n])
    trained = sorted((job for job in jobs if job in done), key=lambda job: job.layer)
    explored = [Explored(job.layer, job.variant, job.shape, read_trained(job, own)) for job in trained]
    return of_samples, explored, len(jobs) - len(done)


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


def train_job(job: Job, own: Mapping[str, Factory] | None = None) -> Job:
    folder = job.folder

    def read(name: str) -> Any:
        return np.load(folder / f"{name}.npy")

    material = Material(
        np.load(hidden_path(folder, job.layer), mmap_mode="r"),
        *(read(name) for name in ("probabilities", "labels", "fit", "judge", "check")),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        cache = learned_cache(job.variant, job.shape, job.classes, own)
        trained = train_cache(cache, material, job.how, job.seed, torch.device(job.device))
    tensors = {f"cache.{name}": tensor.cpu().contiguous() for name, tensor in trained.cache.state_dict().items()}
    tensors["thresholds"] = torch.tensor(trained.thresholds, dtype=torch.float64)
    tensors["levels"] = torch.tensor(trained.levels, dtype=torch.float64)
    tensors["hits"] = torch.from_numpy(trained.hits)
    tensors["right"] = torch.from_numpy(trained.right)
    save = load_extra("safetensors.torch", extra="torch", where=str(job.path)).save
    write_atomically(job.path, save(tensors, metadata={"key": _key(job)}))
    return job


def read_trained(job: Job, own: Mapping[str, Factory] | None = None) -> Trained:
    tensors = load_extra("safetensors.torch", extra="torch", where=str(job.path)).load_file(job.path)
    cache = learned_cache(job.variant, job.shape, job.classes, own)
    state = {name.removeprefix("cache."): tensor for name, tensor in tensors.items() if name.startswith("cache.")}
    thresholds, levels = tuple(tensors["thresholds"].tolist()), tuple(tensors["levels"].tolist())
    return Trained(restored(cache, state), levels, thresholds, tensors["hits"].numpy(), tensors["right"].numpy())


def _worth(
    chain: Chain, row: NDArray[Any], variants: Sequence[str] | None, classes: int, folder: Path, key: str
) -> list[Worth]:
    """Return the variants to train; stored, because a second timing may give other sizes."""
    path, key = folder / "variants.json", f"{key} {chain.device} {list(variants or ())}"
    try:
        known = msgspec.json.decode(path.read_bytes(), type=tuple[str, list[Worth]])
    except (OSError, msgspec.MsgspecError):
        known = "", []
    if known[0] != key:
        known = key, worth_of(chain, as_tensor(row).to(chain.device), variants, classes)
        write_atomically(path, msgspec.json.encode(known))
    return known[1]


def _train_all(
    jobs: Sequence[Job], own: Mapping[str, Factory], processes: int, ends_s: float = math.inf
) -> Iterator[Job]:
    """Yield jobs as they finish; none except the first is begun after `ends_s` (monotonic)."""
    if processes <= 1:
        for i, job in enumerate(jobs):
            if i == 0 or time.monotonic() < ends_s:
                yield train_job(job, own)
        return
    try:
        with ProcessPoolExecutor(
            min(processes, len(jobs)), mp_context=get_context("spawn"), initializer=_one_thread
        ) as pool:
            running = [pool.submit(train_job, job) for job in jobs if job.variant not in own]
            yield from (train_job(job, own) for job in jobs if job.variant in own)
            try:
                yield from _until(ends_s, running)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    except BrokenProcessPool as error:
        raise GearshiftError(
            "a process that trained learned caches ended, perhaps for want of memory; run it again with fewer "
            "processes, and it goes on where it ended"
        ) from error


def _until(ends_s: float, running: Sequence[Future[Job]]) -> Iterator[Job]:
    waiting = set(running)
    while waiting:
        left_s = None if math.isinf(ends_s) else max(0.0, ends_s - time.monotonic())
        done, waiting = wait(waiting, left_s, FIRST_COMPLETED)
        yield from (future.result() for future in done)
        if time.monotonic() >= ends_s:
            waiting -= {future for future in waiting if future.cancel()}
            ends_s = math.inf


def _one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


def _shapes(chain: Chain, row: NDArray[Any]) -> list[tuple[int, ...]]:
    with torch.inference_mode():
        return [tuple(hidden.shape[1:]) for hidden in chain.hidden(torch.from_numpy(np.array(row)).to(chain.device))]


def _scores(chain: Chain, inputs: NDArray[Any], folder: Path, key: str, progress: Progress) -> NDArray[np.float32]:
    torch_files, path = load_extra("safetensors.torch", extra="torch", where=str(folder)), folder / "scores.safetensors"
    if _has_key(path, key):
        known: NDArray[np.float32] = torch_files.load_file(path)["scores"].numpy()
        return known
    scores = base_scores(chain, inputs, lambda share: progress("asking the model", 0.1 * share))
    write_atomically(path, torch_files.save({"scores": torch.from_numpy(scores)}, metadata={"key": key}))
    return scores


def _is_done(job: Job) -> bool:
    return _has_key(job.path, _key(job))


def _has_key(path: Path, key: str) -> bool:
    if not path.is_file():
        return False
    safe_open = load_extra("safetensors", extra="torch", where=str(path)).safe_open
    try:
        with safe_open(path, framework="pt") as file:
            return bool((file.metadata() or {}).get("key") == key)
    except Exception:  # noqa: BLE001 - any broken file is made again
        return False


def _key(job: Job) -> str:
    facts = [SCHEMA_VERSION, job.key, job.variant, job.shape, job.how, job.seed]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()


def _seed(seed: int, layer: int, variant: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {layer} {variant}".encode()).digest()[:6])
