"""A comparison of planners of rows, as tables, CSV and a page."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import NO_LABELS, milliseconds, percent
from gearshift.cli.common.view import Compared
from gearshift.planner.compare import Comparison, count_interrupted
from gearshift.profiles.profile import Profile
from gearshift.reporting.comparison_columns import Kind, cells, csv_rows, csv_titles, planned_in, titles, why_not
from gearshift.reporting.comparison_page import cell_text, comparison_page
from gearshift.support.numbers import digits, money

GRID_COLUMNS = ("planner", "accuracy", "latency_s", "devices", "saving", "saving_at_least")
FORMATS: dict[Kind, Callable[[Any], str]] = {"text": str, "share": percent, "seconds": milliseconds, "money": money}
UNLABELLED = "accuracy of {!r} is agreement with its strongest model: it has no labels"


def show(output: Output, compared: Compared) -> None:
    found = compared.found
    planned = [run for run in found.runs if run.planner in found.planners]
    rows = table("Plans as predicted", *titles(planned), "planned in")
    for run, shown in cells(planned, FORMATS):
        rows.add_row(*shown, planned_in(run) if run.error is None else str(run.error["kind"]))
    output.show(rows)
    for run in planned:
        if run.error is not None:
            output.say(f"{run.planner}, {run.devices}, {milliseconds(run.latency_objective_s)}: {why_not(run)}")
    output.say("")
    slo = f"p{found.percentile * 100:g}"
    grid = table("Fewest devices (saving)" if found.baselines else "Fewest devices", "accuracy", slo, *found.columns)
    for start in range(0, len(found.grid), len(found.columns)):
        row = found.grid[start : start + len(found.columns)]
        grid.add_row(percent(row[0].accuracy), milliseconds(row[0].latency_s), *map(cell_text, row))
    output.show(grid)
    output.say("")
    volumes = table("Hypervolume", "devices", *found.planners)
    for count in found.device_counts:
        volumes.add_row(str(count), *(digits(v.hypervolume) for v in found.hypervolumes if v.devices == count))
    output.show(volumes)
    if left := count_interrupted(found.runs):
        output.say(f"interrupted: {left} of {len(found.runs)} runs had not ended, and the table is of the others")
    for sentence in _doubts(compared):
        output.say(sentence)


def page(compared: Compared) -> str:
    profile = compared.profile
    if isinstance(profile, Mapping):
        names = " and ".join(profile)
        traces = ", ".join(f"{name}={path}" for name, path in compared.traces.items())
        note = "The latency of a run is the longest of its operators. "
        note += f"Profiles {', '.join(map(str, compared.paths))}; traces {traces}."
    else:
        names = profile.operator if isinstance(profile, Profile) else _pipeline(compared)
        note = f"Profile {compared.paths[0]}, trace {compared.traces}."
    notes = [note, *(f"{sentence.capitalize()}." for sentence in _doubts(compared))]
    return comparison_page(compared.found, title=f"Planners for {names}", note=" ".join(notes))


def _pipeline(compared: Compared) -> str:
    return str(compared.asked["pipeline"] or next(iter(compared.profile.pipelines)))


def _doubts(compared: Compared) -> list[str]:
    profile = compared.profile
    if isinstance(profile, Profile):
        return [] if profile.predictions.labelled else [NO_LABELS]
    if isinstance(profile, Mapping):
        return [UNLABELLED.format(name) for name, one in profile.items() if not one.predictions.labelled]
    nodes = profile.pipelines[_pipeline(compared)].nodes.values()
    operators = [profile.operators[node.operator] for node in nodes]
    return [
        UNLABELLED.format(one.operator)
        for one in operators
        if not one.predictions.labelled and one.models != (one.operator,)
    ]


def as_csv(found: Comparison) -> str:
    return _csv(csv_titles(found.runs), csv_rows(found.runs))


def grid_as_csv(found: Comparison) -> str:
    return _csv(GRID_COLUMNS, [[getattr(cell, name) for name in GRID_COLUMNS] for cell in found.grid])


def _csv(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return file.getvalue()
