"""`gearshift compare` of language models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gearshift.cli.common.named import numbers_of
from gearshift.cli.common.option_table import require_positive
from gearshift.cli.common.options import TRACE_OPTIONS, the_only_trace, the_trace
from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import milliseconds, percent
from gearshift.cli.language.contexts import answerable_and_told
from gearshift.cli.language.plan import FLAGS
from gearshift.errors import require
from gearshift.planner.planners import for_
from gearshift.profiles.engines.store import read_language_profile
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
from gearshift.support.files import require_writable, write_atomically
from gearshift.verbs.compare import compare_language

if TYPE_CHECKING:
    from gearshift.planner.language.compared.compare import LanguageComparison

IN_TERMINAL: Formats = {**FORMATS, "share": percent, "seconds": milliseconds}

Time = Literal["ttft_s", "per_token_s", "total_s"]


def compare_of_language(
    output: Output,
    profile: Path,
    trace: Sequence[str],
    limits_ms: Mapping[Time, list[str] | None],
    *,
    csv_path: Path | None,
    page: Path | None,
    options: dict[str, Any],
) -> None:
    """Compare, write and print; `limits_ms` are the limits by the time's keyword, of which one must be given."""
    given = [(name, limits) for name, limits in limits_ms.items() if limits is not None]
    flags = ", ".join(FLAGS.values())
    require(len(given) > 0, "no time is given", remedy=f"give one of {flags}")
    require(len(given) == 1, f"{' and '.join(FLAGS[name] for name, _ in given)} are both given", remedy="give one")
    ((name, limits),) = given
    numbers = numbers_of(FLAGS[name], limits)
    for number in numbers:
        require_positive(FLAGS[name], number, "milliseconds")
    path = the_only_trace(tuple(trace), "")
    assert path is not None
    measured = read_language_profile(profile)
    arrivals = the_trace(path, seed=options["seed"], **{one: options.pop(one) for one in TRACE_OPTIONS})
    arrivals = answerable_and_told(output, arrivals, measured.engines)
    paths = [each for each in (csv_path, page) if each is not None]
    for each in paths:
        require_writable(each)
    for unused in ("baselines", "processes"):
        options.pop(unused)
    options["planners"] = names_of(options["planners"])
    with output.progress() as tell:
        limits_s = [ms / 1e3 for ms in numbers]
        found = compare_language(measured, arrivals, limits_s=limits_s, metric=name, progress=tell, **options)
    if csv_path is not None:
        write_atomically(csv_path, comparison_as_csv(found).encode())
    if page is not None:
        note = f"Profile {profile}, trace {path}."
        write_atomically(page, language_comparison_page(found, title="Planners of language models", note=note).encode())
    output.json(found)
    show_comparison(output, found)
    for each in paths:
        output.say(f"wrote {each}")


def require_none_of_language(limits_ms: Mapping[Time, object], *, remedy: str) -> None:
    """Refuse the limits of language models, by the time's keyword."""
    for name, given in limits_ms.items():
        require(given is None, f"{FLAGS[name]} is given, which is for language models", remedy=remedy)


def show_comparison(output: Output, found: "LanguageComparison") -> None:
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


def names_of(given: Sequence[str] | None) -> list[str]:
    """The planners to compare; by default all, and the control."""
    from gearshift.planner.language.compared.compare import CONTROL

    return [*for_("tokens"), CONTROL] if given is None else list(given)
