"""A CSV file as columns of text, each cell knowing its line, so that errors can name it."""

import csv
import io
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gearshift.errors import InvalidInput, require
from gearshift.files import read_bytes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CsvTable:
    """Cells of a CSV file by column, and the line of the file on which each row begins."""

    path: Path
    lines: Sequence[int]
    columns: dict[str, list[str]]

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int, column: str) -> str:
        """The place of a cell in words."""
        return f"{self.path}, line {self.lines[row]}, column {column!r}"

    def parsed(self, column: str, parse: Callable[[str], T]) -> list[T]:
        """The cells of `column` through `parse`; where that raises `InvalidInput`, the first such cell is named."""
        cells = self.columns[column]
        values: dict[str, T] = {}
        refused: dict[str, InvalidInput] = {}
        for cell in set(cells):
            try:
                values[cell] = parse(cell)
            except InvalidInput as error:
                refused[cell] = error
        if refused:
            row = next(row for row, cell in enumerate(cells) if cell in refused)
            first = refused[cells[row]]
            raise InvalidInput(first.what, where=self.where(row, column), remedy=first.remedy)
        return list(map(values.__getitem__, cells))


def read_csv_table(path: Path, *, required: Sequence[str], optional: Sequence[str], remedy: str) -> CsvTable:
    """The table in `path`, of UTF-8 text with a header and commas.

    `remedy` says how to get the file.  Raises `InvalidInput`, with the line, for a missing or empty file, other text,
    wrong quoting, no rows, rows unlike the header in length, and columns that are missing, doubled or unknown.
    """
    text = _decode(read_bytes(path, remedy=remedy), path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    lines, cells = array("q"), list[str]()
    header: list[str] = []
    begins = 1
    try:
        for row in reader:
            if row and not header:
                header = _checked_header(row, required, optional, where=f"{path}, line {begins}")
            elif row:
                if len(row) != len(header):
                    raise _ragged(row, header, where=f"{path}, line {begins}", cut_short=_is_cut(text, reader.line_num))
                lines.append(begins)
                cells += row
            begins = reader.line_num + 1
    except csv.Error as error:
        raise InvalidInput(
            f"the row that begins here is wrongly quoted ({error})",
            where=f"{path}, line {begins}",
            remedy='close every quote, and write a quote inside quotes twice ("")',
        ) from None
    require(len(lines) > 0, "there is a header, but there are no rows", where=str(path), remedy=remedy)
    return CsvTable(path, lines, {name: cells[i :: len(header)] for i, name in enumerate(header)})


def _decode(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput("not UTF-8 text", where=f"{path}, line {line}", remedy="save the file as UTF-8") from None


def _checked_header(row: list[str], required: Sequence[str], optional: Sequence[str], *, where: str) -> list[str]:
    header = [name.strip() for name in row]
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise InvalidInput("the header has no commas", where=where, remedy="separate columns with commas")
    for name in header:
        known = f"the columns are {', '.join(required)}, and optionally {', '.join(optional)}"
        require(name in required or name in optional, f"column {name!r} is unknown", where=where, remedy=known)
        require(header.count(name) == 1, f"column {name!r} is there twice", where=where, remedy="keep one of them")
    for name in required:
        require(name in header, f"column {name!r} is missing", where=where, remedy="add it")
    return header


def _is_cut(text: str, line: int) -> bool:
    return not text.endswith("\n") and line == text.count("\n") + 1


def _ragged(row: list[str], header: list[str], *, where: str, cut_short: bool) -> InvalidInput:
    if len(row) > len(header):
        remedy = "put quotes around text that has a comma"
    elif cut_short:
        remedy = "the file seems to be cut short, so write it again"
    else:
        remedy = f"fill in {', '.join(header[len(row) :])}"
    last = header[min(len(row), len(header)) - 1]
    return InvalidInput(
        f"the row has {len(row)} cells up to column {last!r}, but the header has {len(header)}",
        where=where,
        remedy=remedy,
    )
