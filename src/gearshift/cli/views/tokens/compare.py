"""A comparison of planners of language models, as tables, CSV and a page."""

from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import milliseconds, percent
from gearshift.cli.common.view import Compared
from gearshift.planner.language.compared.compare import LanguageComparison
from gearshift.reporting.language.comparison import (
    FORMATS,
    Formats,
    cells,
    comparison_as_csv,
    in_tables,
    language_comparison_page,
    limit_text,
    worth_text,
)

IN_TERMINAL: Formats = {**FORMATS, "share": percent, "seconds": milliseconds}


def show(output: Output, compared: Compared) -> None:
    found = compared.found
    rows = table("Plans as predicted", *(column.title or limit_text(found) for column in in_tables(found)))
    for run in found.runs:
        rows.add_row(*cells(run, found, IN_TERMINAL))
    output.show(rows)
    for run in found.runs:
        if run.error is not None:
            output.say(f"{run.planner}, {run.devices}, {milliseconds(run.limit_s)}: {run.error['message']}")
    if found.interrupted:
        output.say(
            f"interrupted: {found.interrupted} of {len(found.runs)} runs had not ended, and the table is of the others"
        )
    for sentence in worth_text(found):
        output.say(sentence)


def as_csv(found: LanguageComparison) -> str:
    return comparison_as_csv(found)


def page(compared: Compared) -> str:
    note = f"Profile {compared.paths[0]}, trace {compared.traces}."
    return language_comparison_page(compared.found, title="Planners of language models", note=note)
