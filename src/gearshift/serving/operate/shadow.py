"""A shadow: a plan that answers copies of some requests, only to be compared."""

import asyncio
from collections import defaultdict
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import GearshiftError, QueueFull
from gearshift.model import Arrays
from gearshift.models.classes import class_names
from gearshift.request import Answer
from gearshift.result import LatencySummary, latency_summary
from gearshift.runtime.service.served_pipeline import ServedPipeline

MOST_OPEN = 64
"""Open copies of the shadow; further ones are skipped, so that a slow shadow holds no memory."""
MOST_COMPARED = 100_000
GOLDEN_RATIO = (5**0.5 - 1) / 2
"""Its multiples modulo 1 are spread evenly and never repeat, so no rhythm of traffic biases the
share."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of a shadow compared with those of the plan in force.

    `agreement` is, by output, the share of the `rows` of both on which they agree; floating-point
    numbers agree within 1e-5.  `failed` copies had no answer; `skipped` ones were left out, as the
    shadow was behind.  Latencies, in seconds, are of the same requests; None without any.
    """

    requests: int
    rows: int
    agreement: dict[str, float]
    failed: int
    skipped: int
    latency_in_force_s: LatencySummary | None
    latency_shadow_s: LatencySummary | None


class Shadow:
    """Sends `pipeline` copies of a `share` of the offered requests, evenly spread."""

    def __init__(self, pipeline: ServedPipeline, share: float) -> None:
        self._pipeline, self._share = pipeline, share
        self._turn = 0.0
        self._copies: set[asyncio.Task[None]] = set()
        self._agreed: dict[str, int] = defaultdict(int)
        self._rows = self._failed = self._skipped = 0
        self._latencies_ns: list[tuple[int, int]] = []

    def offer(self, inputs: Arrays, answer: Answer, took_ns: int, payload_bytes: int) -> None:
        if answer.outcome == "failed" or len(self._latencies_ns) >= MOST_COMPARED:
            return
        self._turn = (self._turn + GOLDEN_RATIO) % 1
        if self._turn >= self._share:
            return
        if len(self._copies) >= MOST_OPEN:
            self._skipped += 1
            return
        copy = asyncio.get_running_loop().create_task(self._ask(inputs, answer, took_ns, payload_bytes))
        self._copies.add(copy)
        copy.add_done_callback(self._copies.discard)

    async def finished(self) -> Comparison:
        while self._copies:
            await asyncio.wait(set(self._copies))
        in_force_s, shadow_s = (np.array(self._latencies_ns, dtype=np.float64).reshape(-1, 2) / NS_PER_S).T
        compared = len(self._latencies_ns)
        return Comparison(
            requests=compared,
            rows=self._rows,
            agreement={name: agreed / self._rows for name, agreed in self._agreed.items()},
            failed=self._failed,
            skipped=self._skipped,
            latency_in_force_s=latency_summary(in_force_s) if compared else None,
            latency_shadow_s=latency_summary(shadow_s) if compared else None,
        )

    async def _ask(self, inputs: Arrays, expected: Answer, took_ns: int, payload_bytes: int) -> None:
        began_ns = self._pipeline.now_ns()
        try:
            answer = await self._pipeline.infer(inputs, payload_bytes=payload_bytes)
        except QueueFull:
            self._skipped += 1
            return
        except GearshiftError:
            self._failed += 1
            return
        if answer.outcome == "failed":
            self._failed += 1
            return
        self._latencies_ns.append((took_ns, self._pipeline.now_ns() - began_ns))
        self._rows += len(answer.rows)
        ours: Any = answer.outputs
        theirs: Any = expected.outputs
        for name in {*ours, *theirs}:
            self._agreed[name] += rows_agreed(theirs.get(name), ours.get(name))


def rows_agreed(a: NDArray[Any] | None, b: NDArray[Any] | None) -> int:
    """Count rows on which two outputs agree; 0 if one is missing or their shapes differ."""
    if a is None or b is None or a.shape != b.shape:
        return 0
    if {a.dtype.kind, b.dtype.kind} & set("OSU"):
        a, b = class_names(a), class_names(b)
    floating = a.dtype.kind == b.dtype.kind == "f"
    same = np.isclose(a, b, rtol=1e-5, atol=1e-5, equal_nan=True) if floating else a == b
    return int(np.count_nonzero(same.reshape(len(a), -1).all(axis=1)))
