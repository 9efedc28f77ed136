"""The page about a plan of graphs, or of several pipelines: the graph, gears and time of each."""

import html
from collections.abc import Mapping
from pathlib import Path

from gearshift.gear import GearPlan, PipelinePlan
from gearshift.reporting.graph_svg import graph_svg
from gearshift.reporting.headline import percentile_name
from gearshift.reporting.page import html_page, html_table, milliseconds, section
from gearshift.reporting.report_page import load_in_words, plan_facts, results_rows
from gearshift.result import ServingResult
from gearshift.simulator.flow import PipelineFlow
from gearshift.support.files import write_atomically

Simulated = tuple[ServingResult, PipelineFlow]


def write_pipelines_page(path: Path, plan: GearPlan, simulated: Mapping[str, Simulated]) -> None:
    """`simulated` has the figures and flow of each pipeline; empty where nothing was simulated."""
    write_atomically(path, pipelines_page(plan, simulated).encode())


def pipelines_page(plan: GearPlan, simulated: Mapping[str, Simulated]) -> str:
    names = list(plan.pipelines)
    results = {name: result for name, (result, _) in simulated.items()} or plan.predictions
    sections = [_summary(results)] if results else []
    for name, pipeline in plan.pipelines.items():
        flow = simulated[name][1] if name in simulated else None
        sections.append(_graph(name, pipeline, flow))
        if flow is not None:
            sections.append(section(f"Nodes of {name}", "Shares of answers and of device time.", nodes_table(flow)))
        sections.append(
            section(f"Gears of {name}", "The cascade of each node in each load range.", gears_of_nodes(pipeline))
        )
    sections.append(section("The plan", "Its objectives, its inputs, and the models on its devices.", plan_facts(plan)))
    title = f"Gear plan for {names[0]}" if len(names) == 1 else f"Gear plan for {', '.join(names)}"
    return html_page(title, "" if simulated else "Without a trace nothing was simulated.", sections, ())


def nodes_table(flow: PipelineFlow) -> str:
    rows = "".join(
        f"<tr><td class='text'>{html.escape(node)}</td><td class='text'>{html.escape(found.operator)}</td>"
        f"<td>{found.items:.3g}</td>"
        f"<td class='text'>{html.escape(', '.join(f'{m} {share:.1%}' for m, share in found.answered.items()))}</td>"
        f"<td>{found.share_of_time:.1%}</td></tr>"
        for node, found in flow.nodes.items()
    )
    columns = ("node", "operator", "items a request", "answered by", "share of time")
    return html_table(columns, rows, text=("node", "operator", "answered by"))


def gears_of_nodes(pipeline: PipelinePlan) -> str:
    rows = "".join(
        f"<tr><td>{i}</td><td>{load_in_words(gear.load_range.from_, gear.load_range.to)}</td>"
        + "".join(
            f"<td class='text'>{html.escape(' | '.join(map(str, gear.cascades[node])))}</td>" for node in pipeline.nodes
        )
        + (
            "<td></td><td></td><td></td></tr>"
            if gear.predicted is None
            else f"<td>{gear.predicted.accuracy:.2%}</td><td>{milliseconds(gear.predicted.latency_p95_s)}</td>"
            f"<td>{gear.predicted.share_late:.2%}</td></tr>"
        )
        for i, gear in enumerate(pipeline.gears)
    )
    nodes = tuple(map(html.escape, pipeline.nodes))
    columns = ("gear", "requests/s", *nodes, "accuracy", percentile_name(pipeline.objective), "share late")
    return html_table(columns, rows, text=nodes)


def _summary(results: Mapping[str, ServingResult]) -> str:
    sentence = "All pipelines at once. Latencies are of answered requests; refused and failed ones count as late."
    return section("Summary", sentence, results_rows({name: {"predicted": one} for name, one in results.items()}))


def _graph(name: str, pipeline: PipelinePlan, flow: PipelineFlow | None) -> str:
    sentence = "An edge says its condition, and how many times a request it is taken; the bar is the share of time."
    if flow is not None:
        sentence += f" The pipeline takes {flow.share_of_busy:.1%} of the time for which devices are busy."
    return section(f"The graph of {name}", sentence, graph_svg(name, pipeline, flow))
