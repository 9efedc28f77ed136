"""A page as one HTML file that needs no network, fonts or other files, made from parts by templates.

A content security policy in the page allows only its own script, and nothing to be fetched or
sent. Whatever a part holds is escaped.
"""

import base64
import re
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from typing import NamedTuple

import msgspec
from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from gearshift.reporting.drawing.charts import Chart


class Part(msgspec.Struct, frozen=True):
    """Something on a page, drawn by the macro of its name in `parts.html`."""

    def __html__(self) -> str:
        macros = _templates().get_template("parts.html").module
        return str(getattr(macros, type(self).__name__.lower())(self))


Body = Part | Chart | Markup | None


class Section(Part, frozen=True):
    """A card with a heading, a sentence below it, and its content; what is None in it is left out."""

    title: str
    sentence: str = ""
    bodies: Sequence[Body] = ()


class Below(Section, frozen=True):
    """A smaller heading within a section."""


class Folded(Section, frozen=True):
    """What a click on the title unfolds."""


class Bullets(Part, frozen=True):
    sentences: Sequence[str]


class Tiles(Part, frozen=True):
    """Large figures: a name, the figure, and a few smaller words below it."""

    figures: Sequence[tuple[str, str, str]]


class Facts(Part, frozen=True):
    """Small facts by name."""

    items: Sequence[tuple[str, str]]


class Wide(NamedTuple):
    """A cell of words over several columns."""

    text: str
    columns: int


class Shaded(NamedTuple):
    """A cell on ground that is coloured to `shade` per cent."""

    text: str
    shade: int


class Table(Part, frozen=True):
    """Rows below the names of their columns; columns in `text` are words, others are figures.

    With `heads` rows begin with their name; that of the name `own` is marked. Columns of `even`
    tables are as wide as each other.
    """

    names: Sequence[str]
    rows: Sequence[Sequence[str | Wide | Shaded]]
    text: Sequence[str] = ()
    heads: bool = False
    own: str | None = None
    even: bool = False


class Results(Part, frozen=True):
    """Figures of systems: for each its name, and rows of a kind, such as "measured", with their cells."""

    names: Sequence[str]
    systems: Sequence[tuple[str, Sequence[tuple[str, Sequence[str]]]]]


def html_page(title: str, note: str, sections: Sequence[Section | None]) -> str:
    templates, pointed = _templates(), {name: s for chart in _charts(sections) for name, s in chart.pointed.items()}
    assert templates.loader is not None
    script = templates.loader.get_source(templates, "page.js")[0] if pointed else ""
    digest = base64.b64encode(sha256(f"\n{script}".encode()).digest()).decode()
    return templates.get_template("page.html").render(
        title=title,
        note=note,
        sections=sections,
        allowed=f"sha256-{digest}" if script else "none",
        script=Markup(f"\n{script}"),
        figures=Markup(_inert(msgspec.json.encode(pointed).decode())) if pointed else "",
    )


def of_chart(chart: Chart | None, kind: type[Section] = Section) -> Section | None:
    """A chart under its title and its sentence."""
    return None if chart is None else kind(chart.title, chart.explanation, (chart,))


def _charts(bodies: Sequence[Body]) -> Iterator[Chart]:
    for body in bodies:
        if isinstance(body, Chart):
            yield body
        elif isinstance(body, Section):
            yield from _charts(body.bodies)


@cache
def _templates() -> Environment:
    made = Environment(loader=PackageLoader("gearshift.reporting"), autoescape=True, trim_blocks=True)
    made.filters["code"] = _with_code
    return made


def _with_code(sentence: str) -> Markup:
    """Words between backticks are code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(sentence))))


def _inert(json: str) -> str:
    """Escape JSON so that it cannot end the script element around it."""
    return json.replace("<", "\\u003c")
