"""Where engines may stand: groups of devices, the models on each, and the memory for their contexts.

The more models share devices, the fewer contexts each of them holds (Ken, figure 4), so what stands
beside what is part of the search.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from gearshift.errors import InvalidInput
from gearshift.hardware import Device, Hardware, is_remote
from gearshift.placement import Placement, Replica
from gearshift.profiles.engines.engine_profile import EngineProfile
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
