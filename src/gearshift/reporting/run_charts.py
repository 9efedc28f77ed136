"""The charts of runs: what happens over the trace, and how latencies are spread."""

from collections.abc import Iterator, Sequence

import numpy as np

from gearshift.reporting.charts import objective_rules
from gearshift.reporting.drawing import colours, scales
from gearshift.reporting.drawing.charts import Chart, Line, Mark, Panel, Rule
from gearshift.reporting.drawing.colours import Style
from gearshift.reporting.runs import Floats, RunSeries
from gearshift.reporting.shown import Shown
from gearshift.support.numbers import digits

FASTEST_SHOWN = 0.05
PERCENTILES = (0.0, 0.5, 0.9, 0.95, 0.99, 0.999)


def day_chart(shown: Shown) -> Chart | None:
    """Load, the accuracy of the gears in force, that of the answers, and their latency, over time."""
    runs = [run for run in shown.runs if run.seconds is not None and len(run.seconds) > 1]
    if not runs:
        return None
    x = scales.exact(0.0, max(float(np.asarray(run.seconds)[-1]) + run.bin_s for run in runs))
    rules = objective_rules(shown.slo_s)
    in_force, answers, p95 = (
        list(_lines(shown, runs, attribute, times, unit))
        for attribute, times, unit in (("in_force", 100.0, "%"), ("accuracy", 100.0, "%"), ("p95_s", 1e3, "ms"))
    )
    accuracies = scales.linear(_values([*in_force, *answers]), zero=False, most=4, end=100)
    panels = [
        _load(runs, x),
        Panel("accuracy of the gear in force (%)", x, accuracies, tuple(in_force), height=130),
        Panel("accuracy of the answers (%)", x, accuracies, tuple(answers), height=130),
        Panel("p95 (ms)", x, _latencies(p95, rules), tuple(p95), rules, height=150),
    ]
    sentence = (
        "As load rises, the plan shifts to gears that are cheaper and less accurate, and back when it falls. "
        "Accuracy and latency are those of a short while about each instant. "
    )
    return Chart(
        "day",
        "What happens over the trace",
        sentence + _told(runs),
        "time (s)",
        tuple(panel for panel in panels if panel.marks),
    )


def _load(runs: Sequence[RunSeries], x: scales.Scale) -> Panel:
    run = next(run for run in runs if run.load_qps is not None)
    counted = "" if run.bin_s == 1 else f", mean of {digits(run.bin_s)} s"
    values = np.asarray(run.load_qps)
    line = _over_time(run, values, "", colours.LOAD, "solid", "requests/s")
    return Panel(f"load (requests/s{counted})", x, scales.linear(values.tolist(), most=3), (line,), height=100)


def _lines(shown: Shown, runs: Sequence[RunSeries], attribute: str, times: float, unit: str) -> Iterator[Line]:
    """Predicted and measured for the plan itself, and of other systems what was measured, if anything."""
    colour, plan = colour_of_runs(shown), runs[0].name
    measured = {run.name for run in runs if run.kind == "measured"}
    for run in runs:
        values = getattr(run, attribute)
        if values is None or np.isnan(values).all() or (run.name != plan and run.kind == "predicted" and measured):
            continue
        yield _over_time(run, times * values, _name(run), colour[run.name], _style(run, shown.runs), unit)


def _over_time(run: RunSeries, values: Floats, name: str, colour: str, style: Style, unit: str) -> Line:
    seconds = np.asarray(run.seconds)
    texts = [f"{digits(s)} s: {digits(v)} {unit}" for s, v in zip(seconds.tolist(), values.tolist(), strict=True)]
    return Line(name, seconds + run.bin_s / 2, values, colour, style, texts=texts, width=1.75)


def _values(lines: Sequence[Line]) -> list[float]:
    return [float(value) for line in lines for value in line.y if not np.isnan(value)]


def _latencies(lines: Sequence[Line], rules: Sequence[Rule]) -> scales.Scale:
    return scales.scaled([*_values(lines), *(rule.y for rule in rules)])


def latency_chart(shown: Shown) -> Chart | None:
    """Latency at each percentile, on an axis that widens towards the tail."""
    quantiles = [(r, q) for r in shown.runs if (q := r.latency_quantiles) is not None and len(q.share) > 0]
    if not quantiles:
        return None
    colour = colour_of_runs(shown)
    marks: list[Mark] = []
    shown_ms: list[float] = []
    for run, q in quantiles:
        kept = q.share >= FASTEST_SHOWN
        ms = 1e3 * q.latency_s
        shown_ms += ms[kept].tolist()
        texts = [
            f"{digits(100 * p)} % within {digits(v)} ms" for p, v in zip(q.share.tolist(), ms.tolist(), strict=True)
        ]
        marks.append(Line(_name(run), _nines(q.share), ms, colour[run.name], _style(run, shown.runs), texts=texts))
    end = max(float(_nines(q.share).max()) for _, q in quantiles)
    ticks = [(float(_nines(np.array([p]))[0]), f"{100 * p:g}") for p in PERCENTILES]
    x = scales.Scale(0.0, end, tuple(tick for tick in ticks if tick[0] <= end + 1e-6))
    rules = objective_rules(shown.slo_s)
    y = scales.scaled([*shown_ms, *(rule.y for rule in rules)])
    return Chart(
        "latency",
        "Latency of all requests",
        "How long the slowest requests take: the axis widens towards the tail."
        + f" {_told([run for run, _ in quantiles])}",
        "percentile of answered requests",
        (Panel("latency (ms)", x, y, tuple(marks), rules, height=260),),
    )


def _nines(share: Floats) -> Floats:
    """Axis position of a percentile: 0 at 0, 1 at 90, 2 at 99, 3 at 99.9."""
    return np.asarray(-np.log10(np.maximum(1 - share, 1e-6)))


def _told(runs: Sequence[RunSeries]) -> str:
    told = "Solid lines are measured, dashed ones predicted" if _both(runs) else f"All of it is {runs[0].kind}"
    return f"{told}; a colour for each system." if len({run.name for run in runs}) > 1 else f"{told}."


def colour_of_runs(shown: Shown) -> dict[str, str]:
    """The plan has its own colour on all charts; a model alone, "only NAME", has the model's."""
    of_models, names = colours.of_models(shown.models), list(dict.fromkeys(run.name for run in shown.runs))
    spare = [colour for colour in colours.MODELS if colour not in of_models.values()] or [*colours.MODELS]
    others = {name: spare[n % len(spare)] for n, name in enumerate(names)}
    return {
        name: of_models.get(name.removeprefix("only "), others[name]) if n else colours.PLAN
        for n, name in enumerate(names)
    }


def _both(runs: Sequence[RunSeries]) -> bool:
    return len({run.kind for run in runs}) > 1


def _name(run: RunSeries) -> str:
    return f"{run.name}, {run.kind}"


def _style(run: RunSeries, runs: Sequence[RunSeries]) -> Style:
    return "dash" if run.kind == "predicted" and _both(runs) else "solid"
