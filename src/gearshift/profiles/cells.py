"""Checks of the cells of recorded predictions and run times, by column."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from gearshift.errors import InvalidInput, how_to_write, require, share_of
from gearshift.profiles.table import Table

LARGEST_BATCH_SIZE = 65536
LONGEST_S = 1e6

T = TypeVar("T")

TRUTHS = {"true": 1.0, "false": 0.0}


def text(cell: str) -> str:
    require(bool(cell.strip()), "the cell is empty", remedy="fill it in")
    return cell


def number(cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and "_" not in cell:
        return value
    text(cell)
    raise InvalidInput(f"the cell is {shown(cell)}, needs a finite number", remedy=how_to_write(cell))


def quality(cell: str) -> float:
    truth = TRUTHS.get(cell.strip().lower())
    value = number(cell) if truth is None else truth
    remedy = share_of(value) or "give 0, 1, true, false, or a score from 0 to 1"
    require(0 <= value <= 1, f"the cell is {shown(cell)}", remedy=remedy)
    return value


def seconds(cell: str) -> float:
    value = number(cell)
    require(0 < value < LONGEST_S, f"the cell is {shown(cell)}", remedy=f"give seconds above 0 and below {LONGEST_S:g}")
    return value


def whole(cell: str, least: int, most: int = 2**53) -> int:
    value = number(cell)
    remedy = f"give a whole number from {least} to {most}"
    require(value.is_integer() and least <= value <= most, f"the cell is {shown(cell)}", remedy=remedy)
    return int(value)


def or_default(cell: str, parse: Callable[[str], T], default: T) -> T:
    return parse(cell) if cell.strip() else default


def shown(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else f"{cell[:40]}...")


WHOLE, COUNT = partial(whole, least=0), partial(whole, least=1)
SIZE = partial(whole, least=1, most=LARGEST_BATCH_SIZE)
OF_PREDICTIONS: Mapping[str, Callable[[str], object]] = {
    "sample": text,
    "model": text,
    "certainty": number,
    "correct": quality,
    "label": text,
    "prediction": str,
    "output_tokens": WHOLE,
    "exit_segment": partial(or_default, parse=WHOLE, default=-1),
}
OF_RUN_TIMES: Mapping[str, Callable[[str], object]] = {
    "model": text,
    "batch_size": SIZE,
    "seconds": seconds,
    "device_kind": partial(or_default, parse=text, default=""),
    "cores": partial(or_default, parse=COUNT, default=1),
    "tensor_parallel": partial(or_default, parse=COUNT, default=1),
    "segment": partial(or_default, parse=WHOLE, default=0),
    "memory_bytes": partial(or_default, parse=WHOLE, default=0),
    "seconds_p95": partial(or_default, parse=seconds, default=0.0),
}


def optional_column(table: Table, column: str, parse: Callable[[str], T], default: T) -> list[T]:
    if column not in table.columns:
        return [default] * len(table)
    return table.parsed(column, partial(or_default, parse=parse, default=default))
