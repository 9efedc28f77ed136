"""A CSV or Parquet file as columns of text that know their place, for error messages."""

import csv
import io
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gearshift.errors import InvalidInput, all_of, require
from gearshift.support.extras import load_extra
from gearshift.support.files import read_bytes, read_text

T = TypeVar("T")

PARQUET_SUFFIX = ".parquet"
_CELL_TYPES = ("string", "large_string", "string_view", "integer", "floating", "decimal", "boolean", "null")
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of a file as text, by column.

    `numbers` are the line on which each row begins, or its row number from 0, as `unit` says.
    """

    path: Path
    unit: str
    numbers: Sequence[int]
    columns: dict[str, list[str]]

    def __len__(self) -> int:
        return len(self.numbers)

    def place(self, row: int) -> str:
        return f"{self.unit} {self.numbers[row]}"

    def where(self, row: int, column: str) -> str:
        return f"{self.path}, {self.place(row)}, column {column!r}"

    def parsed(self, column: str, parse: Callable[[str], T]) -> list[T]:
        """Parse a column; where `parse` raises `InvalidInput`, the first such cell is named."""
        cells = self.columns[column]
        values: dict[str, T] = {}
        refused: dict[str, InvalidInput] = {}
        for cell in set(cells):
            try:
                values[cell] = parse(cell)
            except InvalidInput as error:
                refused[cell] = error
        if refused:
            rows = [row for row, cell in enumerate(cells) if cell in refused]
            first = refused[cells[rows[0]]]
            more = f" (as {len(rows) - 1} more are)" if len(rows) > 1 else ""
            raise InvalidInput(f"{first.what}{more}", where=self.where(rows[0], column), remedy=first.remedy)
        return list(map(values.__getitem__, cells))

    def require_cells(self, parsers: Mapping[str, Callable[[str], object]]) -> None:
        errors = []
        for column in self.columns:
            try:
                self.parsed(column, parsers[column])
            except InvalidInput as error:
                errors.append(error)
        if errors:
            raise all_of(errors, where=str(self.path))


def read_table(stem: Path, *, required: Sequence[str], optional: Sequence[str], columns: str) -> Table:
    """Read `stem` with suffix `.csv` or `.parquet`; raises `InvalidInput` for neither or both.

    `columns` names the required columns in the message about a missing file.
    """
    csv_file, parquet_file = stem.with_suffix(".csv"), stem.with_suffix(PARQUET_SUFFIX)
    if not parquet_file.exists():
        remedy = f"write {csv_file.name} with columns {columns}"
        return read_csv_table(csv_file, required=required, optional=optional, remedy=remedy)
    require(
        not csv_file.exists(),
        f"there are both {csv_file.name} and {parquet_file.name}",
        where=str(stem.parent),
        remedy="keep the one that is right",
    )
    return read_parquet_table(parquet_file, required=required, optional=optional)


def read_parquet_table(path: Path, *, required: Sequence[str], optional: Sequence[str]) -> Table:
    """Read a Parquet file; numbers become their shortest exact text, nulls empty cells.

    Raises `InvalidInput` where pyarrow is not installed, for a broken file or one without rows,
    for missing, duplicate or unknown columns, and for types other than text, numbers and booleans.
    The index that pandas writes beside the columns is left out.
    """
    parquet = load_extra("pyarrow.parquet", extra="parquet", where=str(path))
    pyarrow = load_extra("pyarrow", extra="parquet", where=str(path))
    data = read_bytes(path)
    try:
        content = parquet.ParquetFile(pyarrow.BufferReader(data)).read()
        content.validate(full=True)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"no Parquet file that can be read ({' '.join(str(error).split())})",
            where=str(path),
            remedy="write it again",
        ) from None
    kept = [name for name in content.column_names if _PANDAS_INDEX.fullmatch(name) is None]
    content = content.select(kept) if len(set(kept)) == len(kept) else content
    header = _checked_header(content.column_names, required, optional, where=f"{path}, schema")
    require(content.num_rows > 0, "there are columns, but there are no rows", where=str(path), remedy="write it again")
    cells = {}
    for name, column in zip(header, content.columns, strict=True):
        kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
        require(
            any(getattr(pyarrow.types, f"is_{known}")(kind) for known in _CELL_TYPES),
            f"the column is of type {column.type}",
            where=f"{path}, column {name!r}",
            remedy="write text, numbers, or true and false",
        )
        cells[name] = [_cell_text(value) for value in column.to_pylist()]
    return Table(path, "row", range(content.num_rows), cells)


def _cell_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))  # the same text as the same number in a column of integers
    return str(value)


def read_csv_table(path: Path, *, required: Sequence[str], optional: Sequence[str], remedy: str) -> Table:
    """Read a CSV file in UTF-8 with a header.

    `remedy` says how to get the file. Raises `InvalidInput`, with the line, for a missing or empty
    file, other encodings, wrong quoting, no rows, rows of another length than the header, and
    missing, duplicate or unknown columns.
    """
    text = read_text(path, remedy=remedy)
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
    return Table(path, "line", lines, {name: cells[i :: len(header)] for i, name in enumerate(header)})


def _checked_header(row: list[str], required: Sequence[str], optional: Sequence[str], *, where: str) -> list[str]:
    header = [name.strip() for name in row]
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise InvalidInput("the header has no commas", where=where, remedy="separate columns with commas")
    known = (
        f"the columns are {', '.join(required)}, and optionally {', '.join(optional)}; rename it or leave it out, "
        "as `gearshift records` does with a log"
    )
    names = list(dict.fromkeys(header))
    unknown = [name for name in names if name not in required and name not in optional]
    doubled = [name for name in names if header.count(name) > 1 and name not in unknown]
    missing = [name for name in required if name not in header]
    errors = [
        InvalidInput(f"column{_named(wrong)} {how}", where=where, remedy=remedy)
        for wrong, how, remedy in (
            (unknown, "unknown", known),
            (doubled, "there twice", "keep one of them"),
            (missing, "missing", "add it"),
        )
        if wrong
    ]
    if errors:
        raise all_of(errors, where=where)
    return header


def _named(names: Sequence[str]) -> str:
    return f"{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))} {'are' if len(names) > 1 else 'is'}"


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
