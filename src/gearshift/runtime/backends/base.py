"""The interface of backends: start a batch, and report its samples."""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gearshift.request import Sample


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples that one replica (an index of `PlanTables.replica_ids`) runs together."""

    id: int
    replica: int
    samples: Sequence[Sample]


class BatchEvents(Protocol):
    """Receives a backend's reports, always on the event loop's thread.

    Before it reports a sample, a backend sets `certainty` and `result`, or `error` (a sentence
    without internals) if it failed. `result` maps each output's name to the sample's row of it, an
    array of one row. Plain models report all samples at once, right before the batch; models with
    learned caches report each exit as it happens.
    """

    def samples_finished(self, batch: Batch, samples: Sequence[Sample]) -> None:
        """These samples of `batch` have their result; the device stays busy."""
        ...

    def batch_finished(self, batch: Batch) -> None:
        """All samples were reported; the replica's devices are free."""
        ...

    def replicas_lost(self, replicas: Sequence[int], how: str) -> None:
        """`how` follows "the worker", which restarts; its running batches are never reported."""
        ...

    def replica_ready(self, replica: int) -> None: ...


class Backend(Protocol):
    """Runs batches for the router; one contract suite holds for all implementations."""

    async def start(self, events: BatchEvents) -> None:
        """Load and warm up every replica; raises `ModelFailed` if one cannot be loaded."""
        ...

    def run(self, batch: Batch) -> None:
        """Start `batch` on its idle replica; returns at once."""
        ...

    async def stop(self) -> None:
        """End all workers and release everything; may be called twice."""
        ...


async def all_ended(endings: Iterable[Awaitable[None]]) -> None:
    """Wait until all have ended, then raise the first fault among them."""
    for fault in await asyncio.gather(*endings, return_exceptions=True):
        if fault is not None:
            raise fault
