"""When two values are the same class: the one judge of labels and predictions, whichever road they came by.

A value travels as JSON, as raw bytes, over gRPC, or in a cell of CSV and Parquet, and looks different at the end:
1, 1.0, True and "1.0" are one class, and so are "cat", b"cat" and " cat".
"""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-][0-9]+)?", re.ASCII)
"""Numbers as programs write them.  "007" and "1e5" are no such numbers, and so are names."""
_TRUTHS = {"true": "1", "false": "0"}


def class_name(value: object) -> str:
    """The name of the class that `value` stands for: text, bytes, a number or a truth.

    Text is taken without blanks around it; where it is a number or a truth it names what that does.  Bytes that are no
    UTF-8 keep their difference.  Fractions are the same where they are in single precision.
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
    """Whether two values stand for one class."""
    return class_name(a) == class_name(b)


def class_names(values: NDArray[Any]) -> NDArray[np.str_]:
    """The name of each of `values`, in an array of the same shape."""
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
