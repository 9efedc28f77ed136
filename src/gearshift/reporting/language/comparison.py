"""A comparison of planners of language models: its columns, as CSV, and as one self-contained page."""

import csv
import html
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from gearshift.planner.language.compared.compare import LanguageComparison, LanguageRun
from gearshift.planner.space.pareto import undominated
from gearshift.reporting.cost import money_or_nothing, per_million
from gearshift.reporting.drawing import colours, scales
from gearshift.reporting.drawing.charts import Chart, Line, Panel
from gearshift.reporting.drawing.page import chart_section, html_page, html_table, section
from gearshift.reporting.headline import NAMES, counted
from gearshift.result import ServingResult
from gearshift.support.numbers import milliseconds, percent

Kind = Literal["text", "quality", "share", "seconds", "money"]
Formats = Mapping[str, Callable[[Any], str]]
FORMATS: Formats = {
    "text": str,
    "quality": "{:.4f}".format,
    "share": percent,
    "seconds": milliseconds,
    "money": money_or_nothing,
}


class Column(NamedTuple):
    """A column: its `name` in the CSV, its `title` in tables ("" for the limit's), None where only the CSV has it."""

    name: str
    title: str | None
    value: Callable[[LanguageRun, LanguageComparison], Any]
    kind: Kind = "text"


def _predicted(value: Callable[[ServingResult], float]) -> Callable[[LanguageRun, LanguageComparison], float | None]:
    return lambda run, _: None if run.predicted is None else value(run.predicted)


def _reached_s(run: LanguageRun, found: LanguageComparison) -> float | None:
    return None if run.predicted is None else run.predicted.latency_s.at(found.percentile)


COLUMNS = (
    Column("planner", "planner", lambda run, _: run.planner),
    Column("devices", "devices", lambda run, _: run.devices),
    Column("price_per_hour", "an hour", lambda run, _: run.price_per_hour, "money"),
    Column("price_per_million", "a million", lambda run, _: _price_per_million(run), "money"),
    Column("metric", None, lambda _, found: found.metric),
    Column("percentile", None, lambda _, found: found.percentile),
    Column("limit_s", "", lambda run, _: run.limit_s, "seconds"),
    Column("quality", "quality", _predicted(lambda result: result.accuracy), "quality"),
    Column("reached_s", "reached", _reached_s, "seconds"),
    Column("share_late", "late", _predicted(lambda result: result.share_late), "share"),
    Column("gears", "gears", lambda run, _: run.gears if run.predicted is not None else None),
    Column("planning_s", None, lambda run, _: run.planning_s),
    Column("unfinished", None, lambda run, _: run.unfinished),
    Column("error", None, lambda run, _: (run.error or {}).get("message")),
    Column("planned in", "planned in", lambda run, _: planned_in(run)),
)
IN_CSV = tuple(column for column in COLUMNS if column.name != "planned in")


def in_tables(found: LanguageComparison) -> tuple[Column, ...]:
    """The columns that people see; money only where a price is known."""
    priced = any(run.price_per_hour is not None for run in found.runs)
    return tuple(column for column in COLUMNS if column.title is not None and (priced or column.kind != "money"))


def _price_per_million(run: LanguageRun) -> float | None:
    return None if run.predicted is None else per_million(run.price_per_hour, run.predicted)


def planned_in(run: LanguageRun) -> str:
    """The time of planning, or the kind of error."""
    if run.error is not None:
        return str(run.error["kind"])
    return f"{run.planning_s:.1f} s, unfinished" if run.unfinished else f"{run.planning_s:.1f} s"


def limit_text(found: LanguageComparison) -> str:
    return f"{NAMES[found.metric]} p{100 * found.percentile:g}"


def cells(run: LanguageRun, found: LanguageComparison, formats: Formats = FORMATS) -> list[str]:
    """A run's row of a table, with `formats` by kind."""
    values = [(column.value(run, found), column.kind) for column in in_tables(found)]
    return ["" if value is None else formats[kind](value) for value, kind in values]


def worth_text(found: LanguageComparison) -> Iterator[str]:
    for devices, limit_s, worth in found.worth:
        where = f"{counted(devices, 'device')}, {milliseconds(limit_s)}"
        yield f"{where}: certainty is worth {worth:+.4f} of quality against the control with permuted certainties"


def comparison_as_csv(found: LanguageComparison) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([column.name for column in IN_CSV])
    writer.writerows([column.value(run, found) for column in IN_CSV] for run in found.runs)
    return file.getvalue()


def language_comparison_page(found: LanguageComparison, *, title: str, note: str = "") -> str:
    counts = sorted({run.devices for run in found.runs})
    charts = [chart for devices in counts if (chart := frontier_chart(found, devices)) is not None]
    worth = "; ".join(worth_text(found))
    names = [column.title or limit_text(found) for column in in_tables(found)]
    rows = "".join(_row(run, found) for run in found.runs)
    intro = f"Each plan as predicted on the trace, or why there is none. {worth}".strip()
    runs = section("Runs", intro, html_table(names, rows))
    return html_page(title, note, [*map(chart_section, charts), runs], charts)


def _row(run: LanguageRun, found: LanguageComparison) -> str:
    """A run without a plan has the reason in place of the figures."""
    *figures, planned = (html.escape(cell) for cell in cells(run, found))
    shown = figures
    if run.error is not None:
        while shown[-1] == "":
            shown = shown[:-1]
    row = "".join(f"<td>{cell}</td>" for cell in shown)
    if blank := len(figures) - len(shown):
        assert run.error is not None
        row += f"<td class='text' colspan='{blank}'>{html.escape(str(run.error['message']))}</td>"
    return f"<tr>{row}<td>{planned}</td></tr>"


def frontier_chart(found: LanguageComparison, devices: int) -> Chart | None:
    """A line for each planner: quality against the limit that its plans were made for, or what they need beyond it."""
    names = list(dict.fromkeys(run.planner for run in found.runs))
    fronts = {name: front for name in names if (front := _front(found, name, devices))}
    if not fronts:
        return None
    shown, lines = colours.of_names(names), list[Line]()
    for name, front in fronts.items():
        colour, style = shown[name]
        texts = [f"{quality:.4f} within {milliseconds(seconds)}" for seconds, quality in front]
        seconds_ms, quality = [1e3 * one for one, _ in front], [one for _, one in front]
        lines.append(Line(name, seconds_ms, quality, colour, style, stepped=True, texts=texts, dots=True))
    points = [point for front in fronts.values() for point in front]
    return Chart(
        f"frontier-{devices}",
        f"Frontier on {counted(devices, 'device')}",
        "Each point is a plan that no other of its planner beats in both, at the time that it was made for; up and "
        "to the left is better. The control has certainties that rank nothing.",
        f"{limit_text(found)} promised (ms)",
        (
            Panel(
                "quality",
                scales.scaled([1e3 * seconds for seconds, _ in points]),
                scales.linear([quality for _, quality in points], zero=False, end=1),
                tuple(lines),
                height=280,
            ),
        ),
    )


def _front(found: LanguageComparison, name: str, devices: int) -> list[tuple[float, float]]:
    """(seconds, quality) of the plans that keep their limit, of which no other has both better."""
    kept = [
        (run.limit_s, run.predicted.accuracy)
        for run in found.runs
        if (run.planner, run.devices) == (name, devices)
        and run.predicted is not None
        and run.predicted.latency_s.at(found.percentile) <= run.limit_s
    ]
    return sorted(kept[k] for k in undominated(kept))
