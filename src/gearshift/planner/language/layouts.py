"""Where engines may stand: groups of devices, the models on each, the memory for their contexts, and their load.

The more models share devices, the fewer contexts each of them holds (Ken, figure 4), so what stands
beside what is part of the search. Load is taken as a fluid: shares of replicas, and seconds of a
request at the bottleneck.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.errors import InvalidInput
from gearshift.gear import SHARE_UNIT
from gearshift.hardware import Device, Hardware, is_remote
from gearshift.placement import Placement, Replica
from gearshift.planner.language.candidates import CandidateTable
from gearshift.profiles.engines.engine_profile import EngineProfile
from gearshift.profiles.engines.engine_tables import work_rates
from gearshift.profiles.engines.language_profile import LanguageProfile

MOST_LAYOUTS = 5000
MOST_BESIDE = 4
LEAST_CONTEXTS = 1
"""A replica must hold at least this many of the longest recorded requests."""


@dataclass(frozen=True, slots=True)
class Group:
    """Models that are split alike over the same number of devices of a kind."""

    kind: str
    tensor_parallel: int
    models: tuple[str, ...]
    kv_blocks: tuple[int, ...]


def layouts(
    profile: LanguageProfile, hardware: Hardware, *, memory_share: float, models: Sequence[str] = ()
) -> list[Placement]:
    """All placements that differ, of `models` (by default all); at most `MOST_LAYOUTS`.

    Devices of one kind on one node are alike. Each device is used where any model fits it. Raises
    `InvalidInput` where nothing fits.
    """
    wanted = tuple(models) or profile.models
    if all(is_remote(device.kind) for device in hardware.devices):
        return [_endpoints(profile, hardware, wanted)]
    found: dict[tuple[tuple[Group, int], ...], Placement] = {}
    for groups in _divided(list(hardware.devices), profile, wanted, memory_share):
        if not groups:
            continue
        kinds: dict[Group, int] = {}
        for group, _ in groups:
            kinds[group] = kinds.get(group, 0) + 1
        found.setdefault(tuple(sorted(kinds.items(), key=repr)), _placed(groups, profile))
        if len(found) >= MOST_LAYOUTS:
            break
    placements = list(found.values())
    if not placements:
        raise InvalidInput(
            f"no model of the profile fits the devices: {', '.join(sorted({d.kind for d in hardware.devices}))}",
            remedy="give devices of a kind that was profiled, with memory for weights and one context",
        )
    return placements


def _divided(
    free: list[Device], profile: LanguageProfile, models: Sequence[str], memory_share: float, least: int = 0
) -> Iterator[list[tuple[Group, tuple[Device, ...]]]]:
    """Divisions of the devices into groups, by rising numbers of groups among like devices.

    Devices that no model fits any more stay idle.
    """
    if not free:
        yield []
        return
    alike = [one for one in free if _like(one) == _like(free[0])]
    groups = list(_groups(profile, models, free[0], len(alike), memory_share))
    if not groups:
        yield from _divided([one for one in free if one not in alike], profile, models, memory_share)
    for place, group in enumerate(groups[least:], start=least):
        taken = tuple(alike[: group.tensor_parallel])
        left = [one for one in free if one not in taken]
        more = len(alike) > len(taken)
        for rest in _divided(left, profile, models, memory_share, place if more else 0):
            yield [(group, taken), *rest]


def _groups(
    profile: LanguageProfile, models: Sequence[str], device: Device, free: int, memory_share: float
) -> Iterator[Group]:
    known = {(one.model, one.tensor_parallel): one for one in profile.engines if one.device_kind == device.kind}
    for parallel in sorted({parallel for _, parallel in known if parallel <= free}):
        may = [model for model in models if (model, parallel) in known]
        for count in range(1, min(len(may), MOST_BESIDE) + 1):
            for beside in combinations(may, count):
                engines = [known[model, parallel] for model in beside]
                for blocks in _memory(profile, engines, device.memory_bytes, memory_share):
                    yield Group(device.kind, parallel, beside, blocks)


def _memory(
    profile: LanguageProfile, engines: Sequence[EngineProfile], memory_bytes: int, memory_share: float
) -> Iterator[tuple[int, ...]]:
    """Blocks of contexts of each engine beside the others: as many tokens each, or as many bytes.

    A lone engine whose memory is not known has the blocks that it was measured with; with others
    beside it nobody knows.
    """
    if any(one.weights_bytes == 0 or one.kv_bytes_per_token == 0 for one in engines):
        if len(engines) == 1:
            yield (engines[0].kv_blocks,)
        return
    left = memory_bytes * memory_share * engines[0].tensor_parallel - sum(one.weights_bytes for one in engines)
    if left <= 0:
        return
    by_tokens = [left / sum(one.kv_bytes_per_token for one in engines)] * len(engines)
    by_bytes = [left / len(engines) / one.kv_bytes_per_token for one in engines]
    for tokens in [by_tokens] if len(engines) == 1 else [by_tokens, by_bytes]:
        blocks = tuple(int(each // one.block_tokens) for each, one in zip(tokens, engines, strict=True))
        if all(_holds(profile, one, count) for one, count in zip(engines, blocks, strict=True)):
            yield blocks


def _holds(profile: LanguageProfile, engine: EngineProfile, blocks: int) -> bool:
    row = profile.models.index(engine.model)
    longest = int((profile.answers.prompt_tokens[row] + profile.answers.output_tokens[row]).max())
    room = (blocks - engine.watermark_blocks) * engine.block_tokens
    return room >= LEAST_CONTEXTS * longest


def _placed(groups: Sequence[tuple[Group, tuple[Device, ...]]], profile: LanguageProfile) -> Placement:
    replicas = []
    number: dict[str, int] = {}
    for group, devices in groups:
        for model, blocks in zip(group.models, group.kv_blocks, strict=True):
            engine = profile.engine(model, device_kind=group.kind, tensor_parallel=group.tensor_parallel)
            replicas.append(
                Replica(
                    id=f"{model}-{number.setdefault(model, 0)}",
                    model=model,
                    device_ids=tuple(device.id for device in devices),
                    cores=sum(device.cores for device in devices),
                    tensor_parallel=group.tensor_parallel,
                    kv_tokens=blocks * engine.block_tokens,
                )
            )
            number[model] += 1
    return _in_order(replicas, profile)


def _endpoints(profile: LanguageProfile, hardware: Hardware, models: Sequence[str]) -> Placement:
    """Endpoints elsewhere: a device of kind remote is named after its model, as in "small" or "small-1"."""
    replicas: list[Replica] = []
    for device in hardware.devices:
        model = next((one for one in models if device.id == one or device.id.rpartition("-")[0] == one), None)
        if model is None:
            raise InvalidInput(
                f"device {device.id!r} is an endpoint, and is named after none of the models {', '.join(models)}",
                remedy="name each device of kind remote after its model, such as small-0",
            )
        engine = profile.engine(model, device_kind=device.kind)
        count = sum(one.model == model for one in replicas)
        replicas.append(
            Replica(
                id=f"{model}-{count}",
                model=model,
                device_ids=(device.id,),
                tensor_parallel=engine.tensor_parallel,
                kv_tokens=engine.kv_blocks * engine.block_tokens,
            )
        )
    return _in_order(replicas, profile)


def _in_order(replicas: list[Replica], profile: LanguageProfile) -> Placement:
    """As `engine_tables` numbers them: by model, in the profile's order."""
    return Placement(replicas=tuple(sorted(replicas, key=lambda one: profile.models.index(one.model))))


def _like(device: Device) -> tuple[str, str, int, int]:
    return device.node, device.kind, device.memory_bytes, device.cores


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
