"""Decide whether two values are the same class, for labels and predictions of any origin.

A value travels as JSON, as raw bytes, over gRPC, or in a cell of CSV and Parquet, and changes its
form on the way: 1, 1.0, True and "1.0" are one class, and so are "cat", b"cat" and " cat".
"""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-][0-9]+)?", re.ASCII)
"""Numbers as programs write them; "007" and "1e5" are names instead."""
_TRUTHS = {"true": "1", "false": "0"}


def class_name(value: object) -> str:
    """The name of the class that `value` stands for: text, bytes, a number or a boolean.

    Blanks around text are dropped; text that is a number or a boolean has the same name as that
    value. Bytes that are not UTF-8 stay different. Fractions are equal if they are in single
    precision.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if isinstance(value, float):
        return _name_of_fraction(value)
    if isinstance(value, int):
        return str(int(value))
    return _name_of_text(str(value))


def same_class(a: object, b: object) -> bool:
    return class_name(a) == class_name(b)


def class_names(values: NDArray[Any]) -> NDArray[np.str_]:
    listed = values.ravel().tolist()
    names = {value: class_name(value) for value in dict.fromkeys(listed)}
    return np.array([names[value] for value in listed], dtype=np.str_).reshape(values.shape)


def _name_of_text(text: str) -> str:
    text = text.strip(" \t\r\n\v\f\0")  # NumPy drops a zero at the end of text, too
    if text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    if not _NUMBER.fullmatch(text):
        return text
    if "e" not in text.lower():
        whole, _, fraction = text.partition(".")
        if not fraction.strip("0"):  # exact, however long
            return "0" if whole in ("-0", "-", "") else whole
    return _name_of_fraction(float(text))


def _name_of_fraction(value: float) -> str:
    if value.is_integer():
        return str(int(value))
    with np.errstate(all="ignore"):
        single = np.float32(value)
    if not np.isfinite(single):
        return str(value)
    return str(int(single)) if float(single).is_integer() else str(single)
