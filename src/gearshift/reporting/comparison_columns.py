"""The columns of a comparison's runs: on the terminal, on the page and as CSV."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from gearshift.planner.compare import Run
from gearshift.reporting.cost import per_million
from gearshift.result import ServingResult

Kind = Literal["text", "share", "seconds", "money"]


class Column(NamedTuple):
    """A column: its `name` in the CSV, and its `title` in tables, or "" where only the CSV has it.

    Tables without any value have it only if it is there `always`.
    """

    name: str
    title: str
    value: Callable[[Run], Any]
    kind: Kind = "text"
    always: bool = True

    def cell(self, run: Run, formats: dict[Kind, Callable[[Any], str]]) -> str:
        value = self.value(run)
        return "" if value is None else formats[self.kind](value)


def why_not(run: Run) -> str:
    return "" if run.error is None else str(run.error.get("message", ""))


def _predicted(value: Callable[[ServingResult], float]) -> Callable[[Run], float | None]:
    return lambda run: None if run.predicted is None else value(run.predicted)


def _per_million(run: Run) -> float | None:
    return None if run.predicted is None else per_million(run.price_per_hour, run.predicted)


def _by_time(run: Run) -> float | None:
    share = UNSET if run.predicted is None else run.predicted.share_by_time
    return None if share is UNSET else share


COLUMNS = (
    Column("planner", "planner", lambda run: run.planner),
    Column("devices", "devices", lambda run: run.devices),
    Column("price_per_hour", "an hour", lambda run: run.price_per_hour, "money", always=False),
    Column("price_per_million", "a million", _per_million, "money", always=False),
    Column("latency_objective_s", "SLO", lambda run: run.latency_objective_s, "seconds"),
    Column("percentile", "", lambda run: run.percentile),
    Column("accuracy", "accuracy", lambda run: run.accuracy, "share"),
    Column("accuracy_low", "", _predicted(lambda result: result.accuracy_interval[0])),
    Column("accuracy_high", "", _predicted(lambda result: result.accuracy_interval[1])),
    Column("latency_p50_s", "p50", _predicted(lambda result: result.latency_s.p50), "seconds"),
    Column("latency_p95_s", "p95", _predicted(lambda result: result.latency_s.p95), "seconds"),
    Column("latency_p99_s", "", _predicted(lambda result: result.latency_s.p99)),
    Column("share_late", "late", lambda run: run.share_late, "share"),
    Column("share_by_time", "by time", _by_time, "share", always=False),
    Column("goodput_qps", "", _predicted(lambda result: result.goodput_qps)),
    Column("planning_s", "", lambda run: run.planning_s),
    Column("unfinished", "", lambda run: run.unfinished),
    Column("error", "", why_not),
)
IN_TABLES = tuple(column for column in COLUMNS if column.title)
PIPELINE, ALL = "pipeline", "all"
"""A further column, after the planner, where plans are of several pipelines; and what a run of all has there."""


def planned_in(run: Run) -> str:
    return f"{run.planning_s:.1f} s, unfinished" if run.unfinished else f"{run.planning_s:.1f} s"


def of_several(runs: Sequence[Run]) -> bool:
    return any(run.pipelines is not UNSET for run in runs)


def each_pipeline(run: Run) -> Iterator[tuple[str, Run]]:
    """The run, and where it is of several pipelines the same for each of these, by name."""
    yield ALL, run
    if run.pipelines is not UNSET:
        for name, one in run.pipelines.items():
            objective_s = one.latency_objective_s
            yield (
                name,
                msgspec.structs.replace(
                    run,
                    pipelines=UNSET,
                    predicted=one.predicted,
                    latency_objective_s=objective_s,
                    price_per_hour=None,  # devices are for all pipelines together
                ),
            )


def _shown(runs: Sequence[Run]) -> list[Column]:
    every = [one for run in runs for _, one in each_pipeline(run)]
    return [c for c in IN_TABLES if c.always or any(c.value(run) is not None for run in every)]


def titles(runs: Sequence[Run]) -> list[str]:
    """The titles of a table of runs."""
    planner, *others = (column.title for column in _shown(runs))
    return [planner, *([PIPELINE] if of_several(runs) else []), *others]


def cells(runs: Sequence[Run], formats: dict[Kind, Callable[[Any], str]]) -> Iterator[tuple[Run, list[str]]]:
    """The rows of a table of runs, each with its run; those of single pipelines come after that of all."""
    several, shown = of_several(runs), _shown(runs)
    for run in runs:
        for name, one in each_pipeline(run):
            planner, *others = (column.cell(one, formats) for column in shown)
            yield one, [planner, *([name] if several else []), *others]


def csv_titles(runs: Sequence[Run]) -> list[str]:
    planner, *others = (column.name for column in COLUMNS)
    return [planner, *([PIPELINE] if of_several(runs) else []), *others]


def csv_rows(runs: Sequence[Run]) -> Iterator[list[object]]:
    several = of_several(runs)
    for run in runs:
        for name, one in each_pipeline(run):
            values = (column.value(one) for column in COLUMNS)
            planner, *others = ("" if value is None else value for value in values)
            yield [planner, *([name] if several else []), *others]
