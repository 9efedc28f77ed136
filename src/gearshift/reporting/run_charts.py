"""The charts of runs: what happens over the trace, and how latencies are spread."""

from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any

import numpy as np

from gearshift.reporting.charts import objective_rules
from gearshift.reporting.drawing import colours, scales
from gearshift.reporting.drawing.charts import Chart, Line, Mark, Panel
from gearshift.reporting.drawing.colours import Style
from gearshift.reporting.runs import Course, Floats, RunSeries
from gearshift.reporting.shown import Shown
from gearshift.support.numbers import digits

FASTEST_SHOWN = 0.05
PERCENTILES = (0.0, 0.5, 0.9, 0.95, 0.99, 0.999)
CHARTS = [
    "gearshift.reporting.run_charts:day_chart",
]
"""The module and function of each chart that has a section of its own on the page of every plan."""


def charts_of(shown: Shown) -> list[Chart]:
    """Those of `CHARTS` that these numbers are enough for."""
    return [chart for place in CHARTS if (chart := resolve_name(place)(shown)) is not None]


def day_chart(shown: Shown) -> Chart | None:
    """Load, the accuracy of the gears in force, that of the answers, and their latency, over time."""
    runs = [(run, course) for run in shown.runs if (course := run.course) is not None and len(course.seconds) > 1]
    if not runs:
        return None
    x = scales.exact(0.0, max(course.seconds[-1] + course.bin_s for _, course in runs))
    rules, colour, plan = objective_rules(shown.slo_s), colour_of_runs(shown), runs[0][0].name
    measured = any(run.kind == "measured" for run, _ in runs)

    def lines(times: float, unit: str, of: Callable[[RunSeries, Course], Any]) -> tuple[Line, ...]:
        """Predicted and measured for the plan itself, and of other systems what was measured, if anything."""
        told = [(run, course) for run, course in runs if run.name == plan or run.kind == "measured" or not measured]
        values = [(run, course, times * np.array(of(run, course), dtype=np.float64)) for run, course in told]
        return tuple(
            _over_time(course, of_run, _name(run), colour[run.name], _style(run, shown.runs), unit)
            for run, course, of_run in values
            if not np.isnan(of_run).all()
        )

    in_force = lines(100, "%", lambda run, _: run.in_force)
    answers = lines(100, "%", lambda _, course: course.accuracy)
    p95 = lines(1e3, "ms", lambda _, course: course.p95_s)
    accuracies = scales.linear(_values(*in_force, *answers), zero=False, most=4, end=100)
    latencies = scales.scaled([*_values(*p95), *(rule.y for rule in rules)])
    course = runs[0][1]
    counted = "" if course.bin_s == 1 else f", mean of {digits(course.bin_s)} s"
    load = _over_time(course, np.array(course.load_qps), "", colours.LOAD, "solid", "requests/s")
    panels = [
        Panel(f"load (requests/s{counted})", x, scales.linear(_values(load), most=3), (load,), height=100),
        Panel("accuracy of the gear in force (%)", x, accuracies, in_force, height=130),
        Panel("accuracy of the answers (%)", x, accuracies, answers, height=130),
        Panel("p95 (ms)", x, latencies, p95, rules, height=150),
    ]
    sentence = (
        "As load rises, the plan shifts to gears that are cheaper and less accurate, and back when it falls. "
        "Accuracy and latency are those of a short while about each instant. "
    )
    return Chart(
        "day",
        "What happens over the trace",
        sentence + _told([run for run, _ in runs]),
        "time (s)",
        tuple(panel for panel in panels if panel.marks),
    )


def _over_time(course: Course, values: Floats, name: str, colour: str, style: Style, unit: str) -> Line:
    texts = [f"{digits(s)} s: {digits(v)} {unit}" for s, v in zip(course.seconds, values.tolist(), strict=True)]
    return Line(name, np.array(course.seconds) + course.bin_s / 2, values, colour, style, texts=texts, width=1.75)


def _values(*lines: Line) -> list[float]:
    return [float(value) for line in lines for value in line.y if not np.isnan(value)]


def latency_chart(shown: Shown) -> Chart | None:
    """Latency at each percentile, on an axis that widens towards the tail."""
    runs = [(run, course) for run in shown.runs if (course := run.course) is not None and course.share]
    if not runs:
        return None
    colour, marks, shown_ms = colour_of_runs(shown), list[Mark](), list[float]()
    for run, course in runs:
        share, ms = np.array(course.share), 1e3 * np.array(course.latency_s)
        shown_ms += ms[share >= FASTEST_SHOWN].tolist()
        texts = [f"{digits(100 * p)} % within {digits(v)} ms" for p, v in zip(course.share, ms.tolist(), strict=True)]
        marks.append(Line(_name(run), _nines(share), ms, colour[run.name], _style(run, shown.runs), texts=texts))
    end = float(_nines(np.array([share for _, course in runs for share in course.share])).max())
    ticks = [(float(_nines(np.array([p]))[0]), f"{100 * p:g}") for p in PERCENTILES]
    x = scales.Scale(0.0, end, tuple(tick for tick in ticks if tick[0] <= end + 1e-6))
    rules = objective_rules(shown.slo_s)
    y = scales.scaled([*shown_ms, *(rule.y for rule in rules)])
    return Chart(
        "latency",
        "Latency of all requests",
        f"How long the slowest requests take: the axis widens towards the tail. {_told([run for run, _ in runs])}",
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
