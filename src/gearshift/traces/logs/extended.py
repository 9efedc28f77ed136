"""Logs in the W3C extended format, as of IIS and CloudFront: `#Fields:` names the columns."""

from gearshift.support.decoding import csv_cells
from gearshift.traces.logs.lines import Head, Line, Read, line_of

MARK = "#"
_FIELDS, _DATE = "#fields:", "#date:"


def extended_lines(head: Head) -> Read | None:
    """Reads lines below the `#Fields:` that came last; they may change within a file, as after a restart.

    A line that begins with `#` is no request. Date and time are two columns, or the date is that of `#Date:`.
    """
    if not any(line.lower().startswith(_FIELDS) for line in head.lines):
        return None
    names: list[str] = []
    day = ""

    def read(text: str) -> Line:
        nonlocal names, day
        if text.startswith(MARK):
            lower = text.lower()
            if lower.startswith(_FIELDS):
                names = lower[len(_FIELDS) :].split()
            elif lower.startswith(_DATE):
                day = lower[len(_DATE) :].split()[0] if lower[len(_DATE) :].strip() else ""
            raise ValueError(text)
        cells = _cells(text)
        if len(cells) != len(names) or not names:
            raise ValueError(text)
        fields = {name: "" if cell == "-" else cell for name, cell in zip(names, cells, strict=True)}
        date = fields.pop("date", "") or day
        if date and fields.get("time"):
            fields["time"] = f"{date} {fields['time']}"
        return line_of(fields, head.time_field)

    return read


def _cells(text: str) -> list[str]:
    if "\t" in text:  # CloudFront's; its header has blanks
        return [cell.strip() for cell in text.split("\t")]
    return csv_cells(text, " ") if '"' in text else text.split()
