"""A comparison of planners of language models, as tables, CSV and a page."""

from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import milliseconds, percent
from gearshift.cli.common.view import Compared, Page
from gearshift.planner.language.compared.compare import LanguageComparison
from gearshift.reporting.comparison import FORMATS
from gearshift.reporting.language.comparison import language_comparison_sections, language_runs, worth_text


def show(output: Output, found: LanguageComparison, _: Compared) -> None:
    shown = language_runs(found)
    rows = table("Plans as predicted", *shown.titles)
    for _, cells in shown.cells({**FORMATS, "share": percent, "seconds": milliseconds}):
        rows.add_row(*cells)
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
    return language_runs(found).csv


def page(found: LanguageComparison, compared: Compared) -> Page:
    note = f"Profile {compared.paths[0]}, trace {compared.traces}."
    return Page("Planners of language models", note, language_comparison_sections(found))
