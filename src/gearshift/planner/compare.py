"""Planners side by side: their plans for device counts and latency objectives, on one profile and trace."""

import math
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from gearshift.errors import GearshiftError
from gearshift.planner import planners
from gearshift.planner.hypervolume import hypervolume
from gearshift.planner.request import PlanRequest
from gearshift.profiles.profile import PART_B, Profile
from gearshift.result import ServingResult

BASELINES = ("single", "model-switching", "static-cascade", "placement-heuristic")
"""What savings are counted against, where nothing else is named."""
REFERENCE_FACTOR = 10
ACCURACIES = 5


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One planner on some devices for one latency objective: what its plan predicts, or the `error` that ended it."""

    planner: str
    devices: int
    latency_objective_s: float
    planning_s: float
    predicted: ServingResult | None = None
    error: dict[str, Any] | None = None

    @property
    def point(self) -> tuple[float, float] | None:
        """The predicted p95 in seconds and accuracy."""
        return None if self.predicted is None else (self.predicted.latency_s.p95, self.predicted.accuracy)


class GridCell(msgspec.Struct, frozen=True, kw_only=True):
    """The fewest devices with which a planner reaches `accuracy` within `latency_s`; None where none do.

    `saving` is how many times as many the best baseline needs; `saving_at_least` where no baseline reaches the cell,
    so that the largest number of devices compared stands in for it.
    """

    planner: str
    accuracy: float
    latency_s: float
    devices: int | None = None
    saving: float | None = None
    saving_at_least: bool = False


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """The hypervolume of a planner's plans on so many devices."""

    planner: str
    devices: int
    hypervolume: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All runs, and what follows from them.  `reference` (seconds, accuracy) bounds the hypervolumes."""

    planners: tuple[str, ...]
    baselines: tuple[str, ...]
    device_counts: tuple[int, ...]
    latencies_s: tuple[float, ...]
    accuracies: tuple[float, ...]
    reference: tuple[float, float]
    runs: tuple[Run, ...]
    grid: tuple[GridCell, ...]
    hypervolumes: tuple[Volume, ...]


def run_planner(planner: str, request: PlanRequest) -> Run:
    """One run; whatever goes wrong in it is its `error`."""
    began = time.perf_counter()
    predicted, error = None, None
    try:
        predicted = planners.plan(planner, request).predictions[request.profile.operator]
    except GearshiftError as known:
        error = known.facts()
    except Exception as bug:  # noqa: BLE001 - the boundary of a run: it must not end the others
        error = {"kind": "bug", "message": f"{type(bug).__name__}: {bug}"}
    return Run(planning_s=time.perf_counter() - began, predicted=predicted, error=error, **_asked(planner, request))


def died(planner: str, request: PlanRequest, how: str) -> Run:
    """The run of a process that ended without an answer."""
    return Run(planning_s=0.0, error={"kind": "died", "message": how}, **_asked(planner, request))


def _asked(planner: str, request: PlanRequest) -> dict[str, Any]:
    return {
        "planner": planner,
        "devices": len(request.hardware.devices),
        "latency_objective_s": request.latency_s,
    }


def compared(
    runs: Sequence[Run],
    profile: Profile,
    *,
    baselines: Sequence[str] = BASELINES,
    accuracies: Sequence[float] | None = None,
) -> Comparison:
    """What follows from the runs: the grid of fewest devices, and hypervolumes.

    `accuracies` are the rows of the grid; by default steps from the worst single model's up to the best of any run.
    """
    names = tuple(dict.fromkeys(run.planner for run in runs))
    counts = tuple(sorted({run.devices for run in runs}))
    latencies_s = tuple(sorted({run.latency_objective_s for run in runs}))
    reference = REFERENCE_FACTOR * latencies_s[-1], worst_accuracy(profile)
    rows = tuple(sorted(accuracies)) if accuracies else accuracy_steps(runs, reference[1])
    against = tuple(name for name in names if name in baselines)
    return Comparison(
        planners=names,
        baselines=against,
        device_counts=counts,
        latencies_s=latencies_s,
        accuracies=rows,
        reference=reference,
        runs=tuple(runs),
        grid=tuple(
            cell
            for accuracy in rows
            for latency_s in latencies_s
            for cell in _cells(runs, names, against, accuracy, latency_s)
        ),
        hypervolumes=tuple(
            Volume(planner=name, devices=count, hypervolume=hypervolume(points(runs, name, count), reference=reference))
            for name in names
            for count in counts
        ),
    )


def points(runs: Sequence[Run], planner: str, devices: int) -> list[tuple[float, float]]:
    """The p95 in seconds and accuracy of a planner's plans on so many devices."""
    chosen = (run.point for run in runs if (run.planner, run.devices) == (planner, devices))
    return [point for point in chosen if point is not None]


def worst_accuracy(profile: Profile) -> float:
    """The accuracy on part B of the worst single model."""
    return float(profile.predictions.quality[:, profile.predictions.indices(PART_B)].mean(axis=1).min())


def accuracy_steps(runs: Sequence[Run], worst: float) -> tuple[float, ...]:
    """Even steps above `worst` to the best accuracy of any run, rounded down to a thousandth."""
    best = max((run.predicted.accuracy for run in runs if run.predicted is not None), default=worst)
    steps = [worst + (best - worst) * (k + 1) / ACCURACIES for k in range(ACCURACIES)]
    return tuple(sorted({math.floor(step * 1e3 + 1e-9) / 1e3 for step in steps}))


def fewest(runs: Sequence[Run], planner: str, accuracy: float, latency_s: float) -> int | None:
    """The fewest devices of any of the planner's runs that reaches `accuracy` within `latency_s`."""
    enough = (
        run.devices
        for run in runs
        if run.planner == planner
        and run.predicted is not None
        and run.predicted.accuracy >= accuracy
        and run.predicted.latency_s.p95 <= latency_s
    )
    return min(enough, default=None)


def _cells(
    runs: Sequence[Run], names: Sequence[str], baselines: Sequence[str], accuracy: float, latency_s: float
) -> list[GridCell]:
    """One cell of the grid for every planner."""
    needed = {name: fewest(runs, name, accuracy, latency_s) for name in names}
    reached = [count for name in baselines if (count := needed[name]) is not None]
    most = max(run.devices for run in runs)
    cells = []
    for name, count in needed.items():
        compares = bool(baselines) and name not in baselines and count is not None
        cells.append(
            GridCell(
                planner=name,
                accuracy=accuracy,
                latency_s=latency_s,
                devices=count,
                saving=min(reached, default=most) / count if compares and count else None,
                saving_at_least=compares and not reached,
            )
        )
    return cells
