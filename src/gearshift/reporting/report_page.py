"""The page about a plan, for a reader who was not there: a question a section."""

import html
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import UNSET

from gearshift.gear import GearPlan, OtherDevices, PipelinePlan, SourceFile
from gearshift.plans.prices import price_per_hour
from gearshift.reporting.charts import cascades_chart, devices_chart, loads_chart, run_times_chart
from gearshift.reporting.content import RangePoint, ReportContent
from gearshift.reporting.cost import beside_own, money_or_nothing, per_million
from gearshift.reporting.drawing.charts import Chart
from gearshift.reporting.drawing.page import (
    below,
    chart_below,
    chart_section,
    facts,
    html_page,
    html_table,
    section,
    tiles,
)
from gearshift.reporting.headline import NAMES, cost_in_words, counted, percentile_name
from gearshift.reporting.run_charts import day_chart, latency_chart
from gearshift.reporting.runs import Kind
from gearshift.result import ServingResult
from gearshift.support.files import write_atomically
from gearshift.support.numbers import between_times, digits, load_in_words, milliseconds, money, percent


def write_report(path: Path, content: ReportContent) -> None:
    write_atomically(path, page_of(content).encode())


def page_of(content: ReportContent) -> str:
    works = [c for c in (loads_chart(content), cascades_chart(content)) if c is not None]
    devices, run_times = devices_chart(content), run_times_chart(content)
    day, tail = day_chart(content), latency_chart(content)
    sections = [
        _promised(content, devices),
        _works(content, works),
        "" if day is None else chart_section(day),
        _sure(content, tail),
        _assumed(content, run_times),
    ]
    charts = [*works, *(chart for chart in (devices, day, tail, run_times) if chart is not None)]
    return html_page(content.title, content.note, sections, charts)


# What is promised -------------------------------------------------------------------------------


def _promised(content: ReportContent, devices: Chart | None) -> str:
    if content.plan is None:
        return ""
    plan, bodies = content.plan, list[str]()
    sentence = "; ".join(objective_in_words(pipeline) for pipeline in plan.pipelines.values())
    result = plan.predictions.get(plan.name) if len(plan.pipelines) == 1 else None
    if result is not None:
        bodies.append(tiles(figures_of(content, plan, result)))
        bodies.append(costs_below(content, plan, result))
        if devices is not None:
            bodies.append(chart_below(devices))
    return section("What is promised", f"Asked for: {sentence}. Predicted by simulation of the trace.", *bodies)


def figures_of(content: ReportContent, plan: GearPlan, result: ServingResult) -> list[tuple[str, str, str]]:
    low, high = result.accuracy_interval
    right = "accuracy" if content.labelled else "agreement"
    name = content.percentile if content.percentile in ("p50", "p95", "p99") else "p95"
    latency = {"p50": result.latency_s.p50, "p95": result.latency_s.p95, "p99": result.latency_s.p99}[name]
    between = result.latency_p95_interval_s if name == "p95" else None
    spread = "" if between is None else f"{_between(*between)} in several runs; "
    figures = [
        (right, percent(result.accuracy), f"{percent(low)} to {percent(high)} (95 % sure)"),
        (name, milliseconds(latency), f"{spread}{percent(result.share_late)} late"),
    ]
    if any(pipeline.refines for pipeline in plan.pipelines.values()):
        by_time = "" if result.share_by_time is UNSET else f"{percent(result.share_by_time)} are answered by time"
        figures.append(("p50", milliseconds(result.latency_s.p50), by_time))
    if plan.hardware.pool_cores is not None:
        return [("cores", f"{plan.hardware.pool_cores}", cost_in_words(plan)), *figures]
    kinds = Counter(device.kind for device in plan.hardware.devices)
    devices = ("devices", f"{len(plan.hardware.devices)}", ", ".join(f"{n} x {kind}" for kind, n in kinds.items()))
    return [devices, *cost_tiles(plan), *figures]


def _between(least_s: float, most_s: float) -> str:
    least, most = milliseconds(least_s), milliseconds(most_s)
    return most if least == most else between_times(least_s, most_s)


def cost_tiles(plan: GearPlan) -> list[tuple[str, str, str]]:
    """The cost of an hour, and of a million requests, as a tile; none where it is not known."""
    price = price_per_hour(plan.hardware)
    if price is None or plan.hardware.pool_cores is not None:
        return []
    million = per_million(price, *plan.predictions.values())
    more = "" if million is None else f"{money(million)} for a million requests at this load"
    return [("an hour costs", money(price), more)]


def costs_below(content: ReportContent, plan: GearPlan, result: ServingResult) -> str:
    """The plan beside other numbers of devices and the largest model alone; nothing where none is known."""
    largest, what_if = content.largest, () if plan.what_if is UNSET else plan.what_if
    price, limit = price_per_hour(plan.hardware), content.slo_s
    if plan.hardware.pool_cores is not None or (largest is None and not what_if):
        return ""
    count = len(plan.hardware.devices)
    known = [OtherDevices(devices=count, price_per_hour=price, predicted=result), *what_if]
    priced = price is not None
    rows = [
        _cost_row(beside_own(one.devices, count), one, result, own=one.devices == count, priced=priced)
        for one in sorted(known, key=lambda one: one.devices)
    ]
    sentence = "What the same load would cost." if priced else "The same load on other devices."
    if largest is not None and largest.devices is not None:
        within = "" if limit is None else f"{content.percentile} within {milliseconds(limit)}"
        cells = [percent(largest.accuracy), within, ""]
        costs = _cost_cells(largest.price_per_hour, result) if priced else []
        rows.append(_row(f"{largest.model} alone", [f"{largest.devices}", *costs, *cells]))
        times = (largest.price_per_hour or 0.0) / price if price else 1.0
        saved = f", {digits(times)} times the cost" if times != 1.0 else ""
        needed = counted(largest.devices, "device")
        sentence = f"The largest model alone would need {needed} for the same latency at the same load{saved}."
    elif largest is not None:
        sentence = f"{largest.why[:1].upper()}{largest.why[1:]}."
    names = ("", "devices", *(("an hour", "a million requests") if priced else ()), "accuracy", "p95", "late")
    return below("What else it could be", sentence, html_table(names, "".join(rows)))


def _cost_row(name: str, one: OtherDevices, result: ServingResult, *, own: bool, priced: bool) -> str:
    found, costs = one.predicted, _cost_cells(one.price_per_hour, result) if priced else []
    if found is None:
        return (
            f"<tr><th scope='row'>{name}</th><td>{one.devices}</td>{''.join(f'<td>{cell}</td>' for cell in costs[:1])}"
            f"<td class='text' colspan='{4 if priced else 3}'>{html.escape(one.reason)}</td></tr>"
        )
    cells = [percent(found.accuracy), milliseconds(found.latency_s.p95), percent(found.share_late)]
    return _row(name, [f"{one.devices}", *costs, *cells], own=own)


def _cost_cells(price: float | None, result: ServingResult) -> list[str]:
    return [money_or_nothing(price), money_or_nothing(per_million(price, result))]


def _row(name: str, cells: Sequence[str], *, own: bool = False) -> str:
    shown = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"<tr{' class=own' if own else ''}><th scope='row'>{html.escape(name)}</th>{shown}</tr>"


# How it works -----------------------------------------------------------------------------------


def _works(content: ReportContent, charts: Sequence[Chart]) -> str:
    bodies = list(map(chart_below, charts))
    if content.ranges:
        table = ranges_table(content.ranges, content.percentile)
        bodies.insert(1, f"<details><summary>All gears as a table</summary>{table}</details>")
    elif content.plan is not None:
        for name, pipeline in content.plan.pipelines.items():
            bodies.append(below(f"Gears of {name}", "The cascade that serves each load.", gears_table(pipeline)))
    if not bodies:
        return ""
    sentence = (
        "A cascade asks a cheap model first and passes on what that is not certain of; a gear is the cascade for one "
        "range of load."
    )
    if content.plan is not None and any(pipeline.refines for pipeline in content.plan.pipelines.values()):
        sentence += (
            " This plan refines while there is time: a request that gains from it waits for a better model, and is"
            " answered with what it has when its time ends. The shares of answers are those of the simulation."
        )
    return section("How it works", sentence, *bodies)


# How sure ---------------------------------------------------------------------------------------


def _sure(content: ReportContent, tail: Chart | None) -> str:
    results = _results(content)
    if not results:
        return ""
    measured = any("measured" in by_kind for by_kind in results.values())
    sentence = "Latencies are of answered requests; refused and failed ones count as late."
    if not measured:
        sentence += (
            " Nothing here is measured: send the trace to a server with `gearshift replay --json`, and add what it"
            " prints with `gearshift report --replay`."
        )
    return section("How sure it is", sentence, results_rows(results), "" if tail is None else chart_below(tail))


_FIGURES: tuple[tuple[str, Callable[[ServingResult], str]], ...] = (
    ("requests", lambda r: f"{r.requests:,}"),
    ("accuracy", lambda r: percent(r.accuracy)),
    ("p50", lambda r: milliseconds(r.latency_s.p50)),
    ("p95", lambda r: milliseconds(r.latency_s.p95)),
    ("p99", lambda r: milliseconds(r.latency_s.p99)),
    ("late", lambda r: percent(r.share_late)),
)
_SOMETIMES: tuple[tuple[str, Callable[[ServingResult], float]], ...] = (
    ("degraded", lambda r: r.share_degraded),
    ("by time", lambda r: 0.0 if r.share_by_time is UNSET else r.share_by_time),
    ("refused", lambda r: r.share_refused),
)


def results_rows(results: Mapping[str, Mapping[Kind, ServingResult]]) -> str:
    """A table with the predicted figures of each system above the measured ones."""
    of_all = [result for by_kind in results.values() for result in by_kind.values()]
    extra = [(name, share) for name, share in _SOMETIMES if any(share(result) for result in of_all)]
    columns = [*_FIGURES, *((name, lambda r, share=share: percent(share(r))) for name, share in extra)]
    bodies = "".join(_system_rows(name, by_kind, columns) for name, by_kind in results.items())
    head = "".join(f"<th>{name}</th>" for name, _ in columns)
    return (
        '<div class="scroll"><table class="summary"><thead><tr><th>system</th><th></th>'
        f"{head}</tr></thead>{bodies}</table></div>"
    )


def _system_rows(
    name: str, by_kind: Mapping[Kind, ServingResult], columns: Sequence[tuple[str, Callable[[ServingResult], str]]]
) -> str:
    known: list[Kind] = [kind for kind in ("predicted", "measured") if kind in by_kind]
    title = f'<th scope="rowgroup" rowspan="{len(known)}">{html.escape(name)}</th>'
    rows: list[str] = []
    for kind in known:
        cells = "".join(f"<td>{show(by_kind[kind])}</td>" for _, show in columns)
        rows.append(f'<tr class="{kind}">{title if not rows else ""}<td class="kind">{kind}</td>{cells}</tr>')
    return f"<tbody>{''.join(rows)}</tbody>"


def _results(content: ReportContent) -> dict[str, dict[Kind, ServingResult]]:
    results: dict[str, dict[Kind, ServingResult]] = {}
    for run in content.runs:
        results.setdefault(run.name, {})[run.kind] = run.result
    if not results and content.plan:
        results = {name: {"predicted": result} for name, result in content.plan.predictions.items()}
    return results


# What was assumed -------------------------------------------------------------------------------


def _assumed(content: ReportContent, run_times: Chart | None) -> str:
    if content.plan is None:
        return ""
    bodies = [plan_facts(content.plan, content.assumed)]
    if content.warnings:
        listed = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in content.warnings)
        bodies.append(f"<h3>Doubts about the profile</h3><ul>{listed}</ul>")
    if run_times is not None:
        bodies += [chart_below(run_times), _models_table(content)]
    return section("What was assumed", "Predictions hold for this traffic, these models and this machine.", *bodies)


def _models_table(content: ReportContent) -> str:
    rows = "".join(
        f"<tr><th scope='row'>{html.escape(m.name)}</th><td>{percent(m.accuracy)}</td>"
        f"<td>{milliseconds(m.median_s[0] / m.batch_sizes[0])}</td><td>{m.batch_sizes[-1]}</td>"
        f"<td>{milliseconds(m.median_s[-1] / m.batch_sizes[-1])}</td><td>{_memory(m.memory_bytes)}</td>"
        f"<td>{html.escape(m.device)}</td></tr>"
        for m in content.models
    )
    names = ("model", "accuracy", "alone", "largest batch", "a request there", "memory", "on")
    return html_table(names, rows)


def _memory(memory_bytes: int) -> str:
    return f"{memory_bytes / 2**20:,.0f} MiB" if memory_bytes else "unknown"


def plan_facts(plan: GearPlan, assumed: Sequence[tuple[str, str]] = ()) -> str:
    copies = Counter(replica.model for replica in plan.placement.replicas)
    kinds, cost = Counter(device.kind for device in plan.hardware.devices), cost_in_words(plan)
    return facts(
        [
            ("planner", plan.planner + (" (search was interrupted: unfinished)" if plan.unfinished else "")),
            *((f"objective of {name}", objective_in_words(pipeline)) for name, pipeline in plan.pipelines.items()),
            ("devices", ", ".join(f"{n} x {kind}" for kind, n in kinds.items()) + _pool(plan)),
            *((("price", cost),) if cost and plan.hardware.pool_cores is None else ()),
            ("replicas", ", ".join(f"{n} x {model}" for model, n in copies.items())),
            *assumed,
            *_sources("profile", plan.profiles),
            *_sources("trace", plan.traces),
            ("seed", str(plan.seed)),
        ]
    )


def _sources(kind: str, sources: Mapping[str, SourceFile]) -> list[tuple[str, str]]:
    return [(kind if len(sources) == 1 else f"{kind} of {name}", _source(source)) for name, source in sources.items()]


def _source(source: SourceFile) -> str:
    path = source.path or "of no file"
    return f"{path} ({source.sha256[:12]})" if source.sha256 else path


def _pool(plan: GearPlan) -> str:
    if plan.hardware.pool_cores is None:
        return ""
    held = [f"{r.core_s:,.1f} core-seconds held" for r in plan.predictions.values() if r.core_s is not None]
    return ", ".join([f" that share {plan.hardware.pool_cores} cores", *held])


def objective_in_words(pipeline: PipelinePlan) -> str:
    objective, parts = pipeline.objective, []
    if objective.latency_s is not None:
        metric = "" if objective.metric in (UNSET, "latency") else f"{NAMES[objective.metric]} "
        parts.append(f"{metric}{percentile_name(objective)} within {milliseconds(objective.latency_s)}")
    if objective.median_s is not UNSET:
        parts.append(f"p50 within {milliseconds(objective.median_s)}")
    if objective.accuracy is not None:
        parts.append(f"accuracy of at least {percent(objective.accuracy)}")
    scope = "in every load range" if objective.scope == "every-range" else "over the whole trace"
    return f"{' and '.join(parts) or 'none'}, {scope}"


# Tables of gears --------------------------------------------------------------------------------


def ranges_table(ranges: Sequence[RangePoint], percentile: str = "p95") -> str:
    pooled = any(r.cores for r in ranges)
    rows = "".join(
        f"<tr><td>{r.gear or i}</td><td>{load_in_words(r.from_qps, r.to_qps)}</td>"
        f"<td class='text'>{html.escape(r.cascade)}</td><td>{percent(r.accuracy)}</td>"
        f"<td>{milliseconds(r.p95_s)}{_elsewhere(r)}</td><td>{percent(r.share_late)}</td>"
        f"{f'<td>{html.escape(str(r.cores))}</td>' if pooled else ''}</tr>"
        for i, r in enumerate(ranges)
    )
    columns = ("gear", "requests/s", "cascade", "accuracy", percentile, "late", *(("cores",) if pooled else ()))
    return html_table(columns, rows, text=("cascade",))


def _elsewhere(row: RangePoint) -> str:
    return "" if row.at_qps is None else f" at {digits(row.at_qps)}/s"


def gears_table(pipeline: PipelinePlan) -> str:
    rows = "".join(
        f"<tr><td>{i}</td><td>{load_in_words(g.load_range.from_, g.load_range.to)}</td>"
        f"<td class='text'>{html.escape(str(g.cascade))}</td></tr>"
        for i, g in enumerate(pipeline.gears)
    )
    return html_table(("gear", "requests/s", "cascade"), rows, text=("cascade",))
