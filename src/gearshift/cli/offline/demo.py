"""`gearshift demo`."""

from collections.abc import Mapping
from pathlib import Path

import click

from gearshift.cli.common.option_table import PATH, require_positive
from gearshift.cli.common.output import Output, table, verb
from gearshift.cli.common.tables import figures, percent, ratios_told, split_table
from gearshift.cli.views.tokens.demo import show_language_demo
from gearshift.demo.language import run_language_demo
from gearshift.demo.pipeline import PipelineDemoResult, run_pipeline_demo
from gearshift.demo.run import DemoResult, run_demo
from gearshift.errors import require
from gearshift.result import ServingResult
from gearshift.support.numbers import digits
from gearshift.verbs.rows.validate import Validation


@click.command("demo")
@click.option("--pipeline", is_flag=True, help="Do it for a pipeline: strips of digits are split, read and joined.")
@click.option("--llm", is_flag=True, help="Do it for three tiny language models, in llama.cpp's server or emulated.")
@click.option("--folder", type=PATH, default="gearshift-demo", show_default=True, help="Where everything is written.")
@click.option("--p95-ms", type=float, default=150.0, show_default=True, help="The latency objective.")
@click.option("--seconds", type=click.FloatRange(10, 600), default=12.0, show_default=True, help="Length of the trace.")
@verb
def command(output: Output, pipeline: bool, llm: bool, folder: Path, p95_ms: float, seconds: float) -> None:
    """Train four models, profile them, plan, simulate, serve a bursty trace over HTTP, and compare.

    The same trace is served by gears, by a plan that refines rows while there is time, and with only
    the largest model, and simulated with only the smallest; with --pipeline, by operators that were
    planned apart. With --llm nothing is trained, and the latency is that of the first token.
    """
    require_positive("--p95-ms", p95_ms, "milliseconds")
    require(not (pipeline and llm), "--pipeline and --llm are both given", remedy="give one of them")
    if llm:
        with output.progress() as tell:
            language = run_language_demo(folder, ttft_s=p95_ms / 1e3, trace_s=seconds, tell=tell)
        show_language_demo(output, language, p95_ms)
        return
    how = {"latency_s": p95_ms / 1e3, "trace_s": seconds}
    if pipeline:
        with output.progress() as tell:
            strips = run_pipeline_demo(folder, **how, tell=tell)
        _tell_pipeline(output, strips, p95_ms)
        return
    with output.progress() as tell:
        made = run_demo(folder, **how, tell=tell)
    policies = {"gears": made.gears} if made.refined is None else {"gears": made.gears, "refine": made.refined}
    output.json(
        {
            "slo": {"p95_s": p95_ms / 1e3},
            "policy": "gears" if made.better is made.gears else "refine",
            "simulated": made.better.predicted,
            "served": made.better.measured,
            "policies": {name: {"simulated": one.predicted, "served": one.measured} for name, one in policies.items()},
            "baselines": {"largest": made.largest.measured, "smallest_simulated": made.smallest},
            "split": made.better.split,
            "valid": made.valid,
            "lateness_p99_s": [one.replay.lateness.p99_s for one in (*policies.values(), made.largest)],
            "report": str(made.report),
        }
    )
    _show(output, made, p95_ms)


def _tell_pipeline(output: Output, made: PipelineDemoResult, p95_ms: float) -> None:
    output.json(
        {
            "slo": {"p95_s": p95_ms / 1e3},
            "simulated": {name: system.predicted for name, system in made.systems.items()},
            "served": {name: system.measured for name, system in made.systems.items()},
            "split": made.joint.split,
            "valid": made.valid,
            "lateness_p99_s": [system.replay.lateness.p99_s for system in made.systems.values()],
            "report": str(made.report),
        }
    )
    output.say(
        f"{made.requests} strips of digits, up to {made.peak_qps:.0f}/s, where the dearest models alone carry "
        f"{made.dearest_capacity_qps:.0f}/s; objective: p95 within {digits(p95_ms)} ms, from strip to number"
    )
    _show_systems(output, {f"planned {name}": system for name, system in made.systems.items()})
    if made.without_replanning is not None:
        kept, left_out = made.joint_planned, made.without_replanning
        output.say(
            f"choosing again by the time left: predicted accuracy {percent(kept.accuracy)}, "
            f"{percent(kept.share_late)} late; without, {percent(left_out.accuracy)} and {percent(left_out.share_late)}"
        )
    else:
        output.say("no gear of the joint plan chooses again by the time left: simulation gave it no advantage")
    if made.why_not_apart:
        output.say(made.why_not_apart)
    _tell_split(output, made.joint, valid=made.valid)
    output.say(f"report: {made.report}")


def _show(output: Output, made: DemoResult, p95_ms: float) -> None:
    output.say(
        f"{made.requests} requests, up to {made.peak_qps:.0f}/s, where the largest model alone carries "
        f"{made.largest_capacity_qps:.0f}/s; objective: p95 within {digits(p95_ms)} ms"
    )
    systems = (
        {"gear plan": made.gears} if made.refined is None else {"gear plan": made.gears, "refinement": made.refined}
    )
    _show_systems(output, systems | {"largest alone": made.largest}, {"smallest alone": made.smallest})
    if made.refined is None:
        output.say("no plan that refines rows while there is time keeps the latency: plan.json has gears alone")
    elif made.better is made.gears:
        output.say(
            "refinement was not planned to be more accurate: plan.json is the gear plan, as --policy best has it"
        )
    else:
        output.say("plan.json is the plan that refines, as --policy best has it: it was planned to be more accurate")
    _tell_split(output, made.better, valid=made.valid)
    output.say(f"report: {made.report}")


def _show_systems(
    output: Output, systems: Mapping[str, Validation], simulated: Mapping[str, ServingResult] = {}
) -> None:
    shown = table("", "", "accuracy", "p50", "p95", "p99", "late", "goodput")
    for name, system in systems.items():
        for kind, result, style in (("predicted", system.predicted, "dim"), ("measured", system.measured, None)):
            shown.add_row(f"{name}, {kind}", *figures(result), f"{result.goodput_qps:.0f}/s", style=style)
    for name, result in simulated.items():
        shown.add_row(f"{name}, predicted", *figures(result), f"{result.goodput_qps:.0f}/s", style="dim")
    output.show(shown)


def _tell_split(output: Output, system: Validation, *, valid: bool) -> None:
    output.show(split_table(system.split))
    output.say(ratios_told(system.split))
    if not valid:
        output.say("the load generator could not keep its schedule on this machine: read measured latencies with care")
