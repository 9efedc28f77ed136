"""Gears and loads of language models in words."""

from msgspec import UNSET

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, PipelinePlan
from gearshift.objective import Objective
from gearshift.profiles.engines.engine_profile import EngineProfile, Sharing
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.reporting.headline import NAMES
from gearshift.result import TokenFigures
from gearshift.support.numbers import digits

UNITS = {"drain_s": "s", "outstanding_requests": "requests", "queued_tokens": "tokens"}


def limit_of(objective: Objective) -> tuple[str, float | None]:
    """The name of an objective's time for people, and its limit in seconds."""
    metric = objective.metric if objective.metric is not UNSET else "ttft"
    return NAMES[metric], objective.latency_s


def cascade_text(cascade: Cascade) -> str:
    """For example "small <0.5 at token 4 > large", or "30 % small > large" for a split."""
    at = cascade.decide_at_tokens
    parts, passed = [], 1.0
    for i, (model, threshold) in enumerate(zip(cascade.models, cascade.thresholds, strict=False)):
        token = None if at is UNSET else at[i]
        if token == 0:
            parts.append(f"{100 * max(0.0, passed - threshold):.1f} % {model}")
            passed = min(passed, threshold)
        else:
            parts.append(f"{model} <{digits(threshold)} at {'the end' if token is None else f'token {token}'}")
    return " > ".join([*parts, cascade.models[-1]])


def ended_early_text(plan: GearPlan) -> str:
    """Say that a plan's search did not come to its end, and the remedy."""
    asked = plan.pipeline.asked
    remedy = "plan again, and let it end"
    if asked and asked.budget_s is not None:
        remedy = f"its budget was {asked.budget_s:g} s, give a larger --budget-s"
    return f"the search was ended early: this is the best so far, and the quality may be higher; {remedy}"


def load_text(load: float | None, pipeline: PipelinePlan) -> str:
    unit = UNITS.get(pipeline.load_unit, "")
    return "" if load is None else f"{digits(load)} {unit}".rstrip()


def discarded_share(tokens: TokenFigures) -> float:
    """The share of all tokens made that no client saw."""
    lost = sum(tokens.discarded_tokens.values())
    return lost / max(1, lost + tokens.output_tokens)


def most_outstanding(plan: GearPlan, gear: Gear) -> str:
    """By model, where a gear bounds what engines have."""
    model_of = {replica.id: replica.model for replica in plan.placement.replicas}
    bounds = {
        model_of[one.replica]: one.most_outstanding
        for one in gear.replicas
        if one.load_share > 0 and one.most_outstanding is not UNSET
    }
    return ", ".join(f"{model} {bound}" for model, bound in bounds.items())


def sharing_in_words(profile: LanguageProfile) -> list[str]:
    """How engines that were timed beside each other slow each other."""
    return [
        f"a step of {one.model}{_on(one)} beside {one.beside} takes {digits(2 * one.factor)} times as long as alone "
        f"({_interval(one)})"
        for one in profile.sharing
    ]


def placed_sharing_in_words(plan: GearPlan, profile: LanguageProfile) -> list[str]:
    """For each group of devices that several engines share, how their steps are predicted to slow each other."""
    placed: dict[tuple[str, ...], list[EngineProfile]] = {}
    kinds = {device.id: device.kind for device in plan.hardware.devices}
    for one in plan.placement.replicas:
        kind, degree = kinds[one.device_ids[0]], one.tensor_parallel
        engine = profile.engine(one.model, device_kind=kind, tensor_parallel=degree)
        placed.setdefault(tuple(sorted(one.device_ids)), []).append(engine)
    return [_beside_in_words(devices, engines, profile) for devices, engines in placed.items() if len(engines) > 1]


def _beside_in_words(devices: tuple[str, ...], engines: list[EngineProfile], profile: LanguageProfile) -> str:
    named = f"{' and '.join(one.model for one in engines)} share {' and '.join(devices)}"
    parts = []
    for one in engines:
        factors = [profile.factor_of(one, other) for other in engines if other is not one]
        if None in factors:
            return f"{named}, and were not timed beside each other: they are taken to take turns in steps, without loss"
        longest = max(2 * factor for factor in factors if factor is not None)
        parts.append(f"a step of {one.model} takes {digits(max(1.0, longest))}")
    return f"{named}: while two are at work, {' and '.join(parts)} times as long as alone"


def _on(one: Sharing) -> str:
    return f" on {one.tensor_parallel} devices" if one.tensor_parallel > 1 else ""


def _interval(one: Sharing) -> str:
    if one.interval is None:
        return "declared"
    least, greatest = one.interval
    raised = ", and processors allow no less" if one.factor > greatest else ""
    return f"{digits(2 * least)} to {digits(2 * greatest)} in the repeats{raised}"
