"""`gearshift profile`."""

from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.first_compile import Meanwhile
from gearshift.cli.common.option_table import PATH, flag_of, options_of
from gearshift.cli.common.options import given_options, require_supported
from gearshift.cli.common.output import Output, notice, verb
from gearshift.cli.views.shown import show
from gearshift.errors import require
from gearshift.models.config import PROJECT_FILE, project_file
from gearshift.models.language_config import TextCertainty
from gearshift.verbs.kinds.registry import Found, kind_of_project, kind_of_records
from gearshift.verbs.profile import profile, profile_from_records

OF_RECORDS = {
    "raw_run_times": "leave it out: run times are measured",
    "certainty": "write certainty into the project file",
}
"""Options of `--from-records`, and what to do without it."""


@click.command("profile")
@click.argument("project", type=PATH, default=PROJECT_FILE)
@click.option("--out", type=PATH, default="profile", show_default=True, help="The folder to write.")
@click.option(
    "--from-records",
    type=PATH,
    help="Import predictions and runtimes (.csv or .parquet) of this folder, or language models' answers (.jsonl).",
)
@options_of(profile_from_records, without=("seed",))
@options_of(profile)
@verb
def command(
    output: Output,
    project: Path,
    out: Path,
    from_records: Path | None,
    certainty: TextCertainty | None,
    operator: str,
    raw_run_times: bool,
    seed: int,
    **options: Any,
) -> None:
    """Measure run times, predictions and certainty of the models of PROJECT.

    PROJECT is a gearshift.toml or its folder. With several operators, the folder that is written
    has a profile for each, and for each pipeline the joint records of its requests. Engines of
    language models are timed from outside, and their answers to PROJECT's prompts judged.
    """
    given = given_options()
    for name, remedy in OF_RECORDS.items():
        require(
            from_records is not None or name not in given,
            f"{flag_of(name)} is given without --from-records",
            remedy=remedy,
        )
    kind = kind_of_project(project_file(project)) if from_records is None else kind_of_records(from_records)
    require_supported(Found(kind, "one", project), "profile" if from_records is None else "profile_from_records")
    meanwhile = Meanwhile()
    try:
        with output.progress() as tell:
            if from_records is not None:
                made: Any = profile_from_records(
                    from_records,
                    out=out,
                    operator=operator,
                    seed=seed,
                    raw_run_times=raw_run_times,
                    certainty=certainty,
                )
            else:
                made = profile(
                    project,
                    out=out,
                    seed=seed,
                    progress=lambda what, share: tell(f"profiling: {what}", share),
                    notice=notice,
                    timed=meanwhile.begin,
                    **options,
                )
            meanwhile.wait(tell)
    finally:
        meanwhile.end()
    show(kind, "profile:show", output, made, out)
    output.say(f"wrote {out}")
