"""The page about a plan: a summary, the charts of `charts.py`, and what the plan was made from."""

import html
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gearshift.gear import GearPlan, PipelinePlan, SourceFile
from gearshift.reporting.charts import charts_of
from gearshift.reporting.content import Kind, RangePoint, ReportContent
from gearshift.reporting.figures import Chart
from gearshift.reporting.headline import cost_in_words
from gearshift.reporting.page import chart_place, digits, html_page, html_table, milliseconds, section
from gearshift.result import ServingResult
from gearshift.support.files import write_atomically


def write_report(path: Path, content: ReportContent) -> None:
    write_atomically(path, page_of(content).encode())


def page_of(content: ReportContent) -> str:
    charts = charts_of(content)
    sections = [_summary(content), *(_chart(chart, content) for chart in charts), _plan(content)]
    return html_page(content.title, content.note, sections, charts)


def _summary(content: ReportContent) -> str:
    table = summary_table(content)
    if not table:
        return ""
    objective = "" if content.slo_s is None else f" within the SLO of {content.slo_s * 1e3:.4g} ms"
    sentence = (
        f"Latencies are of answered requests; refused and failed ones count as late; goodput is answers{objective} "
        "per second."
    )
    return section("Summary", sentence, table)


def _chart(chart: Chart, content: ReportContent) -> str:
    body = chart_place(chart)
    if chart.id == "ranges":
        body += (
            f"<details><summary>All load ranges</summary>{ranges_table(content.ranges, content.percentile)}</details>"
        )
    return section(chart.title, chart.explanation, body)


def _plan(content: ReportContent) -> str:
    if content.plan is None:
        return ""
    body = plan_facts(content.plan)
    if not content.ranges:
        for name, pipeline in content.plan.pipelines.items():
            table = gears_table(pipeline)
            body += f"<details open><summary>Gears of {html.escape(name)}</summary>{table}</details>"
    return section("The plan", "Its objective, its inputs, and the models that it places on devices.", body)


_FIGURES: tuple[tuple[str, Callable[[ServingResult], str]], ...] = (
    ("accuracy", lambda r: f"{r.accuracy:.2%}"),
    ("p50 (ms)", lambda r: digits(r.latency_s.p50 * 1e3)),
    ("p95 (ms)", lambda r: digits(r.latency_s.p95 * 1e3)),
    ("p99 (ms)", lambda r: digits(r.latency_s.p99 * 1e3)),
    ("share late", lambda r: f"{r.share_late:.2%}"),
    ("goodput (/s)", lambda r: digits(r.goodput_qps)),
)


def summary_table(content: ReportContent) -> str:
    results = _results(content)
    return results_rows(results) if results else ""


def results_rows(results: Mapping[str, Mapping[Kind, ServingResult]]) -> str:
    bodies = "".join(_system_rows(name, by_kind) for name, by_kind in results.items())
    head = "".join(f"<th>{name}</th>" for name, _ in _FIGURES)
    return (
        '<div class="scroll"><table class="summary"><thead><tr><th>system</th><th></th>'
        f"{head}</tr></thead>{bodies}</table></div>"
    )


def ranges_table(ranges: Sequence[RangePoint], percentile: str = "p95") -> str:
    pooled = any(r.cores for r in ranges)
    rows = "".join(
        f"<tr><td>{r.gear or i}</td><td>{load_in_words(r.from_qps, r.to_qps)}</td>"
        f"<td class='text'>{html.escape(r.cascade)}</td><td>{r.accuracy:.2%}</td>"
        f"<td>{milliseconds(r.p95_s)}{_elsewhere(r)}</td><td>{r.share_late:.2%}</td>"
        f"{f'<td>{html.escape(str(r.cores))}</td>' if pooled else ''}</tr>"
        for i, r in enumerate(ranges)
    )
    columns = ("gear", "requests/s", "cascade", "accuracy", percentile, "share late", *(("cores",) if pooled else ()))
    return html_table(columns, rows, text=("cascade",))


def _elsewhere(row: RangePoint) -> str:
    return "" if row.at_qps is None else f" at {row.at_qps:.4g}/s"


def gears_table(pipeline: PipelinePlan) -> str:
    rows = "".join(
        f"<tr><td>{i}</td><td>{load_in_words(g.load_range.from_, g.load_range.to)}</td>"
        f"<td class='text'>{html.escape(str(g.cascade))}</td></tr>"
        for i, g in enumerate(pipeline.gears)
    )
    return html_table(("gear", "requests/s", "cascade"), rows, text=("cascade",))


def plan_facts(plan: GearPlan) -> str:
    copies = Counter(replica.model for replica in plan.placement.replicas)
    kinds = Counter(device.kind for device in plan.hardware.devices)
    facts = [
        ("planner", plan.planner + (" (search was interrupted: unfinished)" if plan.unfinished else "")),
        *((f"objective of {name}", _objective(pipeline)) for name, pipeline in plan.pipelines.items()),
        ("devices", ", ".join(f"{n} x {kind}" for kind, n in kinds.items()) + _pool(plan)),
        *((("price", cost_in_words(plan)),) if plan.hardware.pool_cores is None else ()),
        ("replicas", ", ".join(f"{n} x {model}" for model, n in copies.items())),
        *_sources("profile", plan.profiles),
        *_sources("trace", plan.traces),
        ("seed", str(plan.seed)),
    ]
    items = "".join(f"<div><dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd></div>" for k, v in facts)
    return f'<dl class="facts">{items}</dl>'


def _sources(kind: str, sources: Mapping[str, SourceFile]) -> list[tuple[str, str]]:
    return [
        (kind if len(sources) == 1 else f"{kind} of {name}", f"{source.path} ({source.sha256[:12]})")
        for name, source in sources.items()
    ]


def _pool(plan: GearPlan) -> str:
    if plan.hardware.pool_cores is None:
        return ""
    held = [f"{r.core_s:,.1f} core-seconds held" for r in plan.predictions.values() if r.core_s is not None]
    return ", ".join([f" that share {plan.hardware.pool_cores} cores", *held])


def _results(content: ReportContent) -> dict[str, dict[Kind, ServingResult]]:
    results: dict[str, dict[Kind, ServingResult]] = {}
    for run in content.runs:
        results.setdefault(run.name, {})[run.kind] = run.result
    if not results and content.plan:
        results = {name: {"predicted": result} for name, result in content.plan.predictions.items()}
    return results


def _system_rows(name: str, by_kind: Mapping[Kind, ServingResult]) -> str:
    known: list[Kind] = [kind for kind in ("predicted", "measured") if kind in by_kind]
    title = f'<th scope="rowgroup" rowspan="{len(known)}">{html.escape(name)}</th>'
    rows: list[str] = []
    for kind in known:
        cells = "".join(f"<td>{show(by_kind[kind])}</td>" for _, show in _FIGURES)
        rows.append(f'<tr class="{kind}">{title if not rows else ""}<td class="kind">{kind}</td>{cells}</tr>')
    return f"<tbody>{''.join(rows)}</tbody>"


def load_in_words(low: float, high: float | None) -> str:
    return f"{low:,.4g} and more" if high is None else f"{low:,.4g} to {high:,.4g}"


def _objective(pipeline: PipelinePlan) -> str:
    objective, parts = pipeline.objective, []
    if objective.latency_s is not None:
        parts.append(f"p{objective.percentile * 100:g} within {milliseconds(objective.latency_s)}")
    if objective.accuracy is not None:
        parts.append(f"accuracy of at least {objective.accuracy:.2%}")
    scope = "in every load range" if objective.scope == "every-range" else "over the whole trace"
    return f"{' and '.join(parts) or 'none'}, {scope}"
