"""What this machine adds to emulated devices, for profiles that were imported and lack it.

Measured as `gearshift profile` measures models: what the HTTP front end takes for a request, over a model that answers
at once; beside it, what passes beyond the emulated time from a batch's start to that of the next one behind it.  What
a request takes of the router's process is measured over an emulated device, whose work is the router's, too.
"""

import asyncio
from dataclasses import replace

import msgspec
import numpy as np
import uvloop
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S, WallClock, to_ns
from gearshift.measuring.front_end_time import LARGEST_BATCH_SIZE, front_end_beside
from gearshift.measuring.timing import fit_overheads
from gearshift.measuring.turnaround import MODEL, OPERATOR, plan_of_one_model
from gearshift.models.samples import Samples
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.request import Answer
from gearshift.runtime.backends.base import Batch
from gearshift.runtime.backends.emulated import SAMPLE, EmulatedBackend
from gearshift.runtime.service.service import Service

SECONDS = 6.0
BATCH_SIZES = (1, 4, 16)
RUN_S = 0.004
RECORDED = 2


def as_served_here(profile: Profile, seconds: float = SECONDS) -> Profile:
    """The profile with the mean time of this machine's front end, its router's, and overheads of emulated devices."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        front_end_s, router_s, per_batch_s, per_request_s = runner.run(_measured_s(seconds))
    curves = tuple(
        msgspec.structs.replace(curve, overhead_per_batch_s=per_batch_s, overhead_per_request_s=per_request_s)
        if curve.segment == 0
        else curve
        for curve in profile.curves
    )
    return replace(profile, curves=curves, front_end_s=front_end_s, router_s=router_s)


async def _measured_s(seconds: float) -> tuple[float, float, float, float]:
    """The front end's time, the router's, and overheads per batch and per request."""
    samples = Samples(inputs={SAMPLE: np.arange(64) % RECORDED})
    async with front_end_beside(samples, _service(LARGEST_BATCH_SIZE)[0]) as busy:
        pass
    async with front_end_beside(samples) as time:
        trips = [await _from_start_to_start_s(size, seconds / len(BATCH_SIZES)) for size in BATCH_SIZES]
    front_end_s = time.mean_s + busy.router_s - time.router_s  # what passes elsewhere stays the same
    return front_end_s, busy.router_s, *fit_overheads(BATCH_SIZES, trips, [np.array([RUN_S])] * len(BATCH_SIZES))


async def _from_start_to_start_s(batch_size: int, seconds: float) -> NDArray[np.float64]:
    """Seconds (batches,) from one emulated batch's start to the next one's, where the queue always holds that."""
    service, backend = _service(batch_size)
    ends_ns = service.now_ns() + to_ns(seconds)

    def ask(answer: Answer | None = None) -> None:
        if service.now_ns() < ends_ns and service.accepting:
            service.pipeline.submit({SAMPLE: np.zeros(1, dtype=np.int64)}, ask)

    await service.start()
    try:
        for _ in range(1 + 2 * batch_size):
            ask()
        await asyncio.sleep(seconds)
    finally:
        await service.stop()
    return np.diff(backend.started_ns[1:]) / NS_PER_S


def _service(batch_size: int) -> tuple[Service, "_Noting"]:
    """A service over one emulated device that takes at most `batch_size` at a time."""
    plan = plan_of_one_model(batch_size)
    tables = plan_tables(plan)
    backend = _Noting(tables, plan, _profile(batch_size))
    return Service(tables, backend, metrics=Metrics()), backend


class _Noting(EmulatedBackend):
    """Emulated devices that note when batches start."""

    def __init__(self, *of: object) -> None:
        super().__init__(*of)  # type: ignore[arg-type]
        self.started_ns: list[int] = []
        self._wall = WallClock()

    def run(self, batch: Batch) -> None:
        self.started_ns.append(self._wall.now_ns())
        super().run(batch)


def _profile(batch_size: int) -> Profile:
    """One model that takes `RUN_S` for a batch of any size."""
    sizes = (1, batch_size) if batch_size > 1 else (1,)
    seconds = (RUN_S,) * len(sizes)
    curve = RunTimeCurve(
        model=MODEL, device_kind="cpu", batch_sizes=sizes, median_s=seconds, p95_s=seconds, memory_bytes=1
    )
    right = np.ones((1, RECORDED))
    records = PredictionRecords(
        models=(MODEL,), quality=right, certainty=right, part=np.arange(RECORDED, dtype=np.int8)
    )
    return Profile(operator=OPERATOR, curves=(curve,), predictions=records)
