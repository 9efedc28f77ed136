"""The promises of a plan, for a page that shows them beside what is measured."""

import msgspec

from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.result import ServingResult

PROMISE_PATH = "/v2/gearshift/promise"
EVENTS_PATH = "/v2/gearshift/events"


class PromisedGear(msgspec.Struct, frozen=True, kw_only=True):
    """A gear: the load it is for, the cascades of its nodes, and what the plan predicts of it."""

    load_from: float
    load_to: float | None
    cascades: dict[str, list[str]]
    accuracy: float | None
    latency_p95_s: float | None


class PromisedPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """The objective of a pipeline, what the plan predicts of its trace, and its gears."""

    name: str
    objective: Objective
    predicted: ServingResult | None
    gears: list[PromisedGear]


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """The promises of the plan in force, by pipeline."""

    pipelines: list[PromisedPipeline]


def promise_of(plan: GearPlan) -> Promise:
    pipelines = []
    for name, pipeline in plan.pipelines.items():
        gears = [
            PromisedGear(
                load_from=gear.load_range.from_,
                load_to=gear.load_range.to,
                cascades={node: list(map(str, cascades)) for node, cascades in gear.cascades.items()},
                accuracy=None if gear.predicted is None else gear.predicted.accuracy,
                latency_p95_s=None if gear.predicted is None else gear.predicted.latency_p95_s,
            )
            for gear in pipeline.gears
        ]
        predicted = plan.predictions.get(name)
        pipelines.append(PromisedPipeline(name=name, objective=pipeline.objective, predicted=predicted, gears=gears))
    return Promise(pipelines=pipelines)
