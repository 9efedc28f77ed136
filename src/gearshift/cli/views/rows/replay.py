"""What was measured of models of rows, and how it was predicted: tables and sentences."""

from typing import TYPE_CHECKING

from gearshift.cli.common.output import Output
from gearshift.cli.common.tables import (
    ratios_told,
    results_table,
    runs_table,
    split_table,
    tell_generator,
    tell_overheads,
    validation_table,
)

if TYPE_CHECKING:
    from gearshift.load_generator.replay_result import Replay
    from gearshift.verbs.rows.validate import Validation


def show(output: Output, run: "Replay | dict[str, Replay]", target: str) -> None:
    from gearshift.reporting.runs import measured_series

    runs = run if isinstance(run, dict) else {"replay": run}
    facts = {name: one.as_json() | {"over_time": measured_series("", one).course} for name, one in runs.items()}
    output.json({"pipelines": facts} if isinstance(run, dict) else facts["replay"])
    output.show(results_table(f"Measured at {target}", [(name, one.result) for name, one in runs.items()]))
    for one in runs.values():
        tell_generator(output, one)


def show_validation(output: Output, run: "Validation") -> None:
    output.show(validation_table(run))
    output.show(split_table(run.split))
    output.say(ratios_told(run.split))
    output.show(runs_table(run))
    tell_overheads(output, run.overheads)
    tell_generator(output, run.replay)
