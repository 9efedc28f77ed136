"""Train one variant after one layer, in this process or in others; what is done is on disk."""

import hashlib
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from gearshift.caches.network.collect import hidden_path
from gearshift.caches.network.learned_cache import Factory, learned_cache, restored
from gearshift.caches.network.train import Material, Trained, Training, train_cache
from gearshift.caches.store.manifest import SCHEMA_VERSION
from gearshift.errors import GearshiftError
from gearshift.support.extras import load_extra
from gearshift.support.files import write_atomically


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


def train_all(
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


def is_done(job: Job) -> bool:
    return has_key(job.path, _key(job))


def has_key(path: Path, key: str) -> bool:
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
