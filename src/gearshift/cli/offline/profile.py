"""`gearshift profile`."""

from pathlib import Path
from typing import Any, get_args

import click

from gearshift.cli.common.first_compile import Meanwhile
from gearshift.cli.common.option_table import PATH, options_of
from gearshift.cli.common.output import Output, notice, verb
from gearshift.cli.common.tables import NO_LABELS, profile_table, tell_overheads, tell_warnings
from gearshift.cli.views.tokens import profile as language
from gearshift.errors import require
from gearshift.models.config import PROJECT_FILE, project_file, read_project
from gearshift.models.language_config import TextCertainty, is_language_project
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.pipelines.profile_folder import Profiles
from gearshift.profiles.profile import Profile, overheads_of
from gearshift.verbs.profile import profile, profile_from_records, profile_pipelines
from gearshift.verbs.tokens.profile import language_profile_from_records, profile_language


@click.command("profile")
@click.argument("project", type=PATH, default=PROJECT_FILE)
@click.option("--out", type=PATH, default="profile", show_default=True, help="The folder to write.")
@click.option(
    "--from-records",
    type=PATH,
    help="Import predictions and runtimes (.csv or .parquet) of this folder, or language models' answers (.jsonl).",
)
@click.option(
    "--certainty",
    type=click.Choice(get_args(TextCertainty)),
    help="With --from-records of language models: how certainty is made of log-probabilities [default: mean_logprob].",
)
@options_of(profile_from_records, without=("seed",))
@options_of(profile)
@verb
def command(
    output: Output,
    project: Path,
    out: Path,
    from_records: Path | None,
    certainty: str | None,
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
    require(
        from_records is not None or not raw_run_times,
        "--raw-run-times is given without --from-records",
        remedy="leave it out: run times are measured",
    )
    imports_language = from_records is not None and any(from_records.glob("*.jsonl"))
    require(
        certainty is None or imports_language,
        "--certainty is given without --from-records of language models",
        remedy="write certainty into the project file",
    )
    if from_records is None and is_language_project(project_file(project)):
        show_language(output, profile_language_models(output, project, out, seed), out)
        return
    if from_records is not None and imports_language:
        made_of = language_profile_from_records(
            from_records, out=out, operator=operator, certainty=certainty or "mean_logprob", seed=seed
        )
        show_language(output, made_of, out)
        return
    meanwhile = Meanwhile()
    try:
        with output.progress() as tell:
            if from_records is not None:
                made: Profile | Profiles = profile_from_records(
                    from_records, out=out, operator=operator, seed=seed, raw_run_times=raw_run_times
                )
            else:
                told: dict[str, Any] = {
                    "progress": lambda what, share: tell(f"profiling: {what}", share),
                    "notice": notice,
                }
                if has_pipelines(project):
                    made = profile_pipelines(project, out=out, seed=seed, **told, **options)
                else:
                    made = profile(project, out=out, seed=seed, **told, **options, timed=meanwhile.begin)
            meanwhile.wait(tell)
    finally:
        meanwhile.end()
    if isinstance(made, Profiles):
        output.json(facts_of_pipelines(made, out))
        show_pipelines(output, made)
    else:
        output.json(facts(made, out))
        show(output, made)
    output.say(f"wrote {out}")


def profile_language_models(output: Output, project: Path, out: Path, seed: int) -> LanguageProfile:
    with output.progress() as tell:
        return profile_language(
            project,
            out=out,
            seed=seed,
            progress=lambda what, share: tell(f"profiling: {what}", share),
            notice=notice,
        )


def show_language(output: Output, made: LanguageProfile, out: Path) -> None:
    output.json(language.facts(made, out))
    language.show(output, made)
    output.say(f"wrote {out}")


def has_pipelines(project: Path) -> bool:
    path = project_file(project)
    declared = read_project(path) if path.is_file() else None
    return declared is not None and (bool(declared.pipelines) or len(declared.operators) > 1)


def facts_of_pipelines(made: Profiles, out: Path) -> dict[str, object]:
    return {
        "profile": str(out),
        "operators": [facts(one, out / name) for name, one in made.operators.items()],
        "pipelines": [
            {
                "pipeline": name,
                "requests": one.requests,
                "items": made.items_by_node(name),
                "right": one.right,
                "warnings": one.warnings,
            }
            for name, one in made.pipelines.items()
        ],
    }


def show_pipelines(output: Output, made: Profiles) -> None:
    for name, one in made.operators.items():
        output.say(f"operator {name}:")
        show(output, one)
    for name, pipeline in made.pipelines.items():
        if not pipeline.requests:
            continue
        items = ", ".join(f"{node} {count}" for node, count in made.items_by_node(name).items())
        output.say(f"pipeline {name}: {pipeline.requests} requests, with items by node: {items}")
        if pipeline.right is not None:
            output.say(f"pipeline {name}: the strongest models answer {100 * pipeline.right:.1f} % of them right")
        tell_warnings(output, pipeline.warnings)


def facts(made: Profile, out: Path) -> dict[str, object]:
    records = made.predictions
    return {
        "operator": made.operator,
        "profile": str(out),
        "sha256": made.sha256,
        "samples": len(records.part),
        "labelled": records.labelled,
        "warnings": made.warnings,
        "models": [
            {
                "model": curve.model,
                "device_kind": curve.device_kind,
                "tensor_parallel": curve.tensor_parallel,
                "cores": curve.cores,
                "segment": curve.segment,
                "batch_sizes": curve.batch_sizes,
                "median_s": curve.median_s,
                "p95_s": curve.p95_s,
                "accuracy": float(records.quality[records.models.index(curve.model)].mean()),
                "memory_bytes": curve.memory_bytes,
                "overhead_per_batch_s": curve.overhead_per_batch_s,
                "overhead_per_request_s": curve.overhead_per_request_s,
            }
            for curve in made.curves
        ],
        "performance": made.performance,
        "overheads": overheads_of(made),
    }


def show(output: Output, made: Profile) -> None:
    output.show(profile_table(made))
    tell_overheads(output, overheads_of(made))
    for fitted in made.performance:
        output.say(
            f"{fitted.model}, {fitted.statistic} by batch size and cores: {fitted.form}; where not measured "
            f"it is off by {100 * fitted.held_out_error:.1f} %, at worst by {100 * fitted.held_out_worst:.1f} %"
        )
    if not made.predictions.labelled:
        output.say(NO_LABELS)
    tell_warnings(output, made.warnings)
