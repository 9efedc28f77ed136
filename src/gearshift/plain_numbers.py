"""Explain why text is not a number here: percentages, decimal commas, units."""

import re

_PERCENT = re.compile(r"\s*([0-9]+(?:[.,][0-9]+)?)\s*%\s*")
_COMMA = re.compile(r"\s*([+-]?[0-9]+),([0-9]+)\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[0-9]{1,3}(?:([,.' \u00a0\u202f])[0-9]{3})(?:\1[0-9]{3})*([.,][0-9]+)?\s*")
_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|µs|μs|ms|s|sec|min)\s*")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0}


def how_to_write(text: str, *, otherwise: str = "write a plain number, such as 0.5") -> str:
    """The remedy for `text` where a number is needed; `otherwise` if it does not look like one."""
    if found := _PERCENT.fullmatch(text):
        return f"write a share in place of a percentage: {float(found[1].replace(',', '.')) / 100:.12g}"
    if found := _UNIT.fullmatch(text):
        return f"write seconds without their unit: {float(found[1]) * _SECONDS[found[2]]:.12g}"
    if (found := _THOUSANDS.fullmatch(text)) and (found[2] or text.count(found[1]) > 1 or found[1] not in ".,"):
        return "leave out what parts thousands, and write a point before decimals"
    if found := _COMMA.fullmatch(text):
        return f"write a point for the decimal comma: {found[1]}.{found[2]}"
    return otherwise


def share_of(value: float) -> str:
    """Suggest a share from 0 to 1 where `value` may be a percentage; empty where it is not."""
    return f"write {value / 100:.12g} for {value:.12g} %" if 2 < value <= 100 else ""
