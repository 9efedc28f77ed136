"""Compare planners by their plans for device counts and latency objectives.

All use one profile and trace. Cocktail+, which makes no plan, is simulated with the fewest devices
for each cell of the grid.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.display import in_notebook
from gearshift.errors import GearshiftError, require
from gearshift.planner import planners
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.pareto import hypervolume
from gearshift.planner.space.request import Kind, PlanRequest, Request, Shape
from gearshift.plans.prices import price_per_hour
from gearshift.profiles.profile import PART_B, Profile
from gearshift.result import ServingResult
from gearshift.simulator.compared.cocktail import fewest_devices_cocktail
from gearshift.simulator.compared.ensembles import MOST_MODELS

COCKTAIL = "cocktail+"
BASELINES: dict[tuple[Kind, Shape], tuple[str, ...]] = {
    ("rows", "one"): ("single", "model-switching", "static-cascade", "placement-heuristic", COCKTAIL),
    ("rows", "several"): ("apart", "coordinate", "frontier"),
    ("rows", "graph"): ("greedy", "apart"),
}
"""The default baselines that savings are relative to."""
REFERENCE_FACTOR = 10
ACCURACIES = 5
ROUNDING = 1e-9
INTERRUPTED = "interrupted"

Job = tuple[str, PlanRequest]
"""The name of a planner, or Cocktail+, and its request."""


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """The means of one of several pipelines beside its own latency objective; `share` of all requests are its."""

    latency_objective_s: float
    share: float
    predicted: ServingResult


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One planner on some devices for one latency objective: its plan's prediction, or its `error`.

    The objective is kept by `percentile` of the requests. `unfinished` is a plan that the budget
    cut short. For Cocktail+ `devices` is the average over the trace; 0 where it failed. A plan of
    several `pipelines` has their predictions there, and the longest of their objectives.
    `price_per_hour` is that of all devices; None where it is not known.
    """

    planner: str
    devices: int | float
    latency_objective_s: float
    percentile: float = 0.95
    planning_s: float
    unfinished: bool = False
    predicted: ServingResult | None = None
    pipelines: dict[str, Predicted] | UnsetType = UNSET
    price_per_hour: float | None = None
    error: dict[str, Any] | None = None

    @property
    def of_each(self) -> list[Predicted]:
        """The pipelines, of which there may be one; none where there is no plan."""
        if self.pipelines is not UNSET:
            return list(self.pipelines.values())
        if self.predicted is None:
            return []
        return [Predicted(latency_objective_s=self.latency_objective_s, share=1.0, predicted=self.predicted)]

    @property
    def accuracy(self) -> float | None:
        """The mean over the requests of all pipelines."""
        return sum(each.share * each.predicted.accuracy for each in self.of_each) if self.of_each else None

    @property
    def share_late(self) -> float | None:
        return sum(each.share * each.predicted.share_late for each in self.of_each) if self.of_each else None

    @property
    def point(self) -> tuple[float, float] | None:
        """The latency in seconds that the plan promises, and its accuracy.

        The latency is the objective that the plan was made for, so that a plan may use all of it;
        for a plan that does not keep it on the trace, it is the predicted latency. With several
        pipelines it grows as that of the one which misses its objective by most.
        """
        if self.accuracy is None:
            return None
        scale_s = self.latency_objective_s
        needed_s = [
            each.predicted.latency_s.at(self.percentile) * (scale_s / each.latency_objective_s)
            for each in self.of_each
            if each.predicted.share_late > 1 - self.percentile + ROUNDING
        ]
        return max([scale_s, *needed_s]), self.accuracy


class GridCell(msgspec.Struct, frozen=True, kw_only=True):
    """The fewest devices with which a planner reaches `accuracy` within `latency_s`; None for none.

    For Cocktail+ it is an average over the trace. `saving` is the best baseline's devices divided
    by these. With `saving_at_least` no baseline reaches the cell, and the largest number of
    devices compared stands in for it.
    """

    planner: str
    accuracy: float
    latency_s: float
    devices: int | float | None = None
    saving: float | None = None
    saving_at_least: bool = False


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """The hypervolume of a planner's plans on `devices` devices."""

    planner: str
    devices: int
    hypervolume: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All runs, with those of Cocktail+, and the grid and hypervolumes computed from them.

    `columns` are those of the grid: the planners, and Cocktail+ where it was simulated.
    `reference` (seconds, accuracy) bounds the hypervolumes.
    """

    planners: tuple[str, ...]
    columns: tuple[str, ...]
    baselines: tuple[str, ...]
    device_counts: tuple[int, ...]
    percentile: float
    latencies_s: tuple[float, ...]
    accuracies: tuple[float, ...]
    reference: tuple[float, float]
    runs: tuple[Run, ...]
    grid: tuple[GridCell, ...]
    hypervolumes: tuple[Volume, ...]

    _repr_html_ = in_notebook


def comparable(profile: Profile) -> tuple[str, ...]:
    votes = profile.predictions.prediction is not None and len(profile.models) <= MOST_MODELS
    return (*planners.for_(), *([COCKTAIL] if votes else []))


def require_comparable(names: Sequence[str], profile: Profile) -> None:
    for name in names:
        if name != COCKTAIL:
            planners.require_planner(name)
    require(
        COCKTAIL not in names or COCKTAIL in comparable(profile),
        f"Cocktail+ needs recorded predictions of at most {MOST_MODELS} models to vote with, which the profile lacks",
        remedy=f"leave {COCKTAIL} out, or import records with a column 'prediction'",
    )


def run_planner(planner: str, request: Request) -> Run:
    """Run a planner; every exception becomes the run's `error`."""
    find = _cocktail if planner == COCKTAIL else partial(_planned, planner)
    return _run(planner, request, **ran(lambda: find(request)))


def ran(find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The fields of a run that `find` returns, and how long it took; every exception becomes its `error`."""
    began, found = time.perf_counter(), dict[str, Any]()
    try:
        found = find()
    except GearshiftError as known:
        found = {"error": known.facts()}
    except Exception as bug:  # noqa: BLE001 - the boundary of a run: it must not end the others
        found = {"error": {"kind": "bug", "message": f"{type(bug).__name__}: {bug}"}}
    return {"planning_s": time.perf_counter() - began, **found}


def _cocktail(request: Request) -> dict[str, Any]:
    assert isinstance(request, PlanRequest)
    simulated = fewest_devices_cocktail(request.profile, request.trace, request.objective, seed=request.seed)
    return {"devices": simulated.mean_devices, "predicted": simulated.result}


def _planned(planner: str, request: Request) -> dict[str, Any]:
    made = planners.plan(planner, request)
    if not isinstance(request, SeveralRequest):
        return {"unfinished": made.unfinished, "predicted": made.predictions[made.name]}
    pipelines = {
        name: Predicted(
            latency_objective_s=one.latency_s,
            share=request.share_of_requests[name],
            predicted=made.predictions[name],
        )
        for name, one in request.requests.items()
    }
    return {"unfinished": made.unfinished, "pipelines": pipelines}


def died(planner: str, request: Request, how: str) -> Run:
    return _run(planner, request, planning_s=0.0, error={"kind": "died", "message": how})


def ended(planner: str, request: Request, kind: str) -> Run:
    """A run that was ended before it had a plan."""
    return _run(planner, request, planning_s=0.0, error={"kind": kind, "message": "ended before it had a plan"})


def count_interrupted(runs: Sequence[Run]) -> int:
    return sum(run.error is not None and run.error["kind"] == INTERRUPTED for run in runs)


def _run(planner: str, request: Request, **found: Any) -> Run:
    hardware, asked = request.hardware, {"devices": 0 if planner == COCKTAIL else len(request.hardware.devices)}
    latency_s, percentile = request.latency_s, request.percentile
    facts = asked | found
    price = price_per_hour(hardware)
    return Run(
        planner=planner,
        latency_objective_s=latency_s,
        percentile=percentile,
        price_per_hour=None if price is None else facts["devices"] * price / len(hardware.devices),
        **facts,
    )


def rows_of_grid(runs: Sequence[Run], worst: float, accuracies: Sequence[float] | None = None) -> tuple[float, ...]:
    return tuple(sorted(accuracies)) if accuracies else accuracy_steps(runs, worst)


def cocktail_jobs(request: PlanRequest, accuracies: Sequence[float], latencies_s: Sequence[float]) -> list[Job]:
    objectives = (
        msgspec.structs.replace(request.objective, accuracy=accuracy, latency_s=latency_s)
        for latency_s in latencies_s
        for accuracy in accuracies
    )
    return [(COCKTAIL, dataclasses.replace(request, objective=objective)) for objective in objectives]


def compared(
    runs: Sequence[Run],
    worst: float,
    *,
    baselines: Sequence[str] = BASELINES["rows", "one"],
    accuracies: Sequence[float] | None = None,
) -> Comparison:
    """Compute the grid of fewest devices, and hypervolumes.

    `worst` is the accuracy of the worst models, below which nothing counts. `accuracies` are the
    rows of the grid, by default those of `rows_of_grid`.
    """
    planned = [run for run in runs if run.planner != COCKTAIL]
    names = tuple(dict.fromkeys(run.planner for run in planned))
    columns = tuple(dict.fromkeys(run.planner for run in runs))
    counts = tuple(sorted({int(run.devices) for run in planned}))
    latencies_s = tuple(sorted({run.latency_objective_s for run in runs}))
    reference = REFERENCE_FACTOR * latencies_s[-1], worst
    rows = rows_of_grid(planned, worst, accuracies)
    against = tuple(name for name in columns if name in baselines)
    return Comparison(
        planners=names,
        columns=columns,
        baselines=against,
        device_counts=counts,
        percentile=runs[0].percentile,
        latencies_s=latencies_s,
        accuracies=rows,
        reference=reference,
        runs=tuple(runs),
        grid=tuple(
            cell
            for accuracy in rows
            for latency_s in latencies_s
            for cell in _cells(runs, columns, against, accuracy, latency_s, most=counts[-1])
        ),
        hypervolumes=tuple(
            Volume(planner=name, devices=count, hypervolume=hypervolume(points(runs, name, count), reference=reference))
            for name in names
            for count in counts
        ),
    )


def points(runs: Sequence[Run], planner: str, devices: int) -> list[tuple[float, float]]:
    chosen = (run.point for run in runs if (run.planner, run.devices) == (planner, devices))
    return [point for point in chosen if point is not None]


def worst_accuracy(request: Request) -> float:
    """The accuracy on part B, over all requests, where each operator has its worst model."""
    if isinstance(request, SeveralRequest):
        share = request.share_of_requests
        return sum(share[name] * worst_accuracy(one) for name, one in request.requests.items())
    if isinstance(request, PlanRequest):
        records = request.profile.predictions
        return float(records.quality[:, records.indices(PART_B)].mean(axis=1).min())
    from gearshift.planner.joint.candidates import worst_composed
    from gearshift.planner.joint.request import PipelineRequest

    assert isinstance(request, PipelineRequest)
    return worst_composed(request)


def accuracy_steps(runs: Sequence[Run], worst: float) -> tuple[float, ...]:
    best = max((run.accuracy for run in runs if run.accuracy is not None), default=worst)
    steps = [worst + (best - worst) * (k + 1) / ACCURACIES for k in range(ACCURACIES)]
    return tuple(sorted({math.floor(step * 1e3 + 1e-9) / 1e3 for step in steps}))


def fewest(runs: Sequence[Run], planner: str, accuracy: float, latency_s: float) -> int | float | None:
    enough = (
        run.devices
        for run in runs
        if run.planner == planner
        and (point := run.point) is not None
        and point[0] <= latency_s
        and point[1] >= accuracy
    )
    return min(enough, default=None)


def _cells(
    runs: Sequence[Run],
    columns: Sequence[str],
    baselines: Sequence[str],
    accuracy: float,
    latency_s: float,
    *,
    most: int,
) -> list[GridCell]:
    needed = {name: fewest(runs, name, accuracy, latency_s) for name in columns}
    reached = [count for name in baselines if (count := needed[name]) is not None]
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
