"""A comparison of planners of rows, as tables, CSV and a page."""

from collections.abc import Mapping

from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import NO_LABELS, milliseconds, percent
from gearshift.cli.common.view import Compared, Page
from gearshift.planner.compare import Comparison, count_interrupted
from gearshift.profiles.profile import Profile
from gearshift.reporting import comparison
from gearshift.reporting.comparison import FORMATS, cell_text, comparison_sections, planned, runs_of, why_not
from gearshift.support.numbers import digits

UNLABELLED = "accuracy of {!r} is agreement with its strongest model: it has no labels"


def show(output: Output, found: Comparison, compared: Compared) -> None:
    shown = planned(found)
    rows = table("Plans as predicted", *shown.titles)
    for run, cells in shown.cells({**FORMATS, "share": percent, "seconds": milliseconds}):
        rows.add_row(*cells[:-1], cells[-1] if run.error is None else str(run.error["kind"]))
    output.show(rows)
    for run in found.runs:
        if run.error is not None and run.planner in found.planners:
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


def page(found: Comparison, compared: Compared) -> Page:
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
    return Page(f"Planners for {names}", " ".join(notes), comparison_sections(found))


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
    return runs_of(found.runs).csv


def grid_as_csv(found: Comparison) -> str:
    return comparison.grid_as_csv(found)
