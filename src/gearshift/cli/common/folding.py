"""Tables too wide for a terminal: their columns one below the other, and no value cut."""

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

UNBOUNDED = 100_000


def folded(console: Console, table: Table) -> list[Table]:
    """`table` as it is where it fits; else parts of its columns, each beside the first one.

    Where even one column is too wide beside the first, a row becomes lines of a name and a value.
    """

    def width_of(made: Table) -> int:
        return console.measure(made, options=console.options.update(max_width=UNBOUNDED)).maximum

    if max(width_of(table), cell_len(str(table.title or ""))) <= console.width:
        return [table]
    groups = _groups(table, lambda columns: width_of(_part(table, columns)) <= console.width)
    parts = _records(table) if groups is None else [_part(table, columns) for columns in groups]
    return [_titled(table), *parts] if table.title else parts


def _groups(table: Table, fits: Callable[[Sequence[int]], bool]) -> list[list[int]] | None:
    """The columns of each part; None where two columns do not fit side by side."""
    groups = [[0]]
    for column in range(1, len(table.columns)):
        if fits([*groups[-1], column]):
            groups[-1].append(column)
        elif fits([0, column]):
            groups.append([0, column])
        else:
            return None
    return groups


def _part(table: Table, columns: Sequence[int]) -> Table:
    """Some of the columns, without the title."""
    part = Table(box=None, pad_edge=False, padding=table.padding)
    for number in columns:
        column = table.columns[number]
        part.add_column(column.header, justify=column.justify, no_wrap=True)
    cells = [list(table.columns[number].cells) for number in columns]
    for row in zip(*cells, strict=True):
        part.add_row(*row)
    return part


def _records(table: Table) -> list[Table]:
    """A table of names and values for each row; long values go on in the next line."""
    made = []
    for cells in zip(*(list(column.cells) for column in table.columns), strict=True):
        record = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        record.add_column(no_wrap=True)
        record.add_column(overflow="fold")
        for column, cell in zip(table.columns, cells, strict=True):
            if cell != "":
                record.add_row(column.header, cell)
        made.append(record)
    return made


def _titled(table: Table) -> Table:
    """The title alone, over as many lines as it needs."""
    made = Table(box=None, pad_edge=False, padding=0, show_header=False)
    made.add_column(overflow="fold", style=table.title_style)
    made.add_row(table.title)
    return made
