"""What `gearshift demo --llm` prints."""

from msgspec import UNSET

from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import milliseconds, percent
from gearshift.cli.language.tables import answered_by, show_language_gears
from gearshift.demo.language import LanguageDemoResult


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
        f"{made.largest_capacity_qps:.0f}/s; objective: first token within {p95_ms:.4g} ms for 95 %"
    )
    if made.emulated:
        output.say(f"{made.emulated}: engines are emulated with recorded times and answers")
    show_language_gears(output, made.systems["gear plan"].plan)
    shown = table("", "", "quality", "TTFT p50", "p95", "total p50", "p95", "failed", "answered by")
    for name, system in made.systems.items():
        predicted, measured = system.predicted, system.measured
        tokens = predicted.tokens
        if tokens is not UNSET:
            shown.add_row(
                f"{name}, predicted",
                percent(predicted.accuracy),
                *(milliseconds(one) for one in (tokens.ttft_s.p50, tokens.ttft_s.p95)),
                *(milliseconds(one) for one in (tokens.total_s.p50, tokens.total_s.p95)),
                "0",
                answered_by(tokens),
                style="dim",
            )
        shown.add_row(
            f"{name}, measured",
            percent(measured.quality),
            *(milliseconds(one) for one in (measured.ttft_s.p50, measured.ttft_s.p95)),
            *(milliseconds(one) for one in (measured.total_s.p50, measured.total_s.p95)),
            str(measured.failed),
            "",
        )
    output.show(shown)
    late = max(system.measured.lateness_p99_s for system in made.systems.values())
    if late > 0.05:
        output.say(f"requests were sent up to {milliseconds(late)} late: read measured times with care")
