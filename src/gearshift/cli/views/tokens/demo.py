"""The output of `gearshift demo --llm`."""

from gearshift.cli.common.output import Output
from gearshift.cli.views.tokens.tables import language_results, show_language_gears
from gearshift.demo.language import LanguageDemoResult
from gearshift.support.numbers import digits


def show_language_demo(output: Output, made: LanguageDemoResult, p95_ms: float) -> None:
    output.json(
        {
            "slo": {"ttft_p95_s": p95_ms / 1e3},
            "emulated": made.emulated,
            "requests": made.requests,
            "peak_qps": made.peak_qps,
            "simulated": {name: system.predicted for name, system in made.systems.items()},
            "served": {name: system.measured for name, system in made.systems.items()},
        }
    )
    output.say(
        f"{made.requests} lines about orders, up to {made.peak_qps:.0f}/s, where the largest model alone carries "
        f"{made.largest_capacity_qps:.0f}/s; objective: first token within {digits(p95_ms)} ms for 95 %"
    )
    if made.emulated:
        output.say(f"{made.emulated}: engines are emulated with recorded times and answers")
    show_language_gears(output, made.plan)
    rows = []
    for name, system in made.systems.items():
        rows += [(f"{name}, predicted", system.predicted), (f"{name}, measured", system.measured)]
    output.show(language_results("Predicted and measured", rows))
    for name, system in made.systems.items():
        for problem, count in system.replay.problems.items():
            output.say(f"{name}: {count} requests had {problem}")
    if not all(system.replay.valid for system in made.systems.values()):
        output.say("the load generator could not keep its schedule on this machine: read measured times with care")
