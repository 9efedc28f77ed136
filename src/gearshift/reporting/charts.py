"""The charts of a plan's report."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gearshift.reporting.content import CandidatePoint, ModelFacts, RangePoint, ReportContent
from gearshift.reporting.drawing import colours, scales
from gearshift.reporting.drawing.charts import Blocks, Chart, Dots, Label, Line, Mark, Panel, Rule
from gearshift.reporting.drawing.numbers import digits, load_in_words, milliseconds, percent
from gearshift.reporting.runs import Floats, RunSeries

FASTEST_SHOWN = 0.05
PERCENTILES = (0.0, 0.5, 0.9, 0.95, 0.99, 0.999)
OPEN_END = 0.12
"""A range without upper end is drawn as wide as this share of the others."""


def charts_of(content: ReportContent, *, of: str = "", number: int = 0) -> list[Chart]:
    """The charts; those of one pipeline, `of` that name, have its `number` in their identifiers."""
    made = (cascades_chart(content), loads_chart(content), day_chart(content), latency_chart(content))
    charts = [chart for chart in made if chart is not None]
    return [replace(one, id=f"{one.id}-{number}", title=f"{one.title}: {of}") for one in charts] if of else charts


# How it works -----------------------------------------------------------------------------------


def loads_chart(content: ReportContent) -> Chart | None:
    """Which model answers how much at each load, and what accuracy and latency that gives."""
    ranges = content.ranges
    if not ranges:
        return None
    last = ranges[-1].from_qps
    end = last * (1 + OPEN_END) if last else 1.0
    x, to = scales.exact(0.0, end), [end if r.to_qps is None else r.to_qps for r in ranges]
    from_, texts = [r.from_qps for r in ranges], [_range_text(r, content.percentile) for r in ranges]
    panels = []
    if any(r.answered for r in ranges):
        panels.append(_shares(content, x, from_, to))
    accuracy = [100 * r.accuracy for r in ranges]
    latency = [1e3 * r.p95_s for r in ranges]
    within = [] if content.slo_s is None else [1e3 * content.slo_s]
    rules = () if content.slo_s is None else (_slo(content.slo_s),)
    measures = (
        ("accuracy (%)", accuracy, colours.ACCURACY, scales.linear(accuracy, zero=False, most=4), ()),
        (f"predicted {content.percentile} (ms)", latency, colours.LATENCY, scales.linear([*latency, *within]), rules),
    )
    for title, values, colour, y, marked in measures:
        points = [(a, v, t) for a, b, v, t in zip(from_, to, values, texts, strict=True) for a in (a, b)]
        xs, ys, told = zip(*points, strict=True)
        panels.append(Panel(title, x, y, (Line("", xs, ys, colour, texts=told, width=2.5),), marked, height=110))
    sentence = "As load rises, more of the requests are answered by cheaper models, so that latency holds."
    beyond = next((r for r in ranges if r.at_qps is not None), None)
    if beyond is not None:
        sentence += f" Nothing is promised from {digits(beyond.at_qps or 0)} requests/s on."
    return Chart("loads", "Who answers at each load", sentence, "load (requests/s)", tuple(panels))


def _shares(content: ReportContent, x: scales.Scale, from_: list[float], to: list[float]) -> Panel:
    base, marks = np.zeros(len(content.ranges)), []
    for model, colour in model_colours(content).items():
        share = np.array([100 * r.answered.get(model, 0.0) for r in content.ranges])
        texts = [
            f"answers {percent(s / 100)} at {load_in_words(r.from_qps, r.to_qps)}/s\n{r.cascade}"
            for s, r in zip(share.tolist(), content.ranges, strict=True)
        ]
        shown = share > 0
        if shown.any():
            ends = np.array(from_)[shown], np.array(to)[shown], base[shown], (base + share)[shown]
            told = list(itertools.compress(texts, shown))
            marks.append(Blocks(model, *ends, colour, told))
        base = base + share
    return Panel("answered by (%)", x, scales.exact(0, 100), tuple(marks), height=170)


def _range_text(r: RangePoint, percentile: str) -> str:
    parts = [
        f"gear {r.gear}, {load_in_words(r.from_qps, r.to_qps)}/s",
        r.cascade,
        f"accuracy {percent(r.accuracy)}, {percentile} {milliseconds(r.p95_s)}, {percent(r.share_late)} late",
        "" if r.at_qps is None else f"predicted at {digits(r.at_qps)}/s",
    ]
    return "\n".join(filter(None, parts))


def cascades_chart(content: ReportContent) -> Chart | None:
    """Accuracy against work, with names on the models alone and letters on the cascades in use."""
    points = content.candidates
    if not points:
        return None
    marked = sorted((c for c in points if c.gears), key=lambda c: c.mean_run_s)
    alone = [c for c in points if c.alone and not c.gears]
    front = sorted((c for c in points if c.on_front), key=lambda c: c.mean_run_s)
    others = [c for c in points if not (c.on_front or c.gears or c.alone)]
    x = scales.scaled([1e3 * c.mean_run_s for c in points])
    y = scales.linear([100 * c.accuracy for c in points], zero=False)
    letters = dict(zip((c.cascade for c in marked if not c.alone), "ABCDEFGHIJKLMNOPQRSTUVWXYZ", strict=False))
    named = [*(c for c in marked if c.alone), *alone]
    labels = [
        *(_label(c, c.cascade) for c in named),
        *(_label(c, letters.get(c.cascade, "")) for c in marked if not c.alone),
    ]
    marks: list[Mark] = [
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
        else f"{c.cascade} (gears {c.gears})"
        for c in marked
    ]
    return Chart(
        "cascades",
        "Accuracy against work",
        "Each dot is a cascade: the time that a request holds a device on average, in full batches, and how often its"
        " answer is right. The plan may only choose among these.",
        "mean run time per request (ms)",
        (Panel("accuracy (%)", x, y, tuple(m for m in marks if len(m.x)), labels=tuple(labels), height=300),),
        key=tuple(key),
    )


def _label(point: CandidatePoint, text: str) -> Label:
    return Label(1e3 * point.mean_run_s, 100 * point.accuracy, text)


def _dots(name: str, points: Sequence[CandidatePoint], colour: str, size: float) -> Dots:
    return Dots(name, _work(points), _accuracy(points), colour, size, texts=list(map(_text, points)))


def _work(points: Sequence[CandidatePoint]) -> list[float]:
    return [1e3 * c.mean_run_s for c in points]


def _accuracy(points: Sequence[CandidatePoint]) -> list[float]:
    return [100 * c.accuracy for c in points]


def _text(c: CandidatePoint) -> str:
    gears = f"\ngears {c.gears}" if c.gears else ""
    return f"{c.cascade}\n{percent(c.accuracy)} right, {milliseconds(c.mean_run_s)} a request{gears}"


# What happens over the day ----------------------------------------------------------------------


def day_chart(content: ReportContent) -> Chart | None:
    """Load, the accuracy of the gears in force, that of the answers, and their latency, over time."""
    runs = [run for run in content.runs if run.seconds is not None and len(run.seconds) > 1]
    if not runs:
        return None
    ends = [float(run.seconds[-1]) + run.bin_s for run in runs if run.seconds is not None]
    x, bin_s = scales.exact(0.0, max(ends)), max(run.bin_s for run in runs)
    load = next(run for run in runs if run.load_qps is not None)
    loads = np.asarray(load.load_qps)
    counted = "" if bin_s == 1 else f", mean of {digits(bin_s)} s"
    panels = [
        Panel(
            f"load (requests/s{counted})",
            x,
            scales.linear(loads.tolist(), most=3),
            (_over_time(load, loads, "", colours.LOAD, "solid", lambda v: f"{digits(v)} requests/s"),),
            height=100,
        )
    ]
    for title, attribute, times, zero in (
        ("accuracy of the gear in force (%)", "in_force", 100, False),
        ("accuracy of the answers (%)", "accuracy", 100, False),
        ("p95 (ms)", "p95_s", 1e3, True),
    ):
        rules = (_slo(content.slo_s),) if zero and content.slo_s is not None else ()
        panel = _measure(content, runs, title, attribute, times, zero=zero, x=x, rules=rules)
        if panel is not None:
            panels.append(panel)
    several = len(colour_of_runs(content)) > 1
    return Chart(
        "day",
        "Over the trace",
        "When load rises, the plan shifts to gears that are cheaper and less accurate, and back when it falls. "
        + ("Solid lines are measured, dashed ones predicted" if _both(runs) else "All of it is " + runs[0].kind)
        + (", one colour for each system." if several else "."),
        "time (s)",
        tuple(panels),
    )


def _measure(
    content: ReportContent,
    runs: Sequence[RunSeries],
    title: str,
    attribute: str,
    times: float,
    *,
    zero: bool,
    x: scales.Scale,
    rules: tuple[Rule, ...],
) -> Panel | None:
    colour, marks, seen = colour_of_runs(content), list[Mark](), list[float]()
    for run in runs:
        values = getattr(run, attribute)
        if values is None or np.isnan(values).all():
            continue
        values = times * values
        seen += values[~np.isnan(values)].tolist()
        unit = "ms" if zero else "%"
        marks.append(
            _over_time(
                run,
                values,
                _name(run),
                colour[run.name],
                _style(run),
                lambda v, u=unit: f"{digits(v)} {u}",
                steps=not zero,
            )
        )
    if not marks:
        return None
    y = scales.linear([*seen, *(rule.y for rule in rules)], zero=zero, most=4)
    return Panel(title, x, y, tuple(marks), rules, height=130)


def _over_time(run, values, name, colour, style, told, steps=True):  # type: ignore[no-untyped-def]
    assert run.seconds is not None
    texts = [f"{digits(s)} s: {told(v)}" for s, v in zip(run.seconds.tolist(), values.tolist(), strict=True)]
    x = run.seconds + run.bin_s / 2
    return Line(name, x, values, colour, style, stepped=False, texts=texts, width=1.75)


def _both(runs: Sequence[RunSeries]) -> bool:
    return len({run.kind for run in runs}) > 1


def _name(run: RunSeries) -> str:
    return f"{run.name}, {run.kind}"


def _style(run: RunSeries) -> str:
    return "dash" if run.kind == "predicted" else "solid"


def colour_of_runs(content: ReportContent) -> dict[str, str]:
    """The plan has its own colour on all charts; a model alone has the model's."""
    of_models, names = model_colours(content), list(dict.fromkeys(run.name for run in content.runs))
    spare = iter([c for c in colours.MODELS if c not in of_models.values()] * 8 or colours.MODELS)
    return {
        name: colours.PLAN if not n else of_models.get(name.removeprefix("only "), "") or next(spare, "--ink")
        for n, name in enumerate(names)
    }


def model_colours(content: ReportContent) -> dict[str, str]:
    return colours.of_models([model.name for model in content.models])


# How sure ---------------------------------------------------------------------------------------


def latency_chart(content: ReportContent) -> Chart | None:
    """Latency at each percentile, on an axis that widens towards the tail."""
    quantiles = [(r, q) for r in content.runs if (q := r.latency_quantiles) is not None and len(q.share) > 0]
    if not quantiles:
        return None
    colour = colour_of_runs(content)
    marks: list[Mark] = []
    shown_ms: list[float] = []
    for run, q in quantiles:
        kept = q.share >= FASTEST_SHOWN
        ms = 1e3 * q.latency_s
        shown_ms += ms[kept].tolist()
        texts = [
            f"{digits(100 * p)} % within {digits(v)} ms" for p, v in zip(q.share.tolist(), ms.tolist(), strict=True)
        ]
        marks.append(Line(_name(run), _nines(q.share), ms, colour[run.name], _style(run), texts=texts))  # type: ignore[arg-type]
    end = max(float(_nines(q.share).max()) for _, q in quantiles)
    ticks = [(float(_nines(np.array([p]))[0]), f"{100 * p:g}") for p in PERCENTILES]
    x = scales.Scale(0.0, end, tuple(tick for tick in ticks if tick[0] <= end + 1e-6))
    rules = () if content.slo_s is None else (_slo(content.slo_s),)
    y = scales.scaled([*shown_ms, *(rule.y for rule in rules)])
    return Chart(
        "latency",
        "Latency of all requests",
        "How long the slowest requests take: the axis widens towards the tail."
        + (" Solid is measured, dashed predicted." if _both([r for r, _ in quantiles]) else ""),
        "percentile of answered requests",
        (Panel("latency (ms)", x, y, tuple(marks), rules, height=260),),
    )


def _nines(share: Floats) -> Floats:
    """Axis position of a percentile: 0 at 0, 1 at 90, 2 at 99, 3 at 99.9."""
    return np.asarray(-np.log10(np.maximum(1 - share, 1e-6)))


def _slo(slo_s: float) -> Rule:
    return Rule(1e3 * slo_s, f"objective: {milliseconds(slo_s)}", colours.LIMIT)


# What was assumed -------------------------------------------------------------------------------


def run_times_chart(content: ReportContent) -> Chart | None:
    """The measured run times of each model by batch size, and what a request of a batch costs."""
    models = [model for model in content.models if model.batch_sizes]
    if not models:
        return None
    colour, sizes = model_colours(content), sorted({size for model in models for size in model.batch_sizes})
    x = scales.logarithmic(sizes) if len(sizes) > 1 else scales.linear(sizes)
    ticks = tuple((float(s), f"{s:,}") for s in _spread(sizes))
    x = scales.Scale(x.low, x.high, ticks, x.log)
    whole = [_run_times(m, colour[m.name], per=False) for m in models]
    each = [_run_times(m, colour[m.name], per=True) for m in models]

    def panel(title: str, lines: Sequence[Line]) -> Panel:
        return Panel(title, x, scales.scaled([v for line in lines for v in line.y]), tuple(lines), height=170)

    return Chart(
        "run-times",
        "Run times of the models",
        "Medians as measured; points are the batch sizes that were measured, and times between them are interpolated.",
        "batch size (requests)",
        (panel("a batch takes (ms)", whole), panel("a request of it takes (ms)", each)),
    )


def _run_times(model: ModelFacts, colour: str, *, per: bool) -> Line:
    sizes = np.array(model.batch_sizes, dtype=np.float64)
    ms = 1e3 * np.array(model.median_s) / (sizes if per else 1)
    texts = [
        f"a batch of {size}: {milliseconds(median)} (p95 {milliseconds(p95)})\n{milliseconds(median / size)} a request"
        for size, median, p95 in zip(model.batch_sizes, model.median_s, model.p95_s, strict=True)
    ]
    return Line(model.name, sizes, ms, colour, texts=texts, dots=True)


def _spread(sizes: Sequence[int], most: int = 7) -> list[int]:
    """Powers of two where there are many sizes, else all."""
    return list(sizes) if len(sizes) <= most else [s for s in sizes if not s & (s - 1)][-most:] or list(sizes)[:most]
