"""Planners of language models side by side, with a control: the best plan where certainties are permuted."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from gearshift.errors import require
from gearshift.objective import Metric
from gearshift.planner.compare import INTERRUPTED, ran
from gearshift.planner.language.compared.shared import SharedSearches
from gearshift.planner.language.planners import LanguagePlanner, Searches
from gearshift.planner.language.request import LanguageRequest
from gearshift.planner.planners import DEFAULT, named, require_planner
from gearshift.planner.space.request import Progress, silent
from gearshift.plans.prices import price_per_hour
from gearshift.result import ServingResult

CONTROL = "permuted"
"""In place of a planner: the planner `optimal` with certainties that rank nothing."""
CONTROLS = 3


class LanguageRun(msgspec.Struct, frozen=True, kw_only=True):
    """One planner, or the control, on some devices for one limit: what is predicted, or its `error`.

    `planning_s` is without what runs before it had searched. `unfinished` is a plan that the budget
    cut short. Of the control's permutations it is the one in the middle. `price_per_hour` is that of
    all devices; None where it is not known.
    """

    planner: str
    devices: int
    limit_s: float
    planning_s: float
    gears: int = 0
    unfinished: bool = False
    price_per_hour: float | None = None
    predicted: ServingResult | None = None
    error: dict[str, Any] | None = None


class LanguageComparison(msgspec.Struct, frozen=True, kw_only=True):
    """`worth` is the quality that `optimal` has more than the control, by devices and limit, where both were run."""

    metric: Metric
    percentile: float
    runs: tuple[LanguageRun, ...]
    worth: tuple[tuple[int, float, float], ...]

    @property
    def interrupted(self) -> int:
        """Runs that Ctrl-C ended."""
        return sum(run.error is not None and run.error["kind"] == INTERRUPTED for run in self.runs)


def compare_language(
    requests: Sequence[LanguageRequest], names: Iterable[str], *, progress: Progress = silent
) -> LanguageComparison:
    """Run every planner on every request, each with a latency; a run that fails has its `error`.

    At Ctrl-C finished runs are kept, and the others have an error of kind `interrupted`; without a
    finished one it is raised.
    """
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name != CONTROL:
            require_planner(name, "tokens")
    require(bool(wanted and requests), "nothing to compare", remedy="name planners, devices and limits")
    shared = SharedSearches()
    jobs, runs = [(name, request) for request in requests for name in wanted], list[LanguageRun]()
    try:
        for done, (name, request) in enumerate(jobs):
            what = f"{name}, {len(request.hardware.devices)} devices, {1e3 * request.latency_s:g} ms"
            progress(what, done / len(jobs))
            runs.append(_control(request, shared) if name == CONTROL else _run(name, name, request, shared.of))
        progress("compared", 1.0)
    except KeyboardInterrupt:
        if not runs:
            raise
        progress(f"interrupted: {len(runs)} of {len(jobs)} runs are kept", len(runs) / len(jobs))
        error = {"kind": INTERRUPTED, "message": "ended before it had a plan"}
        runs += [_told(name, request, planning_s=0.0, error=error) for name, request in jobs[len(runs) :]]
    return LanguageComparison(
        metric=requests[0].metric,
        percentile=requests[0].objective.percentile,
        runs=tuple(runs),
        worth=tuple(_worth(runs)),
    )


def _control(request: LanguageRequest, shared: SharedSearches) -> LanguageRun:
    runs = [_run(CONTROL, DEFAULT, request, shared.permuted(seed)) for seed in range(CONTROLS)]
    known = sorted((run for run in runs if run.predicted is not None), key=_quality)
    return known[len(known) // 2] if known else runs[0]


def _run(shown: str, planner: str, request: LanguageRequest, search_for: Searches) -> LanguageRun:
    def planned() -> dict[str, Any]:
        one: LanguagePlanner = named(planner, "tokens")  # type: ignore[assignment]
        made = one.with_searches(search_for).plan(request, keeps_at_ctrl_c=False)
        gears, predicted = len(made.pipeline.gears), made.predictions[made.name]
        return {"predicted": predicted, "gears": gears, "unfinished": made.unfinished}

    return _told(shown, request, **ran(planned))


def _told(shown: str, request: LanguageRequest, **found: Any) -> LanguageRun:
    return LanguageRun(
        planner=shown,
        devices=len(request.hardware.devices),
        limit_s=request.latency_s,
        price_per_hour=price_per_hour(request.hardware),
        **found,
    )


def _quality(run: LanguageRun) -> float:
    return -np.inf if run.predicted is None else run.predicted.accuracy


def _worth(runs: Sequence[LanguageRun]) -> Iterable[tuple[int, float, float]]:
    control = {(run.devices, run.limit_s): _quality(run) for run in runs if run.planner == CONTROL}
    for run in runs:
        if run.planner == DEFAULT and np.isfinite(control.get((run.devices, run.limit_s), np.nan)):
            yield run.devices, run.limit_s, _quality(run) - control[run.devices, run.limit_s]
