"""A page as one HTML file that needs no network, fonts or other files.

A content security policy in the page allows only its own script, and nothing to be fetched or
sent.
"""

import base64
import html
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib import resources

import msgspec

from gearshift.reporting.drawing.charts import Chart, chart_place


def html_page(title: str, note: str, sections: Sequence[str], charts: Sequence[Chart]) -> str:
    """The page; `charts` are those that its sections show."""
    title = html.escape(title)
    note = f"<p>{html.escape(note)}</p>" if note else ""
    script, data = _script(charts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{_file("page.css")}</style>
</head>
<body>
<header><h1>{title}</h1>{note}</header>
<main>
{"".join(part for part in sections if part)}</main>
<footer>Made by Gearshift. This page is complete in itself and loads nothing.</footer>
{data}{f"<script>{script}</script>" if script else ""}
</body>
</html>
"""


def section(title: str, sentence: str, *bodies: str) -> str:
    """A card with a heading, a sentence below it, and its content."""
    return f"<section><h2>{html.escape(title)}</h2>{_paragraph(sentence)}{''.join(bodies)}</section>\n"


def below(title: str, sentence: str, body: str) -> str:
    """A smaller heading within a section."""
    return f"<h3>{html.escape(title)}</h3>{_paragraph(sentence)}{body}"


def _paragraph(sentence: str) -> str:
    """Words between backticks are code."""
    shown = re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(sentence))
    return f"<p>{shown}</p>" if sentence else ""


def chart_section(chart: Chart) -> str:
    return section(chart.title, chart.explanation, chart_place(chart))


def chart_below(chart: Chart) -> str:
    return below(chart.title, chart.explanation, chart_place(chart))


def html_table(names: Sequence[str], rows: str, *, text: Sequence[str] = ()) -> str:
    """A table of rows that are HTML already; columns in `text` are words, others are figures."""
    head = "".join(f"<th class='text'>{name}</th>" if name in text else f"<th>{name}</th>" for name in names)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def tiles(facts: Iterable[tuple[str, str, str]]) -> str:
    """Large figures: a name, the figure, and a few smaller words below it."""
    items = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(figure)}<small>{html.escape(more)}</small></dd></div>"
        for name, figure, more in facts
    )
    return f'<dl class="tiles">{items}</dl>'


def facts(items: Iterable[tuple[str, str]]) -> str:
    """Small facts by name."""
    shown = "".join(f"<div><dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd></div>" for k, v in items)
    return f'<dl class="facts">{shown}</dl>'


def _policy(script: str) -> str:
    allowed = f"'sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}'" if script else "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _script(charts: Sequence[Chart]) -> tuple[str, str]:
    if not charts:
        return "", ""
    pointed = {name: series for chart in charts for name, series in chart.pointed.items()}
    data = f'<script type="application/json" id="figures">{_inert(msgspec.json.encode(pointed).decode())}</script>\n'
    return f"\n{_file('page.js')}", data


def _inert(json: str) -> str:
    """Escape JSON so that it cannot end the script element around it."""
    return json.replace("<", "\\u003c")


def _file(name: str) -> str:
    return resources.files("gearshift.reporting.drawing").joinpath(name).read_text("utf-8")
