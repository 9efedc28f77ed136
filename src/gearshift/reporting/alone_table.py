"""A plan beside one model alone on the same devices."""

import html
from collections.abc import Sequence

from gearshift.planner.one_alone import OneAlone
from gearshift.reporting.drawing.page import below, html_table
from gearshift.result import ServingResult
from gearshift.support.numbers import milliseconds, percent

SENTENCE = "The same devices and the same traffic, with one model in place of cascades. All of it is predicted."


def alone_below(result: ServingResult | None, alone: Sequence[OneAlone], *, right: str, time: str, of: str = "") -> str:
    """Empty without such models; `right` and `time` name the columns, `of` the pipeline among several."""
    if result is None or not alone:
        return ""
    rows = _row("this plan", result, own=True) + "".join(
        _row(one.name, one.predicted)
        if one.predicted is not None
        else f"<tr><th scope='row'>{html.escape(one.name)}</th>"
        f"<td class='text' colspan='3'>{html.escape(one.reason)}</td></tr>"
        for one in alone
    )
    return below(f"One model alone{of}", SENTENCE, html_table(("", right, time, "late"), rows))


def _row(name: str, result: ServingResult, *, own: bool = False) -> str:
    cells = percent(result.accuracy), milliseconds(result.latency_s.p95), percent(result.share_late)
    shown = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"<tr{' class=own' if own else ''}><th scope='row'>{html.escape(name)}</th>{shown}</tr>"
