"""Gears and loads of language models in words."""

from msgspec import UNSET

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, PipelinePlan
from gearshift.objective import Objective
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
