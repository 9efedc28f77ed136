"""The charts of a plan: who answers at each load, its cascades, and its models' run times."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from msgspec import UNSET

from gearshift.gear import GearPlan
from gearshift.plans.prices import price_per_hour
from gearshift.profiles.profile import RunTimeCurve
from gearshift.reporting.drawing import colours, scales
from gearshift.reporting.drawing.charts import Blocks, Chart, Label, Line, Panel, Rule, dots
from gearshift.reporting.headline import counted
from gearshift.reporting.shown import CandidatePoint, RangePoint, Shown
from gearshift.result import OtherDevices
from gearshift.support.numbers import digits, load_in_words, milliseconds, money, percent

ROOM = 1.1
"""Above an objective there is room for its label."""
OPEN_END = 0.12
"""A range without upper end is drawn as wide as this share of the others."""


# How it works -----------------------------------------------------------------------------------


class Loads(NamedTuple):
    """The words for a kind's loads: `unit` stands behind a number, `time` names what the percentile is of."""

    sentence: str = "As load rises, more of the requests are answered by cheaper models, so that latency holds."
    axis: str = "load (requests/s)"
    unit: str = "/s"
    right: str = "accuracy"
    time: str = ""
    scale: Callable[[Iterable[float]], scales.Scale] = scales.linear


OF_ROWS = Loads()


def loads_chart(shown: Shown, loads: Loads = OF_ROWS) -> Chart | None:
    """The share that each model answers at each load, and the accuracy and latency that this gives."""
    ranges = shown.ranges
    if not ranges:
        return None
    last, time = ranges[-1].load.from_, f"{loads.time}{shown.percentile}"
    end = last * (1 + OPEN_END) if last else ranges[-1].at_qps or 1.0
    x, to = scales.exact(0.0, end), [end if r.load.to is None else r.load.to for r in ranges]
    from_, texts = [r.load.from_ for r in ranges], [_range_text(r, loads, time) for r in ranges]
    beyond = next((r for r in ranges if r.at_qps is not None), None)
    top = next((r.load.from_ for r in ranges if beyond is not None and r.load.from_ >= (beyond.at_qps or 0)), None)
    answered = any(r.answered for r in ranges)
    panels, rules = [_shares(shown, x, from_, to, loads.unit)] if answered else [], objective_rules(shown.slo_s)
    predicted = [r.predicted for r in ranges if r.predicted is not None]
    right, ms = [100 * one.accuracy for one in predicted], [1e3 * one.latency_p95_s for one in predicted]
    y = loads.scale([*ms, *(ROOM * rule.y for rule in rules)])
    for title, values, colour, axis, marked in (
        (f"{loads.right} (%)", right, colours.ACCURACY, scales.linear(right, zero=False, most=4, end=100), ()),
        (f"predicted {time} (ms)", ms, colours.LATENCY, y, rules),
    ):
        if len(values) == len(ranges):
            points = [(a, v, t) for a, b, v, t in zip(from_, to, values, texts, strict=True) for a in (a, b)]
            xs, ys, told = zip(*points, strict=True)
            line = Line("", xs, ys, colour, texts=told, width=2.5)
            panels.append(Panel(title, x, axis, (line,), marked, height=110, beyond=top))
    sentence = loads.sentence if len(ranges) > 1 else "The same cascade serves every load."
    if top is not None:
        sentence += f" Gears above {digits(top)} requests/s are for short peaks, and nothing is promised there."
    title = "Who answers at each load" if answered else "Accuracy and latency at each load"
    return Chart("loads", title, sentence, loads.axis, tuple(panels))


def _shares(shown: Shown, x: scales.Scale, from_: list[float], to: list[float], unit: str) -> Panel:
    base, marks = np.zeros(len(from_)), []
    where = [f"{load_in_words(r.load.from_, r.load.to)}{unit}\n{r.cascade}" for r in shown.ranges]
    for model, colour in colours.of_models(shown.models).items():
        share = np.array([100 * r.answered.get(model, 0.0) for r in shown.ranges])
        some = np.flatnonzero(share > 0)
        if len(some):
            ends = np.array(from_)[some], np.array(to)[some], base[some], (base + share)[some]
            told = [f"answers {percent(share[n] / 100)} at {where[n]}" for n in some.tolist()]
            marks.append(Blocks(model, *ends, colour, told))
        base = base + share
    return Panel("answered by (%)", x, scales.exact(0, 100), tuple(marks), height=170)


def _range_text(r: RangePoint, loads: Loads, time: str) -> str:
    parts = [f"gear {r.gear}, {load_in_words(r.load.from_, r.load.to)}{loads.unit}", r.cascade]
    if (found := r.predicted) is not None:
        figures = percent(found.accuracy), milliseconds(found.latency_p95_s), percent(found.share_late)
        parts.append("{} {}, {} {}, {} late".format(loads.right, figures[0], time, *figures[1:]))
    return "\n".join([*parts, *([] if r.at_qps is None else [f"predicted at {digits(r.at_qps)}/s"])])


def cascades_chart(shown: Shown) -> Chart | None:
    """Accuracy against work, with names on the models alone and letters on the cascades in use."""
    points = shown.candidates
    if not points:
        return None
    marked = sorted((c for c in points if c.gears), key=lambda c: c.mean_run_s)
    alone = [c for c in points if c.alone and not c.gears]
    front = sorted((c for c in points if c.on_front), key=lambda c: c.mean_run_s)
    others = [c for c in points if not (c.on_front or c.gears or c.alone)]
    x = scales.scaled([1e3 * c.mean_run_s for c in points])
    y = scales.linear([100 * c.accuracy for c in points], zero=False, end=100)
    letters = dict(zip((c.cascade for c in marked if not c.alone), "ABCDEFGHIJKLMNOPQRSTUVWXYZ", strict=False))
    named = [*(c for c in marked if c.alone), *alone]
    labels = [
        *(_label(c, c.cascade) for c in named),
        *(_label(c, letters.get(c.cascade, "")) for c in marked if not c.alone),
    ]
    marks = [
        _dots("other cascades", others, colours.DOTS, 4),
        Line(
            "no other is better in both",
            _work(front),
            _accuracy(front),
            colours.PLAN,
            texts=list(map(_text, front)),
            width=1.5,
        ),
        _dots("one model alone", alone, "--ink", 7),
        replace(_dots("used by a gear", marked, "--m6", 9), ringed=True),
    ]
    key = [
        f"{letters[c.cascade]}: {c.cascade} (gears {c.gears})"
        if c.cascade in letters
        else f"{c.cascade}: gears {c.gears}"
        for c in marked
    ]
    return Chart(
        "cascades",
        "Accuracy against work",
        "Each dot is a cascade: the time that a request holds a device on average, in full batches, and how often its"
        " answer is right. The plan may only choose among these.",
        "mean run time per request (ms)",
        (Panel("accuracy (%)", x, y, tuple(marks), labels=tuple(labels), height=300),),
        key=tuple(key),
    )


def _label(point: CandidatePoint, text: str) -> Label:
    return Label(1e3 * point.mean_run_s, 100 * point.accuracy, text)


def _dots(name: str, points: Sequence[CandidatePoint], colour: str, size: float) -> Line:
    return dots(name, _work(points), _accuracy(points), colour, size, texts=list(map(_text, points)))


def _work(points: Sequence[CandidatePoint]) -> list[float]:
    return [1e3 * c.mean_run_s for c in points]


def _accuracy(points: Sequence[CandidatePoint]) -> list[float]:
    return [100 * c.accuracy for c in points]


def _text(c: CandidatePoint) -> str:
    gears = f"\ngears {c.gears}" if c.gears else ""
    return f"{c.cascade}\n{percent(c.accuracy)} right, {milliseconds(c.mean_run_s)} a request{gears}"


def objective_rules(slo_s: float | None) -> tuple[Rule, ...]:
    return () if slo_s is None else (Rule(1e3 * slo_s, f"objective: {milliseconds(slo_s)}", colours.LIMIT),)


# What it costs ----------------------------------------------------------------------------------


def devices_chart(plan: GearPlan) -> Chart | None:
    """Accuracy and p95 on other numbers of devices, where a plan of one pipeline has predictions for them."""
    if plan.what_if is UNSET or len(plan.pipelines) > 1 or plan.name not in plan.predictions:
        return None
    own = OtherDevices(
        devices=len(plan.hardware.devices),
        price_per_hour=price_per_hour(plan.hardware),
        predicted=plan.predictions[plan.name],
    )
    known = sorted(
        ((other, other.predicted) for other in (*plan.what_if, own) if other.predicted is not None),
        key=lambda pair: pair[0].devices,
    )
    counts = [float(other.devices) for other, _ in known]
    x = scales.Scale(
        counts[0] - 0.5,
        counts[-1] + 0.5,
        tuple((float(other.devices), f"{other.devices}{_cost(other, ' ({})')}") for other, _ in known),
    )
    texts = [
        f"{counted(other.devices, 'device')}{_cost(other, ', {} an hour')}\n"
        f"accuracy {percent(found.accuracy)}, p95 {milliseconds(found.latency_s.p95)}"
        for other, found in known
    ]
    at, rules = counts.index(float(own.devices)), objective_rules(plan.pipeline.objective.latency_s)

    def panel(title: str, values: list[float], y: scales.Scale, colour: str, rules: tuple[Rule, ...]) -> Panel:
        line = Line("other numbers of devices", counts, values, colour, texts=texts, dots=True)
        mark = dots("this plan", counts[at : at + 1], values[at : at + 1], colour, 9, texts[at : at + 1], ringed=True)
        return Panel(title, x, y, (line, mark), rules, height=140)

    accuracy = [100 * found.accuracy for _, found in known]
    ms = [1e3 * found.latency_s.p95 for _, found in known]
    return Chart(
        "devices",
        "One device more, and one fewer",
        "The same planner on other numbers of devices, for the same latency: its most accurate plan on each.",
        "devices" if own.price_per_hour is None else "devices (cost an hour)",
        (
            panel("accuracy (%)", accuracy, scales.linear(accuracy, zero=False, most=4, end=100), colours.ACCURACY, ()),
            panel("p95 (ms)", ms, scales.linear([*ms, *(r.y for r in rules)], most=4), colours.LATENCY, rules),
        ),
    )


def _cost(other: OtherDevices, words: str) -> str:
    return "" if other.price_per_hour is None else words.format(money(other.price_per_hour))


# What was assumed -------------------------------------------------------------------------------


def run_times_chart(shown: Shown) -> Chart | None:
    """The measured run times of each model by batch size, and what a request of a batch costs."""
    curves, colour = [curve for curve, _ in shown.measured], colours.of_models(shown.models)
    if not curves:
        return None
    sizes = sorted({size for curve in curves for size in curve.batch_sizes})
    x = scales.logarithmic(sizes) if len(sizes) > 1 else scales.linear(sizes)
    x = replace(x, ticks=tuple((float(s), f"{s:,}") for s in _spread(sizes)))

    def panel(title: str, *, per: bool) -> Panel:
        lines = [_run_times(curve, colour[curve.model], per=per) for curve in curves]
        return Panel(title, x, scales.scaled([v for line in lines for v in line.y]), tuple(lines), height=170)

    return Chart(
        "run-times",
        "Run times of the models",
        "Medians as measured; points are the batch sizes that were measured, and times between them are interpolated.",
        "batch size (requests)",
        (panel("a batch takes (ms)", per=False), panel("a request of it takes (ms)", per=True)),
    )


def _run_times(curve: RunTimeCurve, colour: str, *, per: bool) -> Line:
    sizes = np.array(curve.batch_sizes, dtype=np.float64)
    ms = 1e3 * np.array(curve.median_s) / (sizes if per else 1)
    texts = [
        f"a batch of {size}: {milliseconds(median)} (p95 {milliseconds(p95)})\n{milliseconds(median / size)} a request"
        for size, median, p95 in zip(curve.batch_sizes, curve.median_s, curve.p95_s, strict=True)
    ]
    return Line(curve.model, sizes, ms, colour, texts=texts, dots=True)


def _spread(sizes: Sequence[int], most: int = 7) -> list[int]:
    """Powers of two where there are many sizes, else all."""
    return list(sizes) if len(sizes) <= most else [s for s in sizes if not s & (s - 1)][-most:] or list(sizes)[:most]
