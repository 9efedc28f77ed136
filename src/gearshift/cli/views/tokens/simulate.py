"""How a trace is served by a plan of language models, as predicted: tables and sentences."""

from typing import TYPE_CHECKING

import numpy as np

from gearshift.cli.common.output import Output
from gearshift.cli.common.tables import percent
from gearshift.cli.views.tokens.tables import language_results
from gearshift.verbs.kinds.kind import Inputs

if TYPE_CHECKING:
    from gearshift.simulator.engines.language_simulation import LanguageSimulation


def show(output: Output, run: "LanguageSimulation", inputs: Inputs, *, slo_s: None) -> None:
    result = run.result(inputs.records, inputs.plan.pipeline.objective)
    output.json(result)
    output.show(language_results("Predicted", [("gear plan", result)]))
    for line in run_lines(run):
        output.say(line)
    busy = ", ".join(f"{device} {100 * share:.0f} %" for device, share in result.utilisation.items())
    output.say(f"devices busy: {busy}")


def run_lines(run: "LanguageSimulation") -> list[str]:
    """Shifts and gears of a run, and what engines had to compute again."""
    counts = np.bincount(run.gear, minlength=1)
    shares = [f"{gear}: {percent(count / len(run.gear))}" for gear, count in enumerate(counts.tolist()) if count]
    lines = [f"gear shifts: {len(run.shifts)}; answers by gear: {', '.join(shares)}"]
    if preempted := int(np.count_nonzero(run.preempted)):
        lines.append(f"{preempted} requests lost their memory in an engine, and were computed again")
    return lines
