"""The page about a plan: a summary, the charts of `charts.py`, and what the plan was made from."""

import html
from pathlib import Path

from gearshift.reporting.charts import charts_of
from gearshift.reporting.content import ReportContent
from gearshift.reporting.figures import Chart
from gearshift.reporting.html_tables import gears_table, plan_facts, ranges_table, summary_table
from gearshift.reporting.page import chart_place, html_page, section
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
        for name, operator in content.plan.pipelines.items():
            table = gears_table(operator)
            body += f"<details open><summary>Gears of {html.escape(name)}</summary>{table}</details>"
    return section("The plan", "Its objective, its inputs, and the models that it places on devices.", body)
