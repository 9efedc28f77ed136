"""The planners of language models by name, and what each is asked for: a latency, a quality, both, or a frontier."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import NamedTuple, Protocol

import msgspec

from gearshift.errors import Infeasible, InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.objective import Asked, Objective
from gearshift.planner.contract.so_far import CUT_SHORT, OutOfTime, TimedSearch, all_so_far, out_of_time
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.language.request import LanguageRequest
from gearshift.planner.language.search import LanguageSearch, rounded_up_s
from gearshift.planner.language.walk import walked
from gearshift.planner.space.bisection import narrowed
from gearshift.planner.space.pareto import undominated
from gearshift.planner.space.request import Progress, silent
from gearshift.support.numbers import milliseconds, plain

DEFAULT = "optimal"
LATENCY_PRECISION = 0.1
FRONTIER_STEP = 1.5
SAME_QUALITY = 1e-4


class Searches(Protocol):
    """Makes the search for a request."""

    def __call__(
        self, request: LanguageRequest, so_far: TimedSearch, *, single_models: bool = ...
    ) -> LanguageSearch: ...


class LanguagePlanner(NamedTuple):
    """A planner's search for its best plan within a latency."""

    best_within: Callable[[LanguageSearch], GearPlan]
    single_models: bool = False


PLANNERS = {
    "optimal": LanguagePlanner(LanguageSearch.most_accurate),
    "frontier": LanguagePlanner(walked),
    "single": LanguagePlanner(LanguageSearch.best_constant, single_models=True),
    "model-switching": LanguagePlanner(LanguageSearch.most_accurate, single_models=True),
    "static-cascade": LanguagePlanner(LanguageSearch.best_constant),
}


def named(name: str) -> LanguagePlanner:
    require(
        name in PLANNERS,
        f"there is no planner {name!r} of language models",
        remedy=f"name one of {', '.join(PLANNERS)}",
    )
    return PLANNERS[name]


def plan(
    name: str,
    request: LanguageRequest,
    *,
    progress: Progress = silent,
    so_far_at_ctrl_c: bool = True,
    search_for: Searches = LanguageSearch,
) -> GearPlan:
    """The best plan within the objective; raises `Infeasible`, or `InvalidInput` for an unknown planner.

    A plan that the budget cut short is the best so far, marked unfinished; so is one that Ctrl-C cut
    short with `so_far_at_ctrl_c`. `search_for` may give searches that know what others found.
    """
    planner, objective = named(name), request.objective
    require(
        objective.latency_s is not None or objective.accuracy is not None,
        "there is no objective",
        remedy="give a latency, an accuracy, or both",
    )
    so_far = TimedSearch(request.budget_s, progress)
    search = search_for(request, so_far, single_models=planner.single_models)
    cut_short = False
    try:
        made = _fastest(planner, search) if objective.latency_s is None else planner.best_within(search)
    except CUT_SHORT as why:
        interrupted = isinstance(why, KeyboardInterrupt)
        if so_far.plan is None or (interrupted and not so_far_at_ctrl_c):
            raise why if interrupted else out_of_time(request.budget_s) from None
        made, cut_short = so_far.plan, True
    made = msgspec.structs.replace(made, planner=name, unfinished=cut_short)
    require_accuracy(made, request)
    if objective.latency_s is None:
        kept = msgspec.structs.replace(made.pipeline.objective, accuracy=objective.accuracy)
        made = with_pipeline(made, objective=kept)
    so_far.report("planned", 1.0)
    return _recorded(made, request)


def plans_within(
    name: str, request: LanguageRequest, latencies_s: Iterable[float], *, progress: Progress = silent
) -> Iterator[GearPlan | Infeasible]:
    """The best plan within each latency, by rising latency, or why there is none.

    Each search begins with what those for tighter limits found, and has a budget of its own. A plan
    that lacks the accuracy of `request` is refused.
    """
    planner = named(name)
    search: LanguageSearch | None = None
    for latency_s in sorted(latencies_s):
        so_far = TimedSearch(request.budget_s, progress)
        objective = msgspec.structs.replace(request.objective, latency_s=latency_s)
        if search is None:
            search = LanguageSearch(request.within(latency_s), so_far, single_models=planner.single_models)
        else:
            search = search.within(latency_s, so_far)
        try:
            made = planner.best_within(search)
        except Infeasible as error:
            yield error
            continue
        except OutOfTime:
            if so_far.plan is None:
                yield out_of_time(request.budget_s)
                continue
            made = msgspec.structs.replace(so_far.plan, unfinished=True)
        try:
            require_accuracy(made, replace(request, objective=objective))
        except Infeasible as error:
            yield error
            continue
        made = with_pipeline(msgspec.structs.replace(made, planner=name), objective=objective)
        yield _recorded(made, request, objective)


def frontier(name: str, request: LanguageRequest, *, progress: Progress = silent) -> list[GearPlan]:
    """Plans that no other beats, one tried for each latency of a ladder, by rising latency."""
    planner = named(name)
    so_far = TimedSearch(request.budget_s, progress)
    asked = request.within(1e6)
    search = LanguageSearch(asked, so_far, single_models=planner.single_models)
    try:
        made = all_so_far(_rungs(planner, search, so_far))
    except OutOfTime:
        raise out_of_time(request.budget_s) from None
    points = [(each.predictions[each.name].latency_s.at(request.objective.percentile), _quality(each)) for each in made]
    so_far.report("planned", 1.0)
    found = [made[i] for i in undominated(points)]
    return [_recorded(msgspec.structs.replace(each, planner=name), request, each.pipeline.objective) for each in found]


def fewest(name: str, request: LanguageRequest, *, most: int, progress: Progress = silent) -> GearPlan:
    """The plan on the fewest devices like the first that keeps both objectives, up to `most`."""
    why: Infeasible | None = None
    for count in range(1, most + 1):
        hardware = request.hardware.devices[0]
        devices = tuple(msgspec.structs.replace(hardware, id=f"{hardware.kind}-{i}") for i in range(count))
        on = replace(request, hardware=msgspec.structs.replace(request.hardware, devices=devices))
        try:
            return plan(name, on, progress=progress)
        except Infeasible as error:
            why = error
        except InvalidInput:  # no model fits so few
            continue
    raise why or Infeasible(f"no model fits {most} devices like the first", by_load=False)


def require_accuracy(made: GearPlan, request: LanguageRequest) -> None:
    accuracy = request.objective.accuracy
    if accuracy is not None and _quality(made) < accuracy:
        ended = " where the search was ended early" if made.unfinished else ""
        raise Infeasible(
            f"within {plain(request.latency_s * 1e3)} ms the best quality is {_quality(made):.4f}{ended}, "
            f"not {accuracy:.4g}",
            nearest_accuracy=int(_quality(made) * 1e4) / 1e4,
        )


def _quality(made: GearPlan) -> float:
    """As predicted for the trace, on part B."""
    return made.predictions[made.name].accuracy


def _fastest(planner: LanguagePlanner, search: LanguageSearch) -> GearPlan:
    """The plan with the lowest latency, to `LATENCY_PRECISION`, that has the accuracy asked for.

    Where it is cut short, `search.so_far` has the fastest so far that has it, if any.
    """
    request, so_far = search.request, search.so_far
    accuracy = request.objective.accuracy
    assert accuracy is not None
    points = list(search.within(1e6).constants_s())
    reaching = [seconds for seconds, quality in points if quality >= accuracy]
    if not reaching:
        most = max((quality for _, quality in points), default=0.0)
        reason = f"no cascade has a quality of {accuracy:.4g}; the best has {most:.4f}"
        raise Infeasible(reason, nearest_accuracy=int(most * 1e4) / 1e4, by_load=False)

    best: GearPlan | None = None

    def within(latency_s: float) -> GearPlan | None:
        nonlocal best
        so_far.tell(f"planning for {milliseconds(latency_s)}", 0.5)
        so_far.plan = None
        try:
            made = planner.best_within(search.within(latency_s))
        except Infeasible:
            return None
        if _quality(made) < accuracy:
            return None
        best = made
        return made

    low, high = min(seconds for seconds, _ in points) / 2, min(reaching) * 1.05
    try:
        while (found := within(high)) is None:
            if high > 100 * max(seconds for seconds, _ in points):
                raise search.within(high).infeasible()
            low, high = high, 2 * high
        return narrowed(
            within, found, fails=low, at_most=high, precision=LATENCY_PRECISION, middle=lambda a, b: (a * b) ** 0.5
        )
    except CUT_SHORT:
        if so_far.plan is None or _quality(so_far.plan) < accuracy:
            so_far.plan = best
        raise


def _rungs(planner: LanguagePlanner, search: LanguageSearch, so_far: TimedSearch) -> Iterator[GearPlan]:
    points = list(search.constants_s())
    latency_s, top_s = min(seconds for seconds, _ in points), max(seconds for seconds, _ in points)
    best, made = -inf, 0
    while latency_s < top_s * FRONTIER_STEP:
        latency_s = rounded_up_s(latency_s)
        so_far.plan = None
        so_far.tell(f"planning for {milliseconds(latency_s)}, {made} plans so far", min(0.99, latency_s / top_s))
        try:
            found = planner.best_within(search.within(latency_s))
        except Infeasible:
            found = None
        if found is not None:
            made += 1
            best = max(best, _quality(found))
            yield found
            if best >= max(quality for _, quality in points) - SAME_QUALITY:
                return
        latency_s *= FRONTIER_STEP


def _recorded(made: GearPlan, request: LanguageRequest, objective: Objective | None = None) -> GearPlan:
    """The plan with what was asked for; what it keeps is in its own objective."""
    asked = Asked(
        objective=objective or request.objective,
        ranges=request.most_gears,
        most_candidates=request.most_candidates,
        least_margin=request.least_margin,
        budget_s=request.budget_s,
        memory_share=request.memory_share,
    )
    return with_pipeline(made, asked=asked)
