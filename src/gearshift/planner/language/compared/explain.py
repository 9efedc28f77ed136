"""Explain a plan of language models: what its gears cost, what more quality would break, what certainty is worth."""

from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np
from msgspec import UNSET

from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan, LoadRange
from gearshift.hardware import Hardware, is_remote
from gearshift.objective import Objective
from gearshift.planner.contract.planner import Search
from gearshift.planner.language.candidates import BY_ID, Stage, Stages, fronts, table_of
from gearshift.planner.language.choices import Choice, GearChoice, PlanMaker
from gearshift.planner.language.compared.compare import permuted
from gearshift.planner.language.layouts import device_s, layouts
from gearshift.planner.language.replays import Replays, replayed, workloads_of
from gearshift.planner.language.request import MEMORY_SHARE, LanguageRequest
from gearshift.planner.language.search import LanguageSearch
from gearshift.planner.one_alone import OneAlone
from gearshift.planner.space.request import Progress, silent
from gearshift.profiles.engines.contexts import answerable
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, LanguageProfile
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.result import ServingResult
from gearshift.simulator.engines.simulate_language import simulate_language
from gearshift.workload import Trace

# One language model in place of a plan's cascades: what the same devices would do with it, by simulation.


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


CANDIDATES = 24


class BetterCascade(msgspec.Struct, frozen=True, kw_only=True):
    """The next more accurate cascade in a gear's place, replayed on the trace: what it would bring and break."""

    cascade: Cascade
    quality: float
    latency_s: float
    share_late: float
    breaks: Literal["latency", "nothing"]


class GearExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A gear: mean quality on part A, device-seconds and tokens of a request, and how much of the trace it answers.

    `discarded` is the share of generated tokens that no client sees.
    """

    gear: int
    load_range: LoadRange
    cascade: Cascade
    quality: float
    device_s: float
    prompt_tokens: dict[str, float]
    output_tokens: dict[str, float]
    discarded: float
    share_of_requests: float
    next: BetterCascade | None = None


class LanguageExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """`certainty_worth` is the quality that is lost on the trace where certainties are permuted.

    `alone` has each model alone on the same devices.
    """

    objective: Objective
    load_unit: str
    gears: tuple[GearExplanation, ...]
    replayed: ServingResult
    certainty_worth: float
    alone: tuple[OneAlone, ...] = ()


def explain_language(
    plan: GearPlan, profile: LanguageProfile, trace: Trace, *, progress: Progress = silent
) -> LanguageExplanation:
    """Explain the plan on the trace. Gears are judged on part A, as when they were planned, the trace on part B."""
    pipeline, request = plan.pipeline, request_as_made(plan, profile, trace)
    maker, choice = _as_choice(plan, request)
    replays = Replays(maker, workloads_of(request, PART_A))
    on_a = replays.of(choice)
    works = device_s(maker.rates, maker.candidates)
    gears = []
    for i, gear in enumerate(choice):
        progress(f"gear {i}", i / len(choice))
        c, table = gear.candidate, maker.candidates
        shown = _shown_tokens(table.stages[c], maker, c)
        made = float(table.output_tokens[c].sum())
        gears.append(
            GearExplanation(
                gear=i,
                load_range=pipeline.gears[i].load_range,
                cascade=pipeline.gears[i].cascade,
                quality=float(table.quality[c]),
                device_s=float(works[c]),
                prompt_tokens=_by_model(profile, table.prompt_tokens[c]),
                output_tokens=_by_model(profile, table.output_tokens[c]),
                discarded=max(0.0, 1 - shown / made),
                share_of_requests=on_a.used[i],
                next=_better(replays, choice, i),
            )
        )
    progress("replaying the trace", 0.95)
    tables, on_b = engine_tables(plan, profile), workloads_of(request, PART_B)
    result = simulate_language(tables, profile, on_b[0]).result(profile, pipeline.objective)
    other = replace(request, profile=permuted(profile))
    worth = replayed(request, tables, on_b).quality - replayed(other, tables, on_b).quality
    return LanguageExplanation(
        objective=pipeline.objective,
        load_unit=pipeline.load_unit,
        gears=tuple(gears),
        replayed=result,
        certainty_worth=worth,
        alone=each_language_alone(plan, profile, trace),
    )


def stages_of(cascade: Cascade, models: tuple[str, ...]) -> Stages:
    """The stages of a plan's cascade, as candidates have them."""
    ends = len(cascade.models) - 1
    at = (None,) * ends if cascade.decide_at_tokens is UNSET else cascade.decide_at_tokens
    deciding = [
        Stage(models.index(model), BY_ID if token == 0 else DECIDE_AT_TOKENS.index(token), threshold)
        for model, token, threshold in zip(cascade.models, at, cascade.thresholds, strict=False)
    ]
    return (*deciding, Stage(models.index(cascade.models[-1])))


def _as_choice(plan: GearPlan, request: LanguageRequest) -> tuple[PlanMaker, Choice]:
    """The plan's gears among the candidates of its placement; shares of load are as the planner balances them."""
    search = LanguageSearch(request, Search(request))
    models = request.profile.models
    everything = PlanMaker(request, plan.placement, search.table)
    usable = np.flatnonzero(np.isfinite(everything.bottleneck_s))
    front = fronts(search.table.chosen(usable.tolist()), everything.bottleneck_s[usable], most=CANDIDATES)
    offered = [search.table.stages[int(usable[i])] for i in front]
    mine = [stages_of(gear.cascade, models) for gear in plan.pipeline.gears]
    table = table_of([*mine, *offered], search.answers)
    model_of = {replica.id: models.index(replica.model) for replica in plan.placement.replicas}
    gears = []
    for i, gear in enumerate(plan.pipeline.gears):
        most = [0] * len(models)
        for one in gear.replicas:
            if one.load_share > 0 and one.most_outstanding is not UNSET:
                most[model_of[one.replica]] = one.most_outstanding
        gears.append(GearChoice(i, gear.load_range.from_, tuple(most)))
    return PlanMaker(request, plan.placement, table), tuple(gears)


def _better(replays: Replays, choice: Choice, i: int) -> BetterCascade | None:
    table, objective = replays.maker.candidates, replays.request.objective
    mine = table.quality[choice[i].candidate]
    better = [c for c in range(len(choice), len(table.stages)) if table.quality[c] > mine + 1e-9]
    if not better:
        return None
    other = min(better, key=lambda c: (table.quality[c], replays.maker.bottleneck_s[c]))
    tried = replays.of((*choice[:i], choice[i]._replace(candidate=other), *choice[i + 1 :]))
    return BetterCascade(
        cascade=table.cascade(other),
        quality=float(table.quality[other]),
        latency_s=tried.worst_s(objective.percentile),
        share_late=float(tried.share_late(replays.request.latency_s).mean()),
        breaks="nothing" if tried.holds(objective) else "latency",
    )


def _shown_tokens(stages: Stages, maker: PlanMaker, candidate: int) -> float:
    """Mean tokens that a client of a request sees."""
    table = maker.candidates
    answers = maker.request.profile.answers
    records = maker.request.planned_on
    reach = np.ones(len(records))
    shown = np.zeros(len(records))
    for stage in stages[:-1]:
        if stage.at == BY_ID:
            onward = np.minimum(reach, stage.threshold)
        else:
            onward = reach * (answers.certainty[stage.model, records, stage.at] < stage.threshold)
        shown += (reach - onward) * answers.output_tokens[stage.model, records]
        reach = onward
    shown += reach * answers.output_tokens[stages[-1].model, records]
    given = maker.request.output_tokens
    return (
        float(shown.mean()) if given is None else min(float(given.mean()), float(table.output_tokens[candidate].sum()))
    )


def _by_model(profile: LanguageProfile, tokens: np.ndarray) -> dict[str, float]:
    return {model: float(each) for model, each in zip(profile.models, tokens, strict=True) if each > 0}
