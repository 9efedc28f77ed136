"""Options that several operators have: `--p95-ms 100`, or `--p95-ms A=100 --p95-ms B=200`."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import click

from gearshift.cli.common.option_table import listed
from gearshift.errors import require

T = TypeVar("T")


class Named(NamedTuple, Generic[T]):
    """The value of an option, and the operator that it is for; empty for any."""

    name: str
    value: T

    def __str__(self) -> str:
        value = f"{self.value:.10g}" if isinstance(self.value, float) else str(self.value)
        return f"{self.name}={value}" if self.name else value


class NamedNumber(click.ParamType[Named[float]]):
    """A number, or NAME=NUMBER."""

    name = "[NAME=]FLOAT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Named[float]:
        if isinstance(value, Named):
            return value
        name, _, number = str(value).rpartition("=")
        return Named(name, float(click.FLOAT(number, param, ctx)))


class NamedList(click.ParamType[Named[list[str]]]):
    """Parts between commas, or NAME=PARTS."""

    name = "[NAME=]NUMBERS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Named[list[str]]:
        if isinstance(value, Named):
            return value
        name, _, parts = str(value).rpartition("=")
        return Named(name, listed(parts))


def numbers_of(flag: str, parts: Sequence[str]) -> list[float]:
    try:
        found = [float(part) for part in parts]
    except ValueError:
        found = []
    require(bool(found), f"{flag} is {','.join(parts)!r}", remedy="give numbers between commas")
    return found


class Repeated(click.Option):
    """An option that can be given several times; its environment variable holds one value."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes | {"multiple": True})

    def value_from_envvar(self, ctx: click.Context) -> Any:
        value = self.resolve_envvar_value(ctx)
        return None if value is None else (value,)


def the_last(given: Sequence[Named[T]]) -> T | None:
    """The value for an only operator: as for any option, the last one that is given."""
    return given[-1].value if given else None


def require_only(flag: str, given: Iterable[Named[T]], operator: str) -> None:
    for each in given:
        require(
            each.name in ("", operator),
            f"{flag} names operator {each.name!r}, and the profile is of {operator!r}",
            remedy=f"leave {each.name}= out, or give the profile of {each.name!r} too",
        )


def by_operator(flag: str, given: Iterable[Named[T]], names: Iterable[str]) -> dict[str, T]:
    """The values by operator; one without a name is for all that have none of their own."""
    known, values = list(names), list(given)
    for each in values:
        require(
            not each.name or each.name in known,
            f"{flag} names operator {each.name!r}, which is not planned",
            remedy=f"name one of {', '.join(known)}",
        )
    for_all = {name: each.value for each in values if not each.name for name in known}
    return for_all | {each.name: each.value for each in values if each.name}


def named_paths(flag: str, given: Iterable[str], names: Iterable[str]) -> dict[str, Path]:
    """NAME=FILE by name."""
    known, paths = list(names), dict[str, Path]()
    for each in given:
        name, _, path = each.partition("=")
        require(
            bool(path) and name in known,
            f"{flag} {each} names none of {', '.join(known)}",
            remedy=f"write {flag} {known[0]}=FILE",
        )
        require(name not in paths, f"{flag} is given twice for {name!r}", remedy="leave one out")
        paths[name] = Path(path)
    return paths
