"""One language model in place of a plan's cascades: what the same devices would do with it, by simulation."""

import msgspec
from msgspec import UNSET

from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware, is_remote
from gearshift.planner.contract.so_far import Search
from gearshift.planner.language.candidates import Stage, table_of
from gearshift.planner.language.choices import PlanMaker
from gearshift.planner.language.layouts import layouts
from gearshift.planner.language.request import MEMORY_SHARE, LanguageRequest
from gearshift.planner.language.search import LanguageSearch
from gearshift.planner.one_alone import OneAlone
from gearshift.planner.space.request import Progress, silent
from gearshift.profiles.engines.contexts import answerable
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.profile import PART_B
from gearshift.simulator.engines.simulate_language import simulate_language
from gearshift.workload import Trace


def request_as_made(plan: GearPlan, profile: LanguageProfile, trace: Trace) -> LanguageRequest:
    pipeline = plan.pipeline
    assert pipeline.objective.metric is not UNSET
    trace, _ = answerable(trace, engine_tables(plan, profile).engines)
    share = pipeline.asked.memory_share if pipeline.asked else UNSET
    return LanguageRequest(
        profile=profile,
        trace=trace,
        hardware=plan.hardware,
        objective=pipeline.objective,
        prompt_tokens=trace.prompt_tokens,
        output_tokens=trace.output_tokens,
        load_unit=pipeline.load_unit,
        memory_share=MEMORY_SHARE if share is UNSET else share,
        most_gears=100,
        seed=plan.seed,
    )


def each_language_alone(
    plan: GearPlan, profile: LanguageProfile, trace: Trace, *, progress: Progress = silent
) -> tuple[OneAlone, ...]:
    """Each model of the profile, alone on the devices that it fits, simulated on the trace with prompts of part B.

    Of several layouts it has that with the least work on the busiest device. Devices that are endpoints serve
    the models that they are named after, and rest where that is another.
    """
    request = request_as_made(plan, profile, trace)
    answers, workload = LanguageSearch(request, Search(request)).answers, request.workload(PART_B)
    found = []
    for number, model in enumerate(profile.models):
        progress(f"{model} alone", number / len(profile.models))
        models, table = {plan.name: model}, table_of([(Stage(number),)], answers)
        try:
            placements = layouts(profile, _for(model, plan), memory_share=request.memory_share, models=(model,))
        except InvalidInput as error:
            found.append(OneAlone(models=models, reason=str(error)))
            continue
        makers = [PlanMaker(request, placement, table) for placement in placements]
        maker = min(makers, key=lambda maker: float(maker.bottleneck_s[0]))
        run = simulate_language(maker.tables(maker.constant(0)), profile, workload)
        found.append(OneAlone(models=models, predicted=run.result(profile, plan.pipeline.objective)))
    return tuple(found)


def _for(model: str, plan: GearPlan) -> Hardware:
    """The devices that may serve a model: all, but of endpoints those that are named after it."""
    devices = plan.hardware.devices
    if not all(is_remote(device.kind) for device in devices):
        return plan.hardware
    own = tuple(device for device in devices if model in (device.id, device.id.rpartition("-")[0]))
    require(bool(own), f"no endpoint of the plan serves model {model!r}")
    return msgspec.structs.replace(plan.hardware, devices=own)
