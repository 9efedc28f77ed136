"""The report as one HTML file that needs nothing else: no network, no fonts, no other files."""

import html
from importlib import resources
from pathlib import Path

import msgspec
import numpy as np

from gearshift.files import write_atomically
from gearshift.reporting.charts import Chart, charts_of
from gearshift.reporting.content import ReportContent
from gearshift.reporting.tables import gears_table, plan_facts, ranges_table, summary_table


def write_report(path: Path, content: ReportContent) -> None:
    """Write the report to `path`, whole or not at all; raises `InvalidInput` where that is impossible."""
    write_atomically(path, page_of(content).encode())


def page_of(content: ReportContent) -> str:
    """The report as HTML; Plotly's script is inside, once, where there are charts."""
    charts = charts_of(content)
    title = html.escape(content.title)
    note = f"<p>{html.escape(content.note)}</p>" if content.note else ""
    sections = [_summary(content), *(_chart(chart, content) for chart in charts), _plan(content)]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{_file("page.css")}</style>
</head>
<body>
<header><h1>{title}</h1>{note}</header>
<main>
{"".join(section for section in sections if section)}</main>
<footer>Made by Gearshift. This page is complete in itself and loads nothing.</footer>
{_scripts(charts)}</body>
</html>
"""


def _summary(content: ReportContent) -> str:
    table = summary_table(content)
    if not table:
        return ""
    objective = "" if content.slo_s is None else f" within the SLO of {content.slo_s * 1e3:.4g} ms"
    sentence = (
        f"Latencies are of answered requests; refused and failed ones count as late; goodput is answers{objective} "
        "per second."
    )
    return _section("Summary", sentence, table)


def _chart(chart: Chart, content: ReportContent) -> str:
    label = html.escape(chart.title)
    body = f'<div id="{chart.id}" role="img" aria-label="{label}" style="height:{chart.height}px"></div>'
    if chart.id == "ranges":
        body += f"<details><summary>All load ranges</summary>{ranges_table(content.ranges)}</details>"
    return _section(chart.title, chart.explanation, body)


def _plan(content: ReportContent) -> str:
    if content.plan is None:
        return ""
    body = plan_facts(content.plan)
    if not content.ranges:
        for name, operator in content.plan.operators.items():
            table = gears_table(operator)
            body += f"<details open><summary>Gears of {html.escape(name)}</summary>{table}</details>"
    return _section("The plan", "What it was made from, for whom, and what it places where.", body)


def _section(title: str, sentence: str, body: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2><p>{html.escape(sentence)}</p>{body}</section>\n"


def _scripts(charts: list[Chart]) -> str:
    if not charts:
        return ""
    plotly = resources.files("plotly").joinpath("package_data/plotly.min.js").read_text("utf-8")
    plotly = plotly.replace("</script", "<\\/script")
    figures = msgspec.json.encode({chart.id: chart.figure for chart in charts}, enc_hook=np.generic.item)
    return (
        f"<script>{plotly}</script>\n"
        f'<script type="application/json" id="figures">{_inert(figures.decode())}</script>\n'
        f"<script>\n{_file('page.js')}</script>\n"
    )


def _inert(json: str) -> str:
    """JSON that cannot end the script element that it stands in."""
    return json.replace("<", "\\u003c")


def _file(name: str) -> str:
    return resources.files("gearshift.reporting").joinpath(name).read_text("utf-8")
