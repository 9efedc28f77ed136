"""Planners of language models side by side, with a control: the best plan where certainties are permuted."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import msgspec
import numpy as np

from gearshift.errors import require
from gearshift.objective import Metric
from gearshift.planner.compare import INTERRUPTED, ran
from gearshift.planner.contract.planner import Search
from gearshift.planner.language.planners import LanguagePlanner, Searches
from gearshift.planner.language.request import LanguageRequest
from gearshift.planner.language.search import LanguageSearch
from gearshift.planner.planners import DEFAULT, named, require_planner
from gearshift.planner.space.request import Progress, silent
from gearshift.plans.prices import price_per_hour
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.result import ServingResult
from gearshift.workload import Trace

# Profiles to hold a plan's gain against: certainties that rank nothing, and certainties that know.
#
# Splitting requests under load gains by itself, so what certainty is worth is the difference to a plan
# whose certainties were permuted.


def permuted(profile: LanguageProfile, *, seed: int = 0) -> LanguageProfile:
    """The profile with each model's certainties dealt to other prompts of the same part."""
    generator = np.random.default_rng([seed, 0x9E])
    answers = profile.answers
    certainty = answers.certainty.copy()
    for model in range(len(answers.models)):
        for part in (PART_A, PART_B):
            mine = answers.indices(part)
            certainty[model, mine] = answers.certainty[model, generator.permutation(mine)]
    return replace(profile, answers=replace(answers, certainty=certainty))


# Searches of a comparison that know what those before them found.
#
# Planners and limits have placements and simulations in common, and single models and splits by id
# are the same whatever the certainties.


class SharedSearches:
    """Searches for requests that differ in latency alone, one after another; any other request begins anew.

    With a budget each search is by itself, so that none has the time of another.
    """

    def __init__(self) -> None:
        self._first: LanguageSearch | None = None
        self._permuted: dict[int, LanguageSearch] = {}

    def of(
        self, request: LanguageRequest, so_far: Search[LanguageRequest], *, single_models: bool = False
    ) -> LanguageSearch:
        if request.budget_s is not None or request.objective.latency_s is None:
            return LanguageSearch(request, so_far, single_models=single_models)
        return self._begun(request).within(request.latency_s, so_far, single_models=single_models)

    def permuted(self, seed: int) -> Searches:
        """Searches where certainties are permuted."""

        def search_for(
            request: LanguageRequest, so_far: Search[LanguageRequest], *, single_models: bool = False
        ) -> LanguageSearch:
            if request.budget_s is not None or request.objective.latency_s is None:
                other = replace(request, profile=permuted(request.profile, seed=seed))
                return LanguageSearch(other, so_far, single_models=single_models)
            first = self._begun(request)
            if seed not in self._permuted:
                self._permuted[seed] = first.with_certainties_of(permuted(request.profile, seed=seed))
            self._permuted[seed].known.clear()  # its simulations, of which few are asked for again
            return self._permuted[seed].within(request.latency_s, so_far, single_models=single_models)

        return search_for

    def _begun(self, request: LanguageRequest) -> LanguageSearch:
        if self._first is None or not _alike_but_for_latency(self._first.request, request):
            self._first, self._permuted = LanguageSearch(request, Search(request)), {}
            self._first.begins_alone = True
        return self._first


def _alike_but_for_latency(one: LanguageRequest, other: LanguageRequest) -> bool:
    one, other = one.within(None), other.within(None)
    return all(_same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Trace) and isinstance(other, Trace):
        return one.duration_s == other.duration_s and np.array_equal(one.arrivals_ns, other.arrivals_ns)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return one is other or bool(one == other)


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
