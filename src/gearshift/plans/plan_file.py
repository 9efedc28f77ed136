"""The plan file: a gear plan as versioned, readable JSON."""

import json
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec

from gearshift.errors import InvalidInput, require
from gearshift.gear import SCHEMA_VERSION, GearPlan
from gearshift.support.decoding import UNREADABLE, decode_json, schema_version
from gearshift.support.files import LARGEST_JSON_BYTES, PathLike, read_bytes, write_atomically

ONCE = "leave one of them out, or give it another name"


def read_plan(path: PathLike) -> GearPlan:
    """Read a plan of any schema so far; raises `InvalidInput` for a missing, damaged or inconsistent file."""
    data = read_bytes(path, remedy="make a plan with `gearshift plan`", most_bytes=LARGEST_JSON_BYTES)
    remedy = "mend the file, or make the plan anew with `gearshift plan`"
    anew = "make the plan anew with `gearshift plan`"
    version = schema_version(data, (1, SCHEMA_VERSION), reads=f"1 to {SCHEMA_VERSION}", where=str(path), remedy=anew)
    _require_names_once(data, str(path))
    if version == 1:
        old = decode_json(data, _Schema1, where=str(path), remedy=remedy)
        try:
            return _from_schema_1(old)
        except msgspec.ValidationError as error:
            said = str(error).replace("$.pipelines", "$.operators")
            raise InvalidInput(said, where=str(path), remedy=remedy) from error
    return decode_json(data, GearPlan, where=str(path), remedy=remedy)


def encode_plan(plan: GearPlan) -> bytes:
    """The plan as indented JSON; the same plan gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


def write_plan(plan: GearPlan, path: PathLike) -> None:
    """Write `plan` to `path`, whole or not at all."""
    write_atomically(path, encode_plan(plan))


def _require_names_once(data: bytes, where: str) -> None:
    """Raise `InvalidInput` where an object has a name twice: of two pipelines, one would be lost."""
    twice: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> None:
        if len({name for name, _ in pairs}) < len(pairs):
            twice.append(next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1))

    with suppress(*UNREADABLE):  # refused where it is read
        json.loads(data, object_pairs_hook=once)
    require(not twice, f"the name {twice[0]!r} stands twice in one object" if twice else "", where=where, remedy=ONCE)


class _Schema1(msgspec.Struct, forbid_unknown_fields=True):
    """A plan before there were pipelines: one profile, one trace, and operators with a cascade in each gear."""

    schema_version: int
    planner: str
    hardware: dict[str, Any]
    placement: dict[str, Any]
    operators: dict[str, dict[str, Any]]
    profile: dict[str, Any]
    trace: dict[str, Any]
    seed: int = 0
    predictions: dict[str, Any] = {}
    unfinished: bool = False


def _hardware(old: dict[str, Any]) -> dict[str, Any]:
    """The devices without the price of 1 that schema 1 wrote where none was given."""
    devices = msgspec.convert(old.get("devices"), list[dict[str, Any]])
    unpriced = [
        {name: value for name, value in device.items() if (name, value) != ("price_per_hour", 1.0)}
        for device in devices
    ]
    return {**old, "devices": unpriced}


def _from_schema_1(old: _Schema1) -> GearPlan:
    """Each operator as a pipeline of one node, both of its name."""
    return msgspec.convert(
        {
            "planner": old.planner,
            "seed": old.seed,
            "hardware": _hardware(old.hardware),
            "placement": old.placement,
            "pipelines": {name: _pipeline(name, operator) for name, operator in old.operators.items()},
            "profiles": dict.fromkeys(old.operators, old.profile),
            "traces": dict.fromkeys(old.operators, old.trace),
            "predictions": old.predictions,
            "unfinished": old.unfinished,
        },
        GearPlan,
    )


def _pipeline(name: str, operator: dict[str, Any]) -> dict[str, Any]:
    old = msgspec.convert(operator.get("gears"), list[dict[str, Any]])
    gears = [_gear(name, gear) for gear in old]
    return _added(operator, {"nodes": {name: {"operator": name}}, "output": name}) | {"gears": gears}


def _gear(name: str, gear: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in gear.items() if key != "cascade"}
    return _added(kept, {"cascades": {name: [gear.get("cascade")]}})


def _added(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Both; raises `ValidationError` for a field of the present schema in an old file."""
    if unknown := sorted(old.keys() & new.keys()):
        raise msgspec.ValidationError(f"Object contains unknown field `{unknown[0]}`")
    return old | new
