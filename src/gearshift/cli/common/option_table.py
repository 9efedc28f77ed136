"""Options of a command, made from the option table of its verb (`gearshift.verbs.common.options`)."""

import inspect
import math
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, Unpack, get_args, get_origin, get_type_hints

import click
import msgspec

from gearshift.errors import require
from gearshift.verbs.common.options import Option, Unit

PATH = click.Path(path_type=Path)

Command = Callable[..., None]
Table = Callable[..., Any] | type
"""A verb's function, a `TypedDict`, or a settings struct."""


class Keyword(NamedTuple):
    name: str
    kind: Any
    option: Option
    default: object


class TableOption(click.Option):
    """An option that sets a keyword of a verb."""

    def __init__(self, flags: Sequence[str], *, keyword: str, unit: Unit | None, **attributes: Any) -> None:
        super().__init__(flags, **attributes)
        self.keyword, self.unit = keyword, unit

    def in_unit(self, value: Any) -> Any:
        if self.unit is None or value is None:
            return value
        require_positive(self.opts[0], value, self.unit.name)
        return self.unit.convert(value)


def options_of(table: Table, *, without: Container[str] = ()) -> Callable[[Command], Command]:
    """Add an option per keyword of the table that has one, in its order."""
    return in_order(*(_click_option(keyword) for keyword in keywords_of(table) if keyword.name not in without))


def in_order(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """One decorator for several options, which `--help` shows in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def as_keywords(arguments: dict[str, Any]) -> dict[str, Any]:
    """Replace options from tables by the keywords that they set, in the keywords' units."""
    options = {o.name: o for o in click.get_current_context().command.params if isinstance(o, TableOption)}
    return {
        options[name].keyword if name in options else name: options[name].in_unit(value) if name in options else value
        for name, value in arguments.items()
    }


def keywords_of(table: Table) -> Iterator[Keyword]:
    """The keywords with options; a struct's own fields come before those that it inherits."""
    if not isinstance(table, type):
        for parameter in inspect.signature(table).parameters.values():
            if get_origin(parameter.annotation) is Unpack:
                yield from keywords_of(*get_args(parameter.annotation))
            else:
                yield from _keyword(parameter.name, parameter.annotation, parameter.default)
    elif issubclass(table, msgspec.Struct):
        hints = get_type_hints(table, include_extras=True)
        bases = [base for base in table.__bases__ if base is not msgspec.Struct]
        inherited = {field.name for base in bases for field in msgspec.structs.fields(base)}
        for field in sorted(msgspec.structs.fields(table), key=lambda field: field.name in inherited):
            yield from _keyword(field.name, hints[field.name], field.default)
    else:
        for name, hint in table.__annotations__.items():
            yield from _keyword(name, hint, None)


def _keyword(name: str, hint: Any, default: object) -> Iterator[Keyword]:
    if get_origin(hint) is not Annotated:
        return
    kind, *metas = get_args(hint)
    for meta in metas:
        if isinstance(meta, Option):
            yield Keyword(name, kind, meta, meta.default if default is None else default)
        elif isinstance(meta, msgspec.Meta) and meta.description:
            yield Keyword(name, kind, Option(meta.description), default)


def _click_option(keyword: Keyword) -> Callable[[Command], Command]:
    option, default = keyword.option, keyword.default
    flag = option.flag or flag_of(keyword.name)
    return click.option(
        f"{flag}/--no-{flag.removeprefix('--')}" if keyword.kind is bool and default is True else flag,
        cls=TableOption,
        keyword=keyword.name,
        unit=option.unit,
        type=_click_type(keyword.kind, option),
        is_flag=keyword.kind is bool,
        default=",".join(map(str, default)) if isinstance(default, tuple) else default,
        show_default=True,
        metavar=option.metavar,
        help=option.help,
    )


def _click_type(kind: Any, option: Option) -> Any:
    kinds = [one for one in get_args(kind) or (kind,) if one is not NoneType]
    if get_origin(kind) is Literal or any(get_origin(one) is Literal for one in kinds):
        return click.Choice([word for one in kinds for word in (get_args(one) or (one,))])
    if option.choices:
        return click.Choice(option.choices)
    if Sequence[int] in kinds or kind == Sequence[int]:
        return numbers
    if Sequence[str] in kinds or kind == Sequence[str]:
        return listed
    if Path in kinds:
        return devices if int in kinds else PATH
    if option.unit is not None:
        return float
    if option.least is not None or option.most is not None:
        bounded: Any = click.FloatRange if float in kinds else click.IntRange
        return bounded(option.least, option.most)
    return kinds[0]


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def require_positive(flag: str, value: float | None, unit: str) -> None:
    if value is not None:
        require(0 < value < math.inf, f"{flag} is {value:g}", remedy=f"give a positive number of {unit}")


# Values of options -------------------------------------------------------------------------------


def listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def numbers(value: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of whole numbers; give some from 1 on, as in 1,2,4") from None


def devices(value: str) -> int | Path:
    try:
        return int(value)
    except ValueError:
        return Path(value)
