"""The pages about plans of rows: of one operator a question a section, of graphs and several pipelines each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gearshift.gear import GearPlan, GearPrediction, PipelinePlan
from gearshift.reporting.charts import cascades_chart, devices_chart, loads_chart, run_times_chart
from gearshift.reporting.drawing.page import Below, Body, Bullets, Folded, Section, Table, Tiles, of_chart
from gearshift.reporting.graph_svg import graph_svg
from gearshift.reporting.headline import percentile_name, refinement_in_words
from gearshift.reporting.plan_parts import (
    PROMISED,
    alone_below,
    cost_tiles,
    costs_below,
    figures_of,
    objective_in_words,
    plan_facts,
    results_of,
    results_table,
)
from gearshift.reporting.run_charts import charts_of, latency_chart
from gearshift.reporting.shown import RangePoint, Shown
from gearshift.simulator.flow import PipelineFlow
from gearshift.support.numbers import digits, load_in_words, milliseconds, percent

ALL = 0.9995
"""A share that is shown as 100 %."""

# One operator -----------------------------------------------------------------------------------


def operator_sections(shown: Shown) -> list[Section | None]:
    plan = shown.plan
    result, promised = plan.predictions.get(plan.name), list[Body]()
    if result is not None:
        promised = [Tiles(figures_of(shown, result)), costs_below(shown, result), of_chart(devices_chart(plan), Below)]
    sentence = f"Asked for: {objective_in_words(shown.pipeline)}. Predicted by simulation of the trace."
    return [
        Section(PROMISED, sentence, promised),
        _works(shown),
        *map(of_chart, charts_of(shown)),
        _sure(shown),
        _assumed(shown),
    ]


def _works(shown: Shown) -> Section:
    bodies: list[Body] = [of_chart(loads_chart(shown), Below)]
    if shown.ranges:
        bodies.append(Folded("All gears as a table", "", [ranges_table(shown.ranges, shown.percentile)]))
    bodies.append(of_chart(cascades_chart(shown), Below))
    if not shown.ranges:
        table = _gears_table(shown.pipeline)
        bodies.append(Below(f"Gears of {shown.name}", "The cascade that serves each load.", [table]))
    sentence = (
        "A cascade asks a cheap model first and passes on what that is not certain of; a gear is the cascade for one "
        "range of load."
    )
    if shown.pipeline.refines:
        sentence += (
            " This plan refines while there is time: a request that gains from it waits for a better model, and is"
            " answered with what it has when its time ends. The shares of answers are those of the simulation."
        )
    return Section("How it works", sentence, bodies)


def _sure(shown: Shown) -> Section | None:
    results = results_of(shown.plan, shown.runs)
    if not results:
        return None
    sentence = "Latencies are of answered requests; refused and failed ones count as late."
    if not any("measured" in by_kind for by_kind in results.values()):
        sentence += (
            " Nothing here is measured: send the trace to a server with `gearshift replay --json`, and add what it"
            " prints with `gearshift report --replay`."
        )
    return Section("How sure it is", sentence, [results_table(results), of_chart(latency_chart(shown), Below)])


def _assumed(shown: Shown) -> Section:
    bodies: list[Body] = [plan_facts(shown.plan, shown.assumed)]
    if shown.warnings:
        bodies.append(Below("Doubts about the profile", "", [Bullets(shown.warnings)]))
    if (run_times := run_times_chart(shown)) is not None:
        bodies += [of_chart(run_times, Below), _models_table(shown)]
    return Section("What was assumed", "Predictions hold for this traffic, these models and this machine.", bodies)


def _models_table(shown: Shown) -> Table:
    rows = [
        (
            curve.model,
            percent(accuracy),
            milliseconds(curve.median_s[0] / curve.batch_sizes[0]),
            f"{curve.batch_sizes[-1]}",
            milliseconds(curve.median_s[-1] / curve.batch_sizes[-1]),
            f"{curve.memory_bytes / 2**20:,.0f} MiB" if curve.memory_bytes else "unknown",
            f"{curve.device_kind} x{curve.cores}",
        )
        for curve, accuracy in shown.measured
    ]
    names = ("model", "accuracy", "alone", "largest batch", "a request there", "memory", "on")
    return Table(names, rows, heads=True)


def ranges_table(ranges: Sequence[RangePoint], percentile: str) -> Table:
    pooled = ("cores",) if any(r.cores for r in ranges) else ()
    rows = [
        [r.gear, load_in_words(r.load.from_, r.load.to), r.cascade, *_predicted(r.predicted, r.at_qps)]
        + [r.cores for _ in pooled]
        for r in ranges
    ]
    return Table(("gear", "requests/s", "cascade", "accuracy", percentile, "late", *pooled), rows, text=("cascade",))


def _predicted(found: GearPrediction | None, at_qps: float | None = None) -> list[str]:
    """Accuracy, latency and the share late; the load, where it is not the range's upper end."""
    if found is None:
        return ["", "", ""]
    elsewhere = "" if at_qps is None else f" at {digits(at_qps)}/s"
    return [percent(found.accuracy), f"{milliseconds(found.latency_p95_s)}{elsewhere}", percent(found.share_late)]


def _gears_table(pipeline: PipelinePlan) -> Table:
    gears = [(g.load_range, str(g.cascade)) for g in pipeline.gears]
    rows = [(f"{n}", load_in_words(load.from_, load.to), cascade) for n, (load, cascade) in enumerate(gears)]
    return Table(("gear", "requests/s", "cascade"), rows, text=("cascade",))


# Graphs, and several pipelines ------------------------------------------------------------------


def pipelines_sections(plan: GearPlan, each: Sequence[Shown]) -> list[Section | None]:
    """The graph of each pipeline, its gears, runs and time; without any run there are no numbers of one."""
    sections = [_promised(plan, each), of_chart(devices_chart(plan))]
    for number, shown in enumerate(each, start=1):
        name, flow, gears = shown.name, shown.flow, _of_nodes(shown.pipeline)
        sections.append(_graph(shown))
        if flow is not None:
            sections.append(Section(f"Nodes of {name}", "Shares of answers and of device time.", [_nodes_table(flow)]))
        sections.append(Section(f"Gears of {name}", _gears_sentence(shown.pipeline), [gears]))
        for chart in filter(None, (loads_chart(shown), *charts_of(shown), latency_chart(shown))):
            of_this = replace(chart, id=f"{chart.id}-{number}", title=f"{chart.title}: {name}")
            sections.append(of_chart(of_this))
    sentence = "Its objectives, its inputs, and the models on its devices."
    return [*sections, Section("The plan", sentence, [plan_facts(plan)])]


def _promised(plan: GearPlan, each: Sequence[Shown]) -> Section | None:
    """The figures of the plan, beside other devices and one model alone; of several pipelines in a table."""
    results = results_of(plan, [run for shown in each for run in shown.runs])
    if not results:
        return None
    asked = {shown.name: objective_in_words(shown.pipeline) for shown in each}
    words = "; ".join(f"{name}: {words}" for name, words in asked.items()) + ". All at once"
    sentence = f"Asked for: {asked[plan.name] if len(each) == 1 else words}."
    sentence += " Latencies are of answered requests; refused and failed ones count as late."
    sentence += "".join(f" {told}." for told in refinement_in_words(plan))
    bodies, cost, only = list[Body](), cost_tiles(plan), each[0] if len(each) == 1 else None
    if only and (result := results.get(only.name, {}).get("predicted")):
        bodies.append(Tiles(figures_of(only, result)))
    elif cost:
        bodies.append(Tiles([("devices", str(len(plan.hardware.devices)), ""), *cost]))
    if not bodies or len(results) > 1 or any(len(kinds) > 1 for kinds in results.values()):
        bodies.append(results_table(results))
    if only and only.name in plan.predictions:
        bodies.append(costs_below(only, plan.predictions[only.name]))
    for shown in each:
        own = results.get(shown.name, {}).get("predicted")
        of = "" if only else f" in {shown.name}"
        bodies.append(alone_below(own, shown.alone, right="accuracy", time="p95", of=of))
    return Section(PROMISED, sentence, bodies)


def _graph(shown: Shown) -> Section:
    sentence = "An edge says its condition, and how many times a request it is taken; the bar is the share of time."
    if shown.flow is not None and shown.flow.share_of_busy < ALL:
        sentence += f" The pipeline takes {percent(shown.flow.share_of_busy)} of the time for which devices are busy."
    return Section(f"The graph of {shown.name}", sentence, [graph_svg(shown.name, shown.pipeline, shown.flow)])


def _nodes_table(flow: PipelineFlow) -> Table:
    rows = [
        (node, found.operator, digits(found.items), _answered(found.answered), percent(found.share_of_time))
        for node, found in flow.nodes.items()
    ]
    columns = ("node", "operator", "items a request", "answered by", "share of time")
    return Table(columns, rows, text=("node", "operator", "answered by"))


def _answered(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{model} {percent(share)}" for model, share in shares.items())


def _of_nodes(pipeline: PipelinePlan) -> Table:
    """The cascades of the nodes whose models differ, by gear; of all nodes where none do."""
    nodes = _choosing(pipeline) or list(pipeline.nodes)
    rows = [
        [f"{n}", load_in_words(gear.load_range.from_, gear.load_range.to)]
        + [" | ".join(map(str, gear.cascades[node])) for node in nodes]
        + _predicted(gear.predicted)
        for n, gear in enumerate(pipeline.gears)
    ]
    columns = ("gear", "requests/s", *nodes, "accuracy", percentile_name(pipeline.objective), "late")
    return Table(columns, rows, text=nodes)


def _choosing(pipeline: PipelinePlan) -> list[str]:
    """The nodes that have several models in a gear, or others in another gear."""
    models = {
        node: {model for gear in pipeline.gears for cascade in gear.cascades[node] for model in cascade.models}
        for node in pipeline.nodes
    }
    return [node for node, of_node in models.items() if len(of_node) > 1]


def _gears_sentence(pipeline: PipelinePlan) -> str:
    choosing, sentence = _choosing(pipeline), "The cascade of each node in each load range."
    rest = [node for node in pipeline.nodes if node not in choosing]
    if not choosing or not rest:
        return sentence
    if len(rest) == 1:
        return f"{sentence} {rest[0]} has one model in all gears."
    return f"{sentence} {' and '.join(rest)} have one model each in all gears."
