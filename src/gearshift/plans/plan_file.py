"""The files of plans: versioned, readable JSON, alone or as a frontier in a folder; and of hardware."""

import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gearshift.errors import InvalidInput, require
from gearshift.gear import SCHEMA_VERSION, GearPlan
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.plans.plan_tables import only_pipeline
from gearshift.result import ServingResult
from gearshift.support.files import PathLike, read_bytes, read_text, replace_folder, write_atomically

T = TypeVar("T")


def decode_json(data: bytes, type_: type[T], *, where: str, remedy: str) -> T:
    """Decode `data`; raises `InvalidInput` that names `where` and the field's path."""
    try:
        return msgspec.json.decode(data.removeprefix(codecs.BOM_UTF8), type=type_)
    except msgspec.MsgspecError as error:  # malformed JSON and wrong fields alike
        raise InvalidInput(str(error), where=where, remedy=remedy) from error
    except UnicodeDecodeError as error:
        raise InvalidInput("not UTF-8 text", where=where, remedy=remedy) from error


def read_plan(path: PathLike) -> GearPlan:
    """Read a plan of any schema so far; raises `InvalidInput` for a missing, damaged or inconsistent file."""
    data = read_bytes(path, remedy="make a plan with `gearshift plan`")
    remedy = "mend the file, or make the plan anew with `gearshift plan`"
    version = decode_json(data, _Versioned, where=str(path), remedy=remedy).schema_version
    if version == 1:
        old = decode_json(data, _Schema1, where=str(path), remedy=remedy)
        try:
            return _from_schema_1(old)
        except msgspec.ValidationError as error:
            said = str(error).replace("$.pipelines", "$.operators")
            raise InvalidInput(said, where=str(path), remedy=remedy) from error
    if version != SCHEMA_VERSION:
        raise InvalidInput(
            f"schema_version is {version}, this version of gearshift reads 1 to {SCHEMA_VERSION}",
            where=str(path),
            remedy="make the plan anew with `gearshift plan`",
        )
    return decode_json(data, GearPlan, where=str(path), remedy=remedy)


def encode_plan(plan: GearPlan) -> bytes:
    """The plan as indented JSON; the same plan gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


def write_plan(plan: GearPlan, path: PathLike) -> None:
    """Write `plan` to `path`, whole or not at all."""
    write_atomically(path, encode_plan(plan))


class _Versioned(msgspec.Struct):
    schema_version: int = 0


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


def _from_schema_1(old: _Schema1) -> GearPlan:
    """Each operator as a pipeline of one node, both of its name."""
    return msgspec.convert(
        {
            "planner": old.planner,
            "seed": old.seed,
            "hardware": old.hardware,
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
    return {**operator, "nodes": {name: {"operator": name}}, "output": name, "gears": gears}


def _gear(name: str, gear: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in gear.items() if key != "cascade"}
    return kept | {"cascades": {name: [gear.get("cascade")]}}


REMEDY = "list devices with id, kind, memory_bytes, price_per_hour, node and cores"


def read_hardware(path: PathLike) -> Hardware:
    """Read the devices in `path`, as TOML if its name ends so, else as JSON.

    Raises `InvalidInput` that names the field.
    """
    text = read_text(path)
    try:
        decode = msgspec.toml.decode if Path(path).suffix == ".toml" else msgspec.json.decode
        return decode(text, type=Hardware)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidInput(str(error), where=str(path), remedy=REMEDY) from error


PATTERN = "plan-*.json"


def plan_name(number: int) -> str:
    return f"plan-{number:03d}.json"


def require_plans_replaceable(folder: Path) -> None:
    if not folder.exists():
        return
    require(folder.is_dir(), "is a file, needs a folder", where=str(folder), remedy="choose another place")
    others = sorted({entry.name for entry in folder.iterdir()} - {path.name for path in folder.glob(PATTERN)})
    require(
        not others,
        f"the folder holds {others[0]!r}, which is no plan of a frontier, and would be replaced" if others else "",
        where=str(folder),
        remedy="choose a new or empty folder, or move its files away",
    )


def write_plans(plans: Sequence[GearPlan], folder: Path) -> list[Path]:
    """Write the plans into `folder`, replacing its content whole or not at all."""
    require_plans_replaceable(folder)
    replace_folder(folder, {plan_name(i): encode_plan(plan) for i, plan in enumerate(plans)})
    return [folder / plan_name(i) for i in range(len(plans))]


def read_plans(folder: Path) -> dict[Path, GearPlan]:
    """Read the plans in `folder` by path; raises `InvalidInput` where there are none."""
    plans = {path: read_plan(path) for path in sorted(folder.glob(PATTERN))}
    require(
        bool(plans),
        f"no plans ({PATTERN}) in it",
        where=str(folder),
        remedy="make some with `gearshift plan --frontier`",
    )
    return plans


def choose_plan(folder: Path, *, latency_s: float | None = None, accuracy: float | None = None) -> Path:
    """Choose the most accurate plan within `latency_s`, or else the fastest with `accuracy`.

    Latency is the upper end of the predicted p95's interval; if both objectives are given, both
    must be met. Raises `InvalidInput` where the folder has no plans, neither is given, or no plan
    meets them.
    """
    Objective(latency_s=latency_s, accuracy=accuracy)  # refuses bad ones
    plans = read_plans(folder)
    require(
        latency_s is not None or accuracy is not None,
        "is a folder of plans",
        where=str(folder),
        remedy="choose one of them with --p95-ms or --accuracy",
    )
    predicted = {path: plan.predictions.get(only_pipeline(plan)) for path, plan in plans.items()}
    known = {path: result for path, result in predicted.items() if result is not None}
    require(bool(known), "the plans predict nothing", where=str(folder), remedy="name one of them")
    meets = [
        path
        for path, result in known.items()
        if (latency_s is None or latency_bound_s(result) <= latency_s)
        and (accuracy is None or result.accuracy >= accuracy)
    ]
    if not meets:
        fastest = min(latency_bound_s(result) for result in known.values())
        best = max(result.accuracy for result in known.values())
        raise InvalidInput(
            f"none of its plans meets the objective: their lowest p95 is {fastest * 1e3:.4g} ms and their highest "
            f"accuracy {best:.4g}",
            where=str(folder),
            remedy="ask for less, or plan for more devices",
        )
    if latency_s is not None:
        return max(meets, key=lambda path: (known[path].accuracy, -latency_bound_s(known[path])))
    return min(meets, key=lambda path: (latency_bound_s(known[path]), -known[path].accuracy))


def latency_bound_s(result: ServingResult) -> float:
    """The p95 in seconds: the upper end of its interval where there is one."""
    interval = result.latency_p95_interval_s
    return result.latency_s.p95 if interval is None else interval[1]
