"""The load of engines under a cascade, as a fluid: shares of replicas, and seconds of a request at the bottleneck."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.gear import SHARE_UNIT
from gearshift.placement import Placement, Replica
from gearshift.planner.language.candidates import CandidateTable
from gearshift.profiles.engines.engine_profile import EngineProfile
from gearshift.profiles.engines.engine_tables import work_rates
from gearshift.profiles.engines.language_profile import LanguageProfile

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class EngineRates:
    """The replicas (replicas,) at work: the model of each, its group of devices, and its seconds for one token.

    Reading a prompt is spread over its tokens, as many as recorded ones have in the mean.

    `beside` is the least factor of each beside another of its group, where it is below 1: together
    they then do more than one after another. It is at least the part of the time that each has, as
    no step takes less than alone.
    """

    replicas: tuple[str, ...]
    model: NDArray[np.int64]
    group: NDArray[np.int64]
    devices: NDArray[np.int64]
    prompt_token_s: Floats
    output_token_s: Floats
    beside: Floats

    @property
    def models(self) -> set[int]:
        return set(self.model.tolist())


def placed_engine(profile: LanguageProfile, replica: Replica, kinds: Mapping[str, str]) -> EngineProfile:
    """The engine of a replica, with the memory that its placement leaves for contexts."""
    engine = profile.engine(
        replica.model, device_kind=kinds[replica.device_ids[0]], tensor_parallel=replica.tensor_parallel
    )
    if replica.kv_tokens is UNSET:
        return engine
    return msgspec.structs.replace(engine, kv_blocks=max(1, replica.kv_tokens // engine.block_tokens))


def engine_rates(profile: LanguageProfile, placement: Placement, kinds: Mapping[str, str]) -> EngineRates:
    groups: dict[tuple[str, ...], int] = {}
    places = [groups.setdefault(tuple(sorted(one.device_ids)), len(groups)) for one in placement.replicas]
    engines = [placed_engine(profile, one, kinds) for one in placement.replicas]
    rates = [work_rates(engine, profile) for engine in engines]
    prompts = [profile.answers.prompt_tokens[profile.models.index(engine.model)].mean() for engine in engines]
    read_s = np.array([engine.reading_s for engine in engines]) / prompts
    return EngineRates(
        tuple(one.id for one in placement.replicas),
        np.array([profile.models.index(one.model) for one in placement.replicas]),
        np.array(places),
        np.array([len(one.device_ids) for one in placement.replicas]),
        np.array([prompt_s for prompt_s, _ in rates]) + read_s,
        np.array([output_s for _, output_s in rates]),
        np.array([_least_factor(profile, one, placement, kinds) for one in placement.replicas]),
    )


def _least_factor(profile: LanguageProfile, one: Replica, placement: Placement, kinds: Mapping[str, str]) -> float:
    mine = placed_engine(profile, one, kinds)
    beside = [
        other for other in placement.replicas if other is not one and set(other.device_ids) == set(one.device_ids)
    ]
    found = [profile.factor_of(mine, placed_engine(profile, other, kinds)) for other in beside]
    least = min([1.0, *(factor for factor in found if factor is not None)])
    return max(1 / (1 + len(beside)), least)


def request_s(rates: EngineRates, prompts: Floats, outputs: Floats) -> Floats:
    """Seconds (..., replicas) that a request keeps each replica busy if it has all of its model's work.

    `prompts` and `outputs` (..., models) are mean tokens for each model.
    """
    return prompts[..., rates.model] * rates.prompt_token_s + outputs[..., rates.model] * rates.output_token_s


def bottleneck_s(rates: EngineRates, table: CandidateTable) -> Floats:
    """Seconds (c,) of the busiest group of devices for a request; infinite where a model has no replica.

    Replicas share a model's work by their speed alone, which `balanced` improves on. What engines
    of a group lose beside each other is left to simulation, as it depends on when both are at work.
    """
    whole = request_s(rates, table.prompt_tokens, table.output_tokens)
    busy = np.zeros((len(whole), int(rates.group.max()) + 1))
    for model in rates.models:
        mine = np.flatnonzero(rates.model == model)
        speed = 1 / (rates.prompt_token_s[mine] + rates.output_token_s[mine])
        for replica, share in zip(mine, speed / speed.sum(), strict=True):
            busy[:, rates.group[replica]] += share * whole[:, replica] * rates.beside[replica]
    worst = np.asarray(busy.max(axis=1))
    used = (table.prompt_tokens + table.output_tokens) > 0
    missing = [model for model in range(len(table.models)) if model not in rates.models]
    lacking = used[:, missing].any(axis=1)
    return np.where(lacking, np.inf, worst)


def device_s(rates: EngineRates, table: CandidateTable) -> Floats:
    """Device-seconds (c,) of a request, discarded tokens included, with replicas that share by speed."""
    whole = request_s(rates, table.prompt_tokens, table.output_tokens) * rates.devices
    total = np.zeros(len(whole))
    for model in rates.models:
        mine = np.flatnonzero(rates.model == model)
        speed = 1 / (rates.prompt_token_s[mine] + rates.output_token_s[mine])
        total += whole[:, mine] @ (speed / speed.sum())
    return total


NEARLY = 1.02
"""Shares by speed stay where the best would make the busiest devices hardly less busy."""


def balanced(rates: EngineRates, prompts: Floats, outputs: Floats) -> NDArray[np.int64]:
    """Shares (replicas,) of each model's requests, in `SHARE_UNIT`, that keep the busiest devices least busy.

    `prompts` and `outputs` (models,) are mean tokens of a request. Models without work have no share.
    """
    whole = request_s(rates, prompts, outputs)
    used = [model for model in sorted(rates.models) if prompts[model] + outputs[model] > 0]
    shares = np.zeros(len(rates.model))
    for model in used:
        mine = np.flatnonzero(rates.model == model)
        shares[mine] = (1 / whole[mine]) / (1 / whole[mine]).sum()
    best = _least_busy(rates, whole, used)
    if _busiest_s(rates, whole, shares) > NEARLY * _busiest_s(rates, whole, best):
        shares = best
    units = np.rint(shares * SHARE_UNIT).astype(np.int64)
    for model in used:
        mine = np.flatnonzero(rates.model == model)
        units[mine[np.argmax(units[mine])]] += SHARE_UNIT - int(units[mine].sum())
    return units


def _busiest_s(rates: EngineRates, whole: Floats, shares: Floats) -> float:
    return float(np.bincount(rates.group, weights=whole * shares).max())


def _least_busy(rates: EngineRates, whole: Floats, used: list[int]) -> Floats:
    """The shares (replicas,) of a linear program, as Ken's equation 1, with the maximum in place of deviations."""
    from scipy.optimize import linprog

    count, groups = len(rates.model), int(rates.group.max()) + 1
    above = np.zeros((groups, count + 1))
    above[rates.group, np.arange(count)] = whole
    above[:, count] = -1
    equal = np.zeros((len(used), count + 1))
    for row, model in enumerate(used):
        equal[row, :count] = rates.model == model
    bounds = [(0.0, 1.0 if int(model) in used else 0.0) for model in rates.model] + [(0.0, None)]
    found = linprog(
        np.append(1e-6 * whole, 1.0),
        A_ub=above,
        b_ub=np.zeros(groups),
        A_eq=equal,
        b_eq=np.ones(len(used)),
        bounds=bounds,
    )
    assert found.x is not None
    return np.asarray(np.clip(found.x[:count], 0, 1))
