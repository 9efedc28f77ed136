"""The columns of a comparison's runs: on the terminal, on the page and as CSV."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from gearshift.planner.compare import Run
from gearshift.result import ServingResult

Kind = Literal["text", "share", "seconds"]


class Column(NamedTuple):
    """A column: its `name` in the CSV, and its `title` in tables, or "" where only the CSV has it."""

    name: str
    title: str
    value: Callable[[Run], Any]
    kind: Kind = "text"

    def cell(self, run: Run, formats: dict[Kind, Callable[[Any], str]]) -> str:
        value = self.value(run)
        return "" if value is None else formats[self.kind](value)


def why_not(run: Run) -> str:
    return "" if run.error is None else str(run.error.get("message", ""))


def _predicted(value: Callable[[ServingResult], float]) -> Callable[[Run], float | None]:
    return lambda run: None if run.predicted is None else value(run.predicted)


COLUMNS = (
    Column("planner", "planner", lambda run: run.planner),
    Column("devices", "devices", lambda run: run.devices),
    Column("latency_objective_s", "SLO", lambda run: run.latency_objective_s, "seconds"),
    Column("percentile", "", lambda run: run.percentile),
    Column("accuracy", "accuracy", _predicted(lambda result: result.accuracy), "share"),
    Column("accuracy_low", "", _predicted(lambda result: result.accuracy_interval[0])),
    Column("accuracy_high", "", _predicted(lambda result: result.accuracy_interval[1])),
    Column("latency_p50_s", "", _predicted(lambda result: result.latency_s.p50)),
    Column("latency_p95_s", "p95", _predicted(lambda result: result.latency_s.p95), "seconds"),
    Column("latency_p99_s", "", _predicted(lambda result: result.latency_s.p99)),
    Column("share_late", "late", _predicted(lambda result: result.share_late), "share"),
    Column("goodput_qps", "", _predicted(lambda result: result.goodput_qps)),
    Column("planning_s", "", lambda run: run.planning_s),
    Column("unfinished", "", lambda run: run.unfinished),
    Column("error", "", why_not),
)
IN_TABLES = tuple(column for column in COLUMNS if column.title)


def planned_in(run: Run) -> str:
    return f"{run.planning_s:.1f} s, unfinished" if run.unfinished else f"{run.planning_s:.1f} s"


def csv_row(run: Run) -> Iterator[object]:
    for column in COLUMNS:
        value = column.value(run)
        yield "" if value is None else value
