"""Comparisons of planners: their runs in columns, for pages, terminals and CSV, and charts of what planners reach."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from gearshift.planner import planners as registry
from gearshift.planner.compare import COCKTAIL, Comparison, GridCell, Predicted, Run, points
from gearshift.planner.space.pareto import undominated
from gearshift.reporting.charts import objective_rules
from gearshift.reporting.cost import per_million
from gearshift.reporting.drawing import colours, scales
from gearshift.reporting.drawing.charts import Chart, Line, Panel
from gearshift.reporting.drawing.page import Section, Shaded, Table, Wide, of_chart
from gearshift.reporting.headline import counted
from gearshift.result import ServingResult
from gearshift.support.numbers import digits, milliseconds, money, percent

Kind = Literal["text", "quality", "share", "seconds", "money"]
Formats = Mapping[Kind, Callable[[Any], str]]
FORMATS: Formats = {
    "text": str,
    "quality": "{:.4f}".format,
    "share": percent,
    "seconds": milliseconds,
    "money": money,
}
GRID_COLUMNS = ("planner", "accuracy", "latency_s", "devices", "saving", "saving_at_least")
LEAST_DOT, DOT_STEP = 5.0, 3.5
"""In pixels."""

# Runs in columns --------------------------------------------------------------------------------


class Column(NamedTuple):
    """A column of runs: its `name` in the CSV and its `title` in tables; without one it is not there.

    Tables without any value have it only if it is there `always`.
    """

    name: str
    title: str
    value: Callable[[Any], Any]
    kind: Kind = "text"
    always: bool = True


class Runs(NamedTuple):
    """Rows of a comparison; the last of the columns in tables has the time of planning."""

    columns: Sequence[Column]
    runs: Sequence[Any]

    @property
    def shown(self) -> list[Column]:
        return [c for c in self.columns if c.title and (c.always or any(c.value(run) is not None for run in self.runs))]

    @property
    def titles(self) -> list[str]:
        return [column.title for column in self.shown]

    def cells(self, formats: Formats = FORMATS) -> Iterator[tuple[Any, list[str]]]:
        """Each run with its row of a table."""
        for run in self.runs:
            values = [(column.value(run), column.kind) for column in self.shown]
            yield run, ["" if value is None else formats[kind](value) for value, kind in values]

    @property
    def table(self) -> Table:
        """A run without a plan has the reason in place of the figures."""
        rows = list[list[str | Wide]]()
        for run, (*figures, planned) in self.cells():
            known = len(figures)
            while why_not(run) and figures[known - 1] == "":
                known -= 1
            blank = len(figures) - known
            rows.append([*figures[:known], *([Wide(why_not(run), blank)] if blank else []), planned])
        return Table(self.titles, rows)

    @property
    def csv(self) -> str:
        columns = [column for column in self.columns if column.name]
        return as_csv([c.name for c in columns], ([c.value(run) for c in columns] for run in self.runs))


def as_csv(names: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return file.getvalue()


def why_not(run: Any) -> str:
    return "" if run.error is None else str(run.error.get("message", ""))


def predicted(value: Callable[[ServingResult], float]) -> Callable[[Any], float | None]:
    return lambda run: None if run.predicted is None else value(run.predicted)


def price_per_million(run: Any) -> float | None:
    return None if run.predicted is None else per_million(run.price_per_hour, run.predicted)


def planned_in(run: Any) -> str:
    return f"{run.planning_s:.1f} s, unfinished" if run.unfinished else f"{run.planning_s:.1f} s"


def _by_time(run: Run) -> float | None:
    share = UNSET if run.predicted is None else run.predicted.share_by_time
    return None if share is UNSET else share


def _pipeline_of(run: Run) -> str:
    return "all" if run.pipelines is UNSET or len(run.pipelines) > 1 else next(iter(run.pipelines))


PIPELINE = Column("pipeline", "pipeline", _pipeline_of)
COLUMNS = (
    Column("planner", "planner", lambda run: run.planner),
    Column("devices", "devices", lambda run: run.devices),
    Column("price_per_hour", "an hour", lambda run: run.price_per_hour, "money", always=False),
    Column("price_per_million", "a million", price_per_million, "money", always=False),
    Column("latency_objective_s", "SLO", lambda run: run.latency_objective_s, "seconds"),
    Column("percentile", "", lambda run: run.percentile),
    Column("accuracy", "accuracy", lambda run: run.accuracy, "share"),
    Column("accuracy_low", "", predicted(lambda result: result.accuracy_interval[0])),
    Column("accuracy_high", "", predicted(lambda result: result.accuracy_interval[1])),
    Column("latency_p50_s", "p50", predicted(lambda result: result.latency_s.p50), "seconds"),
    Column("latency_p95_s", "p95", predicted(lambda result: result.latency_s.p95), "seconds"),
    Column("latency_p99_s", "", predicted(lambda result: result.latency_s.p99)),
    Column("share_late", "late", lambda run: run.share_late, "share"),
    Column("share_by_time", "by time", _by_time, "share", always=False),
    Column("goodput_qps", "", predicted(lambda result: result.goodput_qps)),
    Column("planning_s", "", lambda run: run.planning_s),
    Column("unfinished", "", lambda run: run.unfinished),
    Column("error", "", why_not),
    Column("", "planned in", planned_in),
)


def runs_of(runs: Sequence[Run]) -> Runs:
    """Runs of several pipelines stand above those of each, of which a further column has the name."""
    if all(run.pipelines is UNSET for run in runs):
        return Runs(COLUMNS, runs)
    return Runs((COLUMNS[0], PIPELINE, *COLUMNS[1:]), [one for run in runs for one in _each_pipeline(run)])


def _each_pipeline(run: Run) -> Iterator[Run]:
    yield run
    for name, one in ({} if run.pipelines is UNSET else run.pipelines).items():
        only = Predicted(latency_objective_s=one.latency_objective_s, share=1.0, predicted=one.predicted)
        yield msgspec.structs.replace(
            run,
            pipelines={name: only},
            predicted=one.predicted,
            latency_objective_s=one.latency_objective_s,
            price_per_hour=None,  # devices are for all pipelines together
        )


def planned(found: Comparison) -> Runs:
    """The runs that tables show: without Cocktail+, which makes no plan."""
    return runs_of([run for run in found.runs if run.planner in found.planners])


def grid_as_csv(found: Comparison) -> str:
    return as_csv(GRID_COLUMNS, [[getattr(cell, name) for name in GRID_COLUMNS] for cell in found.grid])


# Charts -----------------------------------------------------------------------------------------

Front = Sequence[tuple[float, float]]
"""(seconds, quality) of plans of which no other has both better, by rising seconds."""


class Frontier(NamedTuple):
    """What a kind's frontiers are drawn in: `whole` is a quality of 1 as it is drawn and said."""

    explanation: str
    axis: str
    right: str
    whole: float
    said: Callable[[float], str]


def front_of(plans: Sequence[tuple[float, float]]) -> Front:
    return sorted(plans[k] for k in undominated(plans))


def frontier(
    drawn: Frontier,
    devices: int,
    fronts: Mapping[str, Front],
    names: Sequence[str],
    every: Iterable[tuple[float, float]],
    dot_sizes: Mapping[str, float],
) -> Chart | None:
    """A line for each planner that has a front, on axes that hold `every` point; colours go by `names`."""
    if not any(fronts.values()):
        return None
    shown, lines, held = colours.of_names(names), list[Line](), list(every)
    for name, front in fronts.items():
        if front:
            ms, quality = [1e3 * s for s, _ in front], [drawn.whole * share for _, share in front]
            texts = [f"{drawn.said(share)} within {milliseconds(s)}" for s, share in front]
            how: Any = {"stepped": True, "texts": texts, "dots": True, "dot_size": dot_sizes[name]}
            lines.append(Line(name, ms, quality, *shown[name], **how))
    x = scales.scaled([1e3 * seconds for seconds, _ in held])
    y = scales.linear([drawn.whole * quality for _, quality in held], zero=False, end=drawn.whole)
    return Chart(
        f"frontier-{devices}",
        f"Frontier on {counted(devices, 'device')}",
        drawn.explanation,
        drawn.axis,
        (Panel(drawn.right, x, y, tuple(lines), height=280),),
    )


def frontier_chart(found: Comparison, devices: int) -> Chart | None:
    """On the same axes for all numbers of devices."""
    drawn = Frontier(
        "Each point is a plan that no other of its planner beats in both, at the latency that it was made for; up and "
        "to the left is better. Planners with a point in common show as rings.",
        f"{_slo(found)} promised (ms)",
        "accuracy (%)",
        100,
        percent,
    )
    of_all = {n: {p: front_of(points(found.runs, p, n)) for p in found.planners} for n in found.device_counts}
    every = [point for fronts in of_all.values() for front in fronts.values() for point in front]
    last = len(found.planners) - 1  # earlier planners have larger dots, which show around later ones
    sizes = {name: LEAST_DOT + DOT_STEP * (last - place) for place, name in enumerate(found.planners)}
    return frontier(drawn, devices, of_all[devices], _in_colours(found), every, sizes)


def _in_colours(found: Comparison) -> list[str]:
    """The names that have a colour, which is the same in all comparisons."""
    return [*registry.for_(), *found.planners]


def cost_chart(found: Comparison, latency_s: float) -> Chart | None:
    """Accuracy and p95 against money, a line for each planner; None where fewer than two prices are known."""
    runs = [run for run in found.runs if run.latency_objective_s == latency_s and run.planner in found.planners]
    known = [run for run in runs if run.price_per_hour is not None and run.of_each]
    prices = sorted({run.price_per_hour or 0.0 for run in known})
    if len(prices) < 2:
        return None
    shown, accuracy, p95 = colours.of_names(_in_colours(found)), list[Line](), list[Line]()
    for name in found.planners:
        own = sorted((run for run in known if run.planner == name), key=lambda run: run.price_per_hour or 0.0)
        if own:
            costs, texts = [run.price_per_hour or 0.0 for run in own], list(map(_cost_text, own))
            right, ms = [100 * (run.accuracy or 0.0) for run in own], [1e3 * _p95(run) for run in own]
            for lines, values in ((accuracy, right), (p95, ms)):
                lines.append(Line(name, costs, values, *shown[name], texts=texts, dots=True))
    x, rules = scales.scaled(prices), objective_rules(latency_s)
    right, ms = [v for line in accuracy for v in line.y], [v for line in p95 for v in line.y]
    of_accuracy = scales.linear(right, zero=False, most=4, end=100)
    of_p95 = scales.linear([*ms, 1e3 * latency_s], most=4)
    return Chart(
        f"cost-{found.latencies_s.index(latency_s) + 1}",
        f"Accuracy and p95 against money, {_slo(found)} within {milliseconds(latency_s)}",
        "Each point is a planner's plan on a number of devices; a line that is higher above, and further left, costs"
        " less for the same.",
        "what the devices cost an hour",
        (
            Panel("accuracy (%)", x, of_accuracy, tuple(accuracy), height=180),
            Panel("p95 (ms)", x, of_p95, tuple(p95), rules, height=180),
        ),
    )


def _p95(run: Run) -> float:
    """The p95 of a plan, of several pipelines that of the slowest."""
    return max(each.predicted.latency_s.p95 for each in run.of_each)


def _cost_text(run: Run) -> str:
    devices = f"{digits(run.devices)} device{'' if run.devices == 1 else 's'}"
    return (
        f"{devices}, {money(run.price_per_hour or 0.0)} an hour\n"
        f"accuracy {percent(run.accuracy or 0.0)}, p95 {milliseconds(_p95(run))}"
    )


# The page ---------------------------------------------------------------------------------------


def comparison_sections(found: Comparison) -> list[Section | None]:
    charts = [frontier_chart(found, devices) for devices in found.device_counts]
    charts += [cost_chart(found, latency_s) for latency_s in found.latencies_s]
    return [
        *map(of_chart, charts),
        Section("Fewest devices", _grid_sentence(found), [_grid(found, name) for name in found.columns]),
        Section(
            "Hypervolume",
            "The area of latency (logarithmic) and accuracy that a planner's plans reach on a number of devices, "
            f"up to {milliseconds(found.reference[0])} and {percent(found.reference[1])}; more is better.",
            [_volumes(found)],
        ),
        Section("Runs", "Each plan as predicted on the trace, or why there is none.", [planned(found).table]),
    ]


def cell_text(cell: GridCell) -> str:
    if cell.devices is None:
        return "none"
    if cell.saving is None:
        return digits(cell.devices)
    at_least = "≥" if cell.saving_at_least else ""
    return f"{digits(cell.devices)} ({at_least}{digits(cell.saving)}x)"


def _grid_sentence(found: Comparison) -> str:
    sentence = f"How many devices a planner needs for an accuracy (rows) within a {_slo(found)} (columns)"
    if found.baselines:
        sentence += f"; in brackets, how many times as many the best of {', '.join(found.baselines)} needs"
    if COCKTAIL in found.columns:
        sentence += ". Cocktail+ adds and removes devices with the load: its number is the average"
    return f"{sentence}."


def _slo(found: Comparison) -> str:
    return f"p{found.percentile * 100:g}"


def _grid(found: Comparison, planner: str) -> Table:
    cells = {(cell.accuracy, cell.latency_s): cell for cell in found.grid if cell.planner == planner}
    rows: list[list[str | Shaded]] = [
        [percent(accuracy), *(_shaded(cells[accuracy, s], found.device_counts[-1]) for s in found.latencies_s)]
        for accuracy in reversed(found.accuracies)
    ]
    return Table([planner, *map(milliseconds, found.latencies_s)], rows, heads=True, even=True)


def _shaded(cell: GridCell, most: int) -> Shaded:
    strength = 0 if cell.devices is None else max(0, round(50 * (1 - (cell.devices - 1) / most)))
    return Shaded(cell_text(cell), strength)


def _volumes(found: Comparison) -> Table:
    volumes = {(v.planner, v.devices): v.hypervolume for v in found.hypervolumes}
    rows = [[name, *(digits(volumes[name, count]) for count in found.device_counts)] for name in found.planners]
    return Table(["planner", *(counted(count, "device") for count in found.device_counts)], rows, heads=True)
