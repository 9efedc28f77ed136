"""A page as one HTML file that needs no network, fonts or other files.

A content security policy in the page allows only its own scripts, and nothing to be fetched or
sent.
"""

import base64
import html
from collections.abc import Sequence
from hashlib import sha256
from importlib import resources

import msgspec
import numpy as np

from gearshift.reporting.figures import Chart


def html_page(title: str, note: str, sections: Sequence[str], charts: Sequence[Chart]) -> str:
    title = html.escape(title)
    note = f"<p>{html.escape(note)}</p>" if note else ""
    scripts, data = _scripts(charts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">
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
{data}{"".join(map(_script, scripts))}</body>
</html>
"""


def chart_place(chart: Chart) -> str:
    label = html.escape(chart.title)
    return f'<div id="{chart.id}" role="img" aria-label="{label}" style="height:{chart.height}px"></div>'


def section(title: str, sentence: str, body: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2><p>{html.escape(sentence)}</p>{body}</section>\n"


def html_table(names: Sequence[str], rows: str, *, text: Sequence[str] = ()) -> str:
    head = "".join(f"<th class='text'>{name}</th>" if name in text else f"<th>{name}</th>" for name in names)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def milliseconds(seconds: float) -> str:
    return f"{digits(seconds * 1e3)} ms"


def digits(value: float) -> str:
    """Three digits, or all those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _script(content: str) -> str:
    return f"<script>{content}</script>\n"


def _policy(scripts: Sequence[str]) -> str:
    """The content security policy for these scripts; Plotly needs inline styles."""
    hashes = (base64.b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _scripts(charts: Sequence[Chart]) -> tuple[list[str], str]:
    if not charts:
        return [], ""
    plotly = resources.files("plotly").joinpath("package_data/plotly.min.js").read_text("utf-8")
    plotly = plotly.replace("</script", "<\\/script")
    figures = msgspec.json.encode({chart.id: chart.figure for chart in charts}, enc_hook=np.generic.item)
    data = f'<script type="application/json" id="figures">{_inert(figures.decode())}</script>\n'
    return [plotly, f"\n{_file('page.js')}"], data


def _inert(json: str) -> str:
    """Escape JSON so that it cannot end the script element around it."""
    return json.replace("<", "\\u003c")


def _file(name: str) -> str:
    return resources.files("gearshift.reporting").joinpath(name).read_text("utf-8")
