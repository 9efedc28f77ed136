"""Published traces of language models, as rows of `arrival_s,prompt_tokens,output_tokens`.

Azure's (`TIMESTAMP,ContextTokens,GeneratedTokens`), Mooncake's as CSV
(`timestamp_ms,input_tokens,output_tokens`), and BurstGPT's (`Timestamp`, `Request tokens`,
`Response tokens` and others). Requests without an answer are left out, as nothing is known of them.
"""

import csv
import io
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from gearshift.errors import InvalidInput


def clock_s(text: str) -> float:
    """Seconds since 1970 of a time such as `2023-11-16 18:17:03.9799600`."""
    whole, _, fraction = text.partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction.rstrip('Z') or 0}")


def from_ms(text: str) -> float:
    return float(text) / 1e3


FORMS: dict[tuple[str, str, str], Callable[[str], float]] = {
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"): clock_s,
    ("timestamp_ms", "input_tokens", "output_tokens"): from_ms,
    ("Timestamp", "Request tokens", "Response tokens"): float,
}
"""The columns of each form: its time, and the tokens of prompts and of answers; and how a time is read."""


def as_rows(path: Path, data: bytes) -> bytes:
    """The same trace in Gearshift's columns; data of another form stays as it is.

    Times count from the first request. Raises `InvalidInput` for a line that cannot be read.
    """
    header = data.partition(b"\n")[0].decode("utf-8", "replace").strip("\ufeff\r ").split(",")
    names = next((form for form in FORMS if set(form) <= {name.strip(' "') for name in header}), None)
    return data if names is None else _converted(path, data, names, FORMS[names])


def _converted(path: Path, data: bytes, names: tuple[str, str, str], seconds: Callable[[str], float]) -> bytes:
    rows: list[tuple[float, int, int]] = []
    for row in csv.DictReader(io.StringIO(data.decode("utf-8-sig", "replace")), skipinitialspace=True):
        if not any((value or "").strip() for value in row.values() if isinstance(value, str)):
            continue
        rows.append(_row(path, row, names, seconds, len(rows) + 2))
    answered = sorted(row for row in rows if row[1] > 0 and row[2] > 0)
    first_s = answered[0][0] if answered else 0.0
    lines = [f"{at_s - first_s:.9f},{prompt},{output}\n" for at_s, prompt, output in answered]
    return ("arrival_s,prompt_tokens,output_tokens\n" + "".join(lines)).encode()


def _row(
    path: Path, row: Mapping[str, str], names: tuple[str, str, str], seconds: Callable[[str], float], line: int
) -> tuple[float, int, int]:
    time, *tokens = names
    try:
        prompt, output = (int(float(row[name])) for name in tokens)
        return seconds(row[time].strip()), prompt, output
    except (TypeError, ValueError, AttributeError):
        shown = ",".join(str(row.get(name)) for name in names)
        remedy = f"give a time and whole numbers of tokens, as in the column {time}"
        raise InvalidInput(f"{shown[:80]!r} is no request", where=f"{path}, line {line}", remedy=remedy) from None
