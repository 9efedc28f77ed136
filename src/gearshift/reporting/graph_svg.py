"""A pipeline's graph as SVG: nodes from left to right, each behind all that lead to it."""

import html
from dataclasses import dataclass
from graphlib import TopologicalSorter

from markupsafe import Markup

from gearshift.gear import PipelinePlan
from gearshift.pipeline import Node
from gearshift.simulator.flow import EdgeFlow, PipelineFlow, in_words
from gearshift.support.numbers import digits, percent

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 190, 101, 110, 36, 12
LONGEST, LONGEST_OF_EDGE = 27, 18
"""Letters that fit in a box, and between two."""


@dataclass(frozen=True, slots=True)
class Box:
    """The upper left corner of a node."""

    x: int
    y: int


def graph_svg(name: str, pipeline: PipelinePlan, flow: PipelineFlow | None) -> Markup:
    """Nodes with their operator, items a request and share of time; edges with condition and rows a request.

    Without a run, `flow`, there are no numbers.
    """
    boxes = places(pipeline)
    width = max(box.x for box in boxes.values()) + WIDTH + MARGIN
    height = max(box.y for box in boxes.values()) + HEIGHT + MARGIN
    rows = {} if flow is None else {(edge.from_, edge.to): edge for edge in flow.edges}
    edges = "".join(
        _edge(boxes[e.from_], boxes[e.to], in_words(e.when), rows.get((e.from_, e.to))) for e in pipeline.edges
    )
    nodes = "".join(_node(node, pipeline.nodes[node], box, flow, pipeline.output) for node, box in boxes.items())
    marker = (
        f'<marker id="arrow-{html.escape(name)}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0,0L8,4L0,8z" fill="currentColor"/></marker>'
    )
    edges = edges.replace("url(#arrow)", f"url(#arrow-{html.escape(name)})")
    return Markup(
        f'<div class="scroll"><svg role="img" aria-label="The graph of {html.escape(name)}" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="12" '
        f'fill="currentColor"><defs>{marker}</defs>{edges}{nodes}</svg></div>'
    )


def places(pipeline: PipelinePlan) -> dict[str, Box]:
    """Columns by the longest way from an entry; nodes of a column below each other, in the plan's order."""
    before: dict[str, list[str]] = {name: [] for name in pipeline.nodes}
    for edge in pipeline.edges:
        before[edge.to].append(edge.from_)
    column: dict[str, int] = {}
    for name in TopologicalSorter(before).static_order():
        column[name] = 1 + max((column[each] for each in before[name]), default=-1)
    taken: dict[int, int] = {}
    boxes = {}
    for name in pipeline.nodes:
        row = taken.get(column[name], 0)
        taken[column[name]] = row + 1
        boxes[name] = Box(MARGIN + column[name] * (WIDTH + GAP_X), MARGIN + row * (HEIGHT + GAP_Y))
    return boxes


def _node(name: str, node: Node, box: Box, flow: PipelineFlow | None, output: str) -> str:
    lines = [(name + (" (answer)" if name == output else ""), "bold")]
    if node.operator != name:
        lines.append((node.operator, "normal"))
    if node.fan_out is not None:
        lines.append((f"for each row of {node.fan_out.per_row}", "normal"))
    if node.fan_in:
        lines.append(("for all rows", "normal"))
    share = 0.0
    if flow is not None:
        found = flow.nodes[name]
        share, items = found.share_of_time, digits(found.items)
        lines.append((f"{items} item{'' if items == '1' else 's'} a request", "normal"))
        lines.append((f"{percent(share)} of the time", "normal"))
    text = "".join(
        f'<text x="{box.x + 10}" y="{box.y + 20 + 17 * i}" font-weight="{weight}">{_short(line, LONGEST)}</text>'
        for i, (line, weight) in enumerate(lines)
    )
    return (
        f'<rect x="{box.x}" y="{box.y}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="none" stroke="currentColor"/>'
        f'<rect x="{box.x}" y="{box.y + HEIGHT - 5}" width="{share * WIDTH:.1f}" height="5"/>{text}'
    )


def _edge(start: Box, end: Box, when: str, flow: EdgeFlow | None) -> str:
    x1, y1, x2, y2 = start.x + WIDTH, start.y + HEIGHT / 2, end.x, end.y + HEIGHT / 2
    label = [] if not when else [when]
    if flow is not None:
        label.append(f"{digits(flow.rows)} a request")
    middle = (x1 + x2) / 2
    text = "".join(
        f'<text x="{middle:g}" y="{(y1 + y2) / 2 - 8 - 14 * (len(label) - 1 - i):g}" text-anchor="middle" '
        f'font-size="11">{_short(line, LONGEST_OF_EDGE)}</text>'
        for i, line in enumerate(label)
    )
    path = f"M{x1},{y1:g}C{middle:g},{y1:g} {middle:g},{y2:g} {x2},{y2:g}"
    return f'<path d="{path}" fill="none" stroke="currentColor" marker-end="url(#arrow)"/>{text}'


def _short(line: str, longest: int) -> str:
    """As SVG; what is cut off shows where one points at it."""
    if len(line) <= longest:
        return html.escape(line)
    return f"{html.escape(line[: longest - 1])}…<title>{html.escape(line)}</title>"
