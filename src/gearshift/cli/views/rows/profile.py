"""A profile of models of rows, as it was made."""

from pathlib import Path

from gearshift.cli.common.output import Output
from gearshift.cli.common.tables import NO_LABELS, profile_table, tell_overheads, tell_warnings
from gearshift.profiles.pipelines.profile_folder import Profiles
from gearshift.profiles.profile import Profile, overheads_of


def show(output: Output, made: Profile | Profiles, out: Path) -> None:
    if isinstance(made, Profiles):
        output.json(facts_of_pipelines(made, out))
        _show_pipelines(output, made)
    else:
        output.json(facts(made, out))
        _show(output, made)


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


def _show_pipelines(output: Output, made: Profiles) -> None:
    for name, one in made.operators.items():
        output.say(f"operator {name}:")
        _show(output, one)
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


def _show(output: Output, made: Profile) -> None:
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
