"""A comparison of planners of language models: its columns, its charts, and what certainty is worth in it."""

from collections.abc import Iterator

from gearshift.planner.language.compared.compare import LanguageComparison
from gearshift.reporting.comparison import (
    Column,
    Front,
    Frontier,
    Runs,
    front_of,
    frontier,
    planned_in,
    predicted,
    price_per_million,
    why_not,
)
from gearshift.reporting.drawing.charts import Chart
from gearshift.reporting.drawing.page import Section, of_chart
from gearshift.reporting.headline import NAMES, counted
from gearshift.support.numbers import milliseconds

DOT_SIZE = 6.0


def language_runs(found: LanguageComparison) -> Runs:
    """The limit is of the metric and the percentile that all runs have."""
    priced = any(run.price_per_hour is not None for run in found.runs)
    columns = (
        Column("planner", "planner", lambda run: run.planner),
        Column("devices", "devices", lambda run: run.devices),
        Column("price_per_hour", "an hour" if priced else "", lambda run: run.price_per_hour, "money"),
        Column("price_per_million", "a million" if priced else "", price_per_million, "money"),
        Column("metric", "", lambda _: found.metric),
        Column("percentile", "", lambda _: found.percentile),
        Column("limit_s", limit_text(found), lambda run: run.limit_s, "seconds"),
        Column("quality", "quality", predicted(lambda result: result.accuracy), "quality"),
        Column("reached_s", "reached", predicted(lambda result: result.latency_s.at(found.percentile)), "seconds"),
        Column("share_late", "late", predicted(lambda result: result.share_late), "share"),
        Column("gears", "gears", lambda run: None if run.predicted is None else run.gears),
        Column("planning_s", "", lambda run: run.planning_s),
        Column("unfinished", "", lambda run: run.unfinished),
        Column("error", "", why_not),
        Column("", "planned in", lambda run: planned_in(run) if run.error is None else run.error["kind"]),
    )
    return Runs(columns, found.runs)


def limit_text(found: LanguageComparison) -> str:
    return f"{NAMES[found.metric]} p{100 * found.percentile:g}"


def worth_text(found: LanguageComparison) -> Iterator[str]:
    for devices, limit_s, worth in found.worth:
        where = f"{counted(devices, 'device')}, {milliseconds(limit_s)}"
        yield f"{where}: certainty is worth {worth:+.4f} of quality against the control with permuted certainties"


def language_comparison_sections(found: LanguageComparison) -> list[Section | None]:
    counts = sorted({run.devices for run in found.runs})
    intro = f"Each plan as predicted on the trace, or why there is none. {'; '.join(worth_text(found))}".strip()
    charts = [of_chart(frontier_chart(found, devices)) for devices in counts]
    return [*charts, Section("Runs", intro, [language_runs(found).table])]


def frontier_chart(found: LanguageComparison, devices: int) -> Chart | None:
    """Quality against the limit that plans were made for."""
    drawn = Frontier(
        "Each point is a plan that no other of its planner beats in both, at the time that it was made for; up and "
        "to the left is better. The control has certainties that rank nothing.",
        f"{limit_text(found)} promised (ms)",
        "quality",
        1,
        "{:.4f}".format,
    )
    names = list(dict.fromkeys(run.planner for run in found.runs))
    fronts = {name: _front(found, name, devices) for name in names}
    every = [point for front in fronts.values() for point in front]
    return frontier(drawn, devices, fronts, names, every, dict.fromkeys(names, DOT_SIZE))


def _front(found: LanguageComparison, name: str, devices: int) -> Front:
    """Of the plans that keep their limit."""
    own = [run for run in found.runs if (run.planner, run.devices) == (name, devices)]
    kept = [
        (run.limit_s, run.predicted.accuracy)
        for run in own
        if run.predicted is not None and run.predicted.latency_s.at(found.percentile) <= run.limit_s
    ]
    return front_of(kept)
