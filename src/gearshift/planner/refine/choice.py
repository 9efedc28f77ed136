"""Whether a request is served better by a plan that refines, or by gears as the papers have them."""

import dataclasses
import time
from collections.abc import Callable, Mapping

import msgspec

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.objective import Policy
from gearshift.planner.contract.ladder import accuracy_on_part_a, undominated_plans
from gearshift.planner.contract.median import frontier_within_median, within_median
from gearshift.planner.contract.planner import Planner, R
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.refine.search import PLANNER
from gearshift.planner.space.beside import without_idle_models
from gearshift.planner.space.request import PlanRequest, Progress
from gearshift.plans.prices import price_per_hour
from gearshift.support.numbers import milliseconds, plain

LEAST_BETTER = 5e-4
"""The accuracy that a plan that refines must gain over the ordinary one to be chosen."""
SAME_PRICE = 1e-9
REFINES = "rows are refined while there is time"
ALONE = "the plan has gears alone"
ENDED_BEFORE = f"{ALONE}, as the search was ended before one that refines was found"
SPENT = 0.9
"""A search that ends unfinished before this share of its budget was ended by hand."""

Find = Callable[[PlanRequest], GearPlan]


def plan_by_policy(planner: Planner[PlanRequest], request: PlanRequest, *, progress: Progress) -> tuple[GearPlan, str]:
    """The plan of `planner`, one that refines, or the better of the two, and a sentence that says why it is that one.

    Raises `Infeasible` without any.
    """

    def of(way: Planner[PlanRequest]) -> Find:
        return lambda asked: within_median(lambda each: way.plan(each, progress=progress), asked)

    return _chosen(request, {way.name: of(way) for way in ways_of(planner, PLANNER, request.policy)})


def frontier_by_policy(planner: Planner[PlanRequest], request: PlanRequest, *, progress: Progress) -> list[GearPlan]:
    """The undominated plans of `planner`, of those that refine, or of both together, by rising latency."""
    made: list[GearPlan] = []
    refused: list[Infeasible] = []
    for way in ways_of(planner, PLANNER, request.policy):
        try:
            made += frontier_within_median(way.frontier(request, progress=progress), request)
        except Infeasible as error:
            refused.append(error)
    if not made:
        raise refused[0]
    return undominated_plans(made, request)


def fewest_by_policy(
    planner: Planner[PlanRequest], request: PlanRequest, fewest: Callable[[str, PlanRequest], GearPlan]
) -> GearPlan:
    """The plan on the fewest devices by `planner`, of one that refines, or the better of the two."""

    def of(one: str) -> Find:
        return lambda asked: fewest(one, dataclasses.replace(asked, policy="gears"))

    made, because = _chosen(request, {way.name: of(way.name) for way in ways_of(planner, PLANNER, request.policy)})
    if (asked := made.pipeline.asked) is None:
        return made
    objective = msgspec.structs.replace(asked.objective, confidence=request.objective.confidence)
    recorded = msgspec.structs.replace(
        asked, objective=objective, policy=request.policy, chosen_because=because, budget_s=request.budget_s
    )
    return with_pipeline(made, asked=recorded)


def is_better(refined: GearPlan, ordinary: GearPlan, request: PlanRequest) -> bool:
    """More accurate within a latency, by part A and no less by part B; faster where only an accuracy is asked for.

    Gains are fitted on part A, so with few samples refining looks better there than it is.
    """
    return _better(refined, ordinary, request)[0]


def price_of_used(made: GearPlan) -> float:
    """The price for an hour of the devices that some gear uses."""
    used = _used(made)
    return sum(device.price_to_compare for device in made.hardware.devices if device.id in used)


def _used(made: GearPlan) -> set[str]:
    """The devices that some gear uses."""
    return {device for replica in without_idle_models(made).placement.replicas for device in replica.device_ids}


def ways_of(planner: Planner[R], refining: Planner[R], policy: Policy) -> list[Planner[R]]:
    ways = {"gears": [planner], "refine": [refining], "best": [planner, refining]}[policy]
    return list({way.name: way for way in ways}.values())


def _chosen(request: PlanRequest, finds: Mapping[str, Find]) -> tuple[GearPlan, str]:
    """The better plan of these planners, of which each has its part of what a confidence leaves to chance.

    All are held against the samples of part B.
    """
    part = _shared(request, len(finds))
    return chosen(
        {name: lambda find=find: _as_asked(find(part), request) for name, find in finds.items()},  # type: ignore[misc]
        part.budget_s,
        lambda refining, gears: _better_at_its_price(refining, gears, request),
    )


def chosen(
    finds: Mapping[str, Callable[[], GearPlan]],
    budget_s: float | None,
    better: Callable[[GearPlan, GearPlan], tuple[bool, str]],
) -> tuple[GearPlan, str]:
    """The better plan of these planners, the last of which refines, and why; each has a budget of `budget_s`.

    Where the search is ended by hand, the plan found by then is returned.
    """
    made: dict[str, GearPlan] = {}
    refused: dict[str, Infeasible | InvalidInput] = {}
    for name, find in finds.items():
        began_s = time.monotonic()
        try:
            made[name] = find()
        except KeyboardInterrupt:
            if not made:
                raise
            (first,) = made.values()
            return msgspec.structs.replace(first, unfinished=True), ENDED_BEFORE
        except Infeasible as error:
            refused[name] = error
        except InvalidInput as error:
            if not made:
                raise
            refused[name] = error
        else:
            if len(finds) > len(made) + len(refused) and _ended_by_hand(made[name], budget_s, began_s):
                return made[name], ENDED_BEFORE
    if not made:
        raise next(iter(refused.values()))
    (_, first), *others = made.items()
    refines = any(pipeline.refines for pipeline in first.pipelines.values())
    if refused:
        (lacking, why), *_ = refused.items()
        if refines:
            return first, f"{REFINES}, as planner {lacking!r} has no plan: {_reason_of(why)}"
        return first, f"{ALONE}, as none that refines was found: {_reason_of(why)}"
    if not others:
        return first, f"{REFINES if refines else ALONE}, as was asked for"
    ((_, refining),) = others
    refining_is_better, told = better(refining, first)
    return (refining, f"{REFINES}: {told}") if refining_is_better else (first, f"{ALONE}: {told}")


def _ended_by_hand(made: GearPlan, budget_s: float | None, began_s: float) -> bool:
    """Whether Ctrl-C, rather than its budget, ended the search that began then (`time.monotonic`)."""
    return made.unfinished and (budget_s is None or time.monotonic() - began_s < SPENT * budget_s)


def _shared(request: PlanRequest, parts: int) -> PlanRequest:
    confidence, budget_s = request.objective.confidence, request.budget_s
    surer = None if confidence is None else 1 - (1 - confidence) / parts
    return dataclasses.replace(
        request,
        objective=msgspec.structs.replace(request.objective, confidence=surer),
        budget_s=None if budget_s is None else budget_s / parts,
    )


def _as_asked(made: GearPlan, request: PlanRequest) -> GearPlan:
    objective = msgspec.structs.replace(made.pipeline.objective, confidence=request.objective.confidence)
    return with_pipeline(made, objective=objective)


def _reason_of(error: Infeasible | InvalidInput) -> str:
    return error.reason if isinstance(error, Infeasible) else str(error)


def _better_at_its_price(refining: GearPlan, gears: GearPlan, request: PlanRequest) -> tuple[bool, str]:
    if request.objective.latency_s is not None and request.objective.accuracy is not None:
        price, other = price_of_used(refining), price_of_used(gears)
        if abs(price - other) > SAME_PRICE:
            return price < other, _cheaper(refining, gears)
    return _better(refining, gears, request)


def _cheaper(refining: GearPlan, gears: GearPlan) -> str:
    """The prices for an hour of the devices that each uses, or how many these are where some has no price."""
    if price_per_hour(refining.hardware) is None or price_per_hour(gears.hardware) is None:
        count, others = len(_used(refining)), len(_used(gears))
        keep = "1 device keeps" if count == 1 else f"{count} devices keep"
        return f"{keep} both objectives with refining, {others} with gears alone"
    price, other_price = price_of_used(refining), price_of_used(gears)
    return (
        f"devices for {plain(price)} an hour keep both objectives with refining, "
        f"for {plain(other_price)} with gears alone"
    )


def _better(refining: GearPlan, gears: GearPlan, request: PlanRequest) -> tuple[bool, str]:
    if request.objective.latency_s is None:
        at_s, other_s = _at_s(refining, request), _at_s(gears, request)
        percentile = f"p{100 * request.objective.percentile:g}"
        return (
            at_s < other_s,
            f"{percentile} is {milliseconds(at_s)} with refining, {milliseconds(other_s)} with gears alone",
        )
    on_a, other_a = accuracy_on_part_a(refining, request), accuracy_on_part_a(gears, request)
    on_b, other_b = (made.predictions[request.profile.operator].accuracy for made in (refining, gears))
    return on_a - other_a >= LEAST_BETTER and on_b >= other_b, (
        f"{100 * on_a:.2f} % are right with refining, {100 * other_a:.2f} with gears alone, replayed with part A; "
        f"{100 * on_b:.2f} and {100 * other_b:.2f} with part B"
    )


def _at_s(made: GearPlan, request: PlanRequest) -> float:
    return made.predictions[request.profile.operator].latency_s.at(request.objective.percentile)
