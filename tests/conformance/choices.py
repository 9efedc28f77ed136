"""Random cases whose gears allow some nodes several cascades, with random tables of quality by time left."""

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from gearshift.cascade import Cascade, TimedQuality
from gearshift.gear import Gear, GearPlan
from tests.conformance.plans import Case


@st.composite
def with_choices(draw: st.DrawFn, case: Case) -> Case:
    pipelines = {
        name: msgspec.structs.replace(pipeline, gears=tuple(draw(_with_choices(gear)) for gear in pipeline.gears))
        for name, pipeline in case.plan.pipelines.items()
    }
    plan: GearPlan = msgspec.structs.replace(case.plan, pipelines=pipelines)
    return replace(case, plan=plan)


@st.composite
def _with_choices(draw: st.DrawFn, gear: Gear) -> Gear:
    """The gear's cascades, and others of the same models, which keep its load shares right."""
    cascades = {}
    for node, (first,) in gear.cascades.items():
        others = [draw(_another(first)) for _ in range(draw(st.integers(0, 3)))]
        cascades[node] = (first, *others)
    timed = {node: tuple(draw(_table()) for _ in allowed) for node, allowed in cascades.items()}
    margin_s = draw(st.sampled_from([0.0, 0.008, 0.0321]))
    return msgspec.structs.replace(gear, cascades=cascades, timed=timed, margin_s=margin_s)


@st.composite
def _another(draw: st.DrawFn, cascade: Cascade) -> Cascade:
    first = [cascade.models[0]] if draw(st.booleans()) else []
    others = draw(st.permutations([model for model in cascade.models if model not in first]))
    models = (*first, *others[: draw(st.integers(0 if first else 1, len(others)))])
    return Cascade(models=models, thresholds=tuple(draw(st.sampled_from([0.25, 0.5, 0.75])) for _ in models[1:]))


@st.composite
def _table(draw: st.DrawFn) -> TimedQuality:
    times = sorted(draw(st.sets(st.integers(0, 110), min_size=1, max_size=4)))
    quality = sorted(draw(st.sampled_from([0.0, 0.3, 0.5, 0.8, 0.9, 1.0])) for _ in times)
    return TimedQuality(remaining_ms=tuple(times), quality=tuple(quality))
