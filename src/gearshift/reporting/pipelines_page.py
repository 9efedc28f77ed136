"""The page about a plan of graphs, or of several pipelines: the graph, gears, runs and time of each."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gearshift.gear import GearPlan, PipelinePlan
from gearshift.planner.one_alone import OneAlone
from gearshift.profiles.profile import Profile
from gearshift.reporting.alone_table import alone_below
from gearshift.reporting.charts import devices_chart
from gearshift.reporting.content import ReportContent, accuracy_of_gears, range_points
from gearshift.reporting.drawing.charts import Chart
from gearshift.reporting.drawing.page import chart_section, html_page, html_table, section, tiles
from gearshift.reporting.graph_svg import graph_svg
from gearshift.reporting.headline import percentile_name, refinement_in_words
from gearshift.reporting.report_page import (
    cost_tiles,
    costs_below,
    figures_of,
    objective_in_words,
    plan_facts,
    results_rows,
)
from gearshift.reporting.run_charts import charts_of
from gearshift.reporting.runs import Kind, RunSeries, predicted_series
from gearshift.result import ServingResult
from gearshift.simulator.flow import PipelineFlow, flows
from gearshift.simulator.simulate import Simulation
from gearshift.support.files import write_atomically
from gearshift.support.numbers import digits, load_in_words, milliseconds, percent

ALL = 0.9995
"""A share that is shown as 100 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One pipeline as it was served: its runs, which may have other names than it, and its flow.

    `alone` is what the plan's devices would do with one model in place of a node's cascades.
    """

    runs: Sequence[RunSeries]
    flow: PipelineFlow
    alone: Sequence[OneAlone] = ()


def simulated(
    plan: GearPlan,
    profiles: Mapping[str, Profile],
    run: Simulation,
    alone: Mapping[str, Sequence[OneAlone]] | None = None,
) -> dict[str, Served]:
    """Each pipeline of a simulation of the plan; `profiles` are by operator, `alone` by pipeline."""
    flow = flows(plan, profiles, run)
    return {
        name: Served(
            runs=[
                predicted_series(
                    name,
                    run,
                    profiles,
                    pipeline.objective.latency_s,
                    pipeline=name,
                    of_gears=accuracy_of_gears(pipeline),
                )
            ],
            flow=flow[name],
            alone=(alone or {}).get(name, ()),
        )
        for name, pipeline in plan.pipelines.items()
    }


def write_pipelines_page(
    path: Path, plan: GearPlan, served: Mapping[str, Served], *, title: str = "", note: str = ""
) -> None:
    write_atomically(path, pipelines_page(plan, served, title=title, note=note).encode())


def pipelines_page(plan: GearPlan, served: Mapping[str, Served], *, title: str = "", note: str = "") -> str:
    """The page; without any `served` it has no numbers of a run."""
    costs = _cost_charts(plan)
    sections, charts = [_promised(plan, served), *map(chart_section, costs)], [*costs]
    for number, (name, pipeline) in enumerate(plan.pipelines.items(), start=1):
        flow = served[name].flow if name in served else None
        sections.append(_graph(name, pipeline, flow))
        if flow is not None:
            sections.append(section(f"Nodes of {name}", "Shares of answers and of device time.", nodes_table(flow)))
        sections.append(section(f"Gears of {name}", _gears_sentence(pipeline), gears_of_nodes(pipeline)))
        drawn = _charts(plan, name, served[name].runs if name in served else (), number)
        sections += map(chart_section, drawn)
        charts += drawn
    sections.append(section("The plan", "Its objectives, its inputs, and the models on its devices.", plan_facts(plan)))
    title = title or f"Gear plan for {', '.join(plan.pipelines)}"
    return html_page(title, note or ("" if served else "Without a trace nothing was simulated."), sections, charts)


def _charts(plan: GearPlan, name: str, runs: Sequence[RunSeries], number: int) -> list[Chart]:
    objective = plan.pipelines[name].objective
    content = ReportContent(
        title=name,
        ranges=range_points(plan, name),
        runs=runs,
        slo_s=objective.latency_s,
        percentile=percentile_name(objective),
    )
    return charts_of(content, of=name, number=number)


def nodes_table(flow: PipelineFlow) -> str:
    rows = "".join(
        f"<tr><td class='text'>{html.escape(node)}</td><td class='text'>{html.escape(found.operator)}</td>"
        f"<td>{digits(found.items)}</td>"
        f"<td class='text'>{html.escape(_answered(found.answered))}</td>"
        f"<td>{percent(found.share_of_time)}</td></tr>"
        for node, found in flow.nodes.items()
    )
    columns = ("node", "operator", "items a request", "answered by", "share of time")
    return html_table(columns, rows, text=("node", "operator", "answered by"))


def _answered(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{model} {percent(share)}" for model, share in shares.items())


def gears_of_nodes(pipeline: PipelinePlan) -> str:
    """The cascades of the nodes whose models differ, by gear; of all nodes where none do."""
    shown = _choosing(pipeline) or list(pipeline.nodes)
    rows = "".join(
        f"<tr><td>{i}</td><td>{load_in_words(gear.load_range.from_, gear.load_range.to)}</td>"
        + "".join(f"<td class='text'>{html.escape(' | '.join(map(str, gear.cascades[node])))}</td>" for node in shown)
        + (
            "<td></td><td></td><td></td></tr>"
            if gear.predicted is None
            else f"<td>{percent(gear.predicted.accuracy)}</td><td>{milliseconds(gear.predicted.latency_p95_s)}</td>"
            f"<td>{percent(gear.predicted.share_late)}</td></tr>"
        )
        for i, gear in enumerate(pipeline.gears)
    )
    nodes = tuple(map(html.escape, shown))
    columns = ("gear", "requests/s", *nodes, "accuracy", percentile_name(pipeline.objective), "late")
    return html_table(columns, rows, text=nodes)


def _choosing(pipeline: PipelinePlan) -> list[str]:
    """The nodes that have several models in a gear, or others in another gear."""
    return [node for node in pipeline.nodes if len(_models_at(pipeline, node)) > 1]


def _models_at(pipeline: PipelinePlan, node: str) -> set[str]:
    return {model for gear in pipeline.gears for cascade in gear.cascades[node] for model in cascade.models}


def _gears_sentence(pipeline: PipelinePlan) -> str:
    choosing, sentence = _choosing(pipeline), "The cascade of each node in each load range."
    rest = [node for node in pipeline.nodes if node not in choosing]
    if not choosing or not rest:
        return sentence
    if len(rest) == 1:
        return f"{sentence} {rest[0]} has one model in all gears."
    return f"{sentence} {' and '.join(rest)} have one model each in all gears."


def _promised(plan: GearPlan, served: Mapping[str, Served]) -> str:
    """The figures of the plan, beside other devices and one model alone; of several pipelines in a table."""
    results: dict[str, dict[Kind, ServingResult]] = {}
    for run in (run for one in served.values() for run in one.runs):
        results.setdefault(run.name, {})[run.kind] = run.result
    if not results:
        results = {name: {"predicted": one} for name, one in plan.predictions.items()}
    if not results:
        return ""
    asked = {name: objective_in_words(pipeline) for name, pipeline in plan.pipelines.items()}
    bodies, cost = list[str](), cost_tiles(plan)
    if len(plan.pipelines) == 1:
        sentence = f"Asked for: {asked[plan.name]}."
    else:
        sentence = f"Asked for: {'; '.join(f'{name}: {words}' for name, words in asked.items())}. All at once."
    sentence += " Latencies are of answered requests; refused and failed ones count as late."
    sentence += "".join(f" {told}." for told in refinement_in_words(plan))
    if result := results.get(plan.name, {}).get("predicted") if len(plan.pipelines) == 1 else None:
        bodies.append(tiles(figures_of(_content_for_costs(plan), plan, result)))
    elif cost:
        bodies.append(tiles([("devices", str(len(plan.hardware.devices)), ""), *cost]))
    if not bodies or len(results) > 1 or any(len(kinds) > 1 for kinds in results.values()):
        bodies.append(results_rows(results))
    if len(plan.pipelines) == 1 and plan.name in plan.predictions:
        bodies.append(costs_below(_content_for_costs(plan), plan, plan.predictions[plan.name]))
    for name, one in served.items():
        own = results.get(name, {}).get("predicted")
        of = "" if len(plan.pipelines) == 1 else f" in {name}"
        bodies.append(alone_below(own, one.alone, right="accuracy", time="p95", of=of))
    return section("What is promised", sentence, *bodies)


def _cost_charts(plan: GearPlan) -> list[Chart]:
    chart = devices_chart(_content_for_costs(plan)) if len(plan.pipelines) == 1 else None
    return [] if chart is None else [chart]


def _content_for_costs(plan: GearPlan) -> ReportContent:
    objective = plan.pipeline.objective
    return ReportContent(title="", plan=plan, slo_s=objective.latency_s, percentile=percentile_name(objective))


def _graph(name: str, pipeline: PipelinePlan, flow: PipelineFlow | None) -> str:
    sentence = "An edge says its condition, and how many times a request it is taken; the bar is the share of time."
    if flow is not None and flow.share_of_busy < ALL:
        sentence += f" The pipeline takes {percent(flow.share_of_busy)} of the time for which devices are busy."
    return section(f"The graph of {name}", sentence, graph_svg(name, pipeline, flow))
