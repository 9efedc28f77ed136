"""`gearshift profile`."""

from pathlib import Path

import click

from gearshift.cli.common.options import PATH, SEED, numbers
from gearshift.cli.common.output import Output, verb
from gearshift.cli.common.tables import NO_LABELS, profile_table, tell_overheads, tell_warnings
from gearshift.errors import require
from gearshift.models.config import PROJECT_FILE
from gearshift.profiles.overheads import overheads_of
from gearshift.verbs import plan_request as api


@click.command("profile", short_help="Measure models, or import records of them.")
@click.argument("project", type=PATH, default=PROJECT_FILE)
@click.option("--out", type=PATH, default="profile", show_default=True, help="The folder to write.")
@click.option("--from-records", type=PATH, help="Import predictions and runtimes (.csv or .parquet) of this folder.")
@click.option("--operator", default="default", show_default=True, help="The operator's name, with --from-records.")
@click.option(
    "--raw-run-times",
    is_flag=True,
    help="With --from-records: each row of runtimes is one batch; those of one size give median and p95.",
)
@click.option(
    "--cores", type=numbers, default="1", show_default=True, help="Measure on so many cores each, as in 1,2,4."
)
@click.option(
    "--core-share", type=float, default=1.0, show_default=True, help="How much of a processor a core is, by a quota."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the split into parts A and B.")
@verb
def command(
    output: Output,
    project: Path,
    out: Path,
    from_records: Path | None,
    operator: str,
    raw_run_times: bool,
    cores: tuple[int, ...],
    core_share: float,
    seed: int,
) -> None:
    """Measure run times, predictions and certainty of the models of PROJECT.

    PROJECT is a gearshift.toml or its folder.
    """
    require(
        from_records is not None or not raw_run_times,
        "--raw-run-times is given without --from-records",
        remedy="leave it out: run times are measured",
    )
    with output.progress() as tell:
        if from_records is not None:
            made = api.profile_from_records(
                from_records, out=out, operator=operator, seed=seed, raw_run_times=raw_run_times
            )
        else:
            made = api.profile(
                project,
                out=out,
                cores=cores,
                core_share=core_share,
                seed=seed,
                progress=lambda what, share: tell(f"profiling: {what}", share),
                notice=lambda text: click.echo(text, err=True),
            )
    output.json(
        {
            "operator": made.operator,
            "profile": str(out),
            "sha256": made.sha256,
            "samples": len(made.predictions.part),
            "labelled": made.predictions.labelled,
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
                    "accuracy": float(made.predictions.quality[made.predictions.models.index(curve.model)].mean()),
                    "memory_bytes": curve.memory_bytes,
                    "overhead_per_batch_s": curve.overhead_per_batch_s,
                    "overhead_per_request_s": curve.overhead_per_request_s,
                }
                for curve in made.curves
            ],
            "performance": made.performance,
            "overheads": overheads_of(made),
        }
    )
    output.show(profile_table(made))
    tell_overheads(output, overheads_of(made))
    for fitted in made.performance:
        output.say(
            f"{fitted.model}, {fitted.statistic} by batch size and cores: {fitted.form}, where not measured "
            f"off by {100 * fitted.held_out_error:.1f} %, at worst by {100 * fitted.held_out_worst:.1f} %"
        )
    if not made.predictions.labelled:
        output.say(NO_LABELS)
    tell_warnings(output, made.warnings)
    output.say(f"wrote {out}")
