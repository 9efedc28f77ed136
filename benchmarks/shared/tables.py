"""Tables in Markdown, and the lines below them."""

from collections.abc import Iterable, Sequence

import numpy as np


def print_head(row: str) -> None:
    """Print the first row of a table whose others follow one by one, and the rule below it."""
    print(row)
    print("|" + "---|" * (row.count("|") - 1), flush=True)


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows as a Markdown table."""
    print()
    print_head(f"| {' | '.join(header)} |")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")
    print()


def print_bar(met: bool, bar: str) -> None:
    """Say whether a bar was met."""
    print(f"bar: {bar}: {'met' if met else 'NOT met'}")


def spread(values: Sequence[float] | np.ndarray, form: str = ".2f") -> str:
    """The median and the range."""
    return f"{np.median(values):{form}} ({np.min(values):{form}} to {np.max(values):{form}})" if len(values) else "-"
