"""The differences of two plans but for their gears, in sentences."""

from collections.abc import Iterator
from typing import Any

from gearshift.cli.common.output import Output
from gearshift.plans.plan_diff import Change, PlanDiff


def tell_what_differs(output: Output, found: PlanDiff) -> None:
    if found.same:
        output.say("both plans serve in the same way")
    for line in sentences(found):
        output.say(line)
    if any(change.what == "load_unit" for change in found.objective):
        output.say("gears are not compared, as their loads are in different units")


def sentences(found: PlanDiff) -> Iterator[str]:
    for change in (*found.origin, *found.objective):
        yield f"{change.what}: {_word(change.a)} in a, {_word(change.b)} in b"
    for change in found.hardware:
        yield f"device {change.what}: {_lacking(change) or _fields(change)}"
    for change in found.placement:
        yield f"{change.what}: {_lacking(change) or f'{change.a} in a, {change.b} in b'}"


def _lacking(change: Change) -> str:
    return "only in b" if change.a is None else "only in a" if change.b is None else ""


def _fields(change: Change) -> str:
    names = [name for name in {**change.a, **change.b} if change.a.get(name) != change.b.get(name)]
    return ", ".join(f"{name} {_word(change.a.get(name))} in a, {_word(change.b.get(name))} in b" for name in names)


def _word(value: Any) -> str:
    return "none" if value is None or value == "" else str(value)[:12] if _is_hash(value) else str(value)


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64
