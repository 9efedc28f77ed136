"""The page about a plan of language models: in tokens, by the load that its meter reads."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.gear import GearPlan
from gearshift.planner.one_alone import OneAlone
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, LanguageProfile
from gearshift.profiles.profile import PART_B
from gearshift.reporting.alone_table import alone_below
from gearshift.reporting.charts import objective_rule
from gearshift.reporting.content import ReportContent
from gearshift.reporting.drawing import colours, scales
from gearshift.reporting.drawing.charts import Blocks, Chart, Line, Panel
from gearshift.reporting.drawing.page import chart_below, chart_section, html_page, html_table, section, tiles
from gearshift.reporting.headline import percentile_name
from gearshift.reporting.language.words import (
    UNITS,
    cascade_text,
    discarded_share,
    limit_of,
    most_outstanding,
)
from gearshift.reporting.report_page import cost_tiles, costs_below, plan_facts
from gearshift.reporting.run_charts import day_chart, latency_chart
from gearshift.reporting.runs import Answers, RunSeries, series
from gearshift.result import ServingResult
from gearshift.simulator.engines.language_simulation import LanguageSimulation
from gearshift.support.files import write_atomically
from gearshift.support.numbers import digits, load_in_words, milliseconds, percent

Floats = NDArray[np.float64]
OPEN_END = 0.12
"""The last range, which has no end, is drawn as wide as this share of the others."""


def write_language_page(
    path: Path,
    plan: GearPlan,
    profile: LanguageProfile,
    run: LanguageSimulation | None = None,
    alone: Sequence[OneAlone] = (),
) -> None:
    write_atomically(path, language_page(plan, profile, run, alone).encode())


def language_page(
    plan: GearPlan,
    profile: LanguageProfile,
    run: LanguageSimulation | None = None,
    alone: Sequence[OneAlone] = (),
) -> str:
    """The page; without a `run` of its trace it has the figures that the plan predicts.

    `alone` is what each model would do by itself, on the trace of `run`.
    """
    loads, drawn = loads_chart(plan, profile), list[Chart]()
    result = plan.predictions.get(plan.name) if run is None else run.result(profile, plan.pipeline.objective)
    if run is not None and result is not None:
        drawn = _run_charts(plan, profile, run, result)
    works = section(
        "How it works",
        "A gear is the cascade for one range of outstanding work. A stage decides by its certainty at a token, or by "
        "the request's id where its certainty ranks nothing; what was shown to a client is never taken back.",
        chart_below(loads),
        f"<details><summary>All gears as a table</summary>{gears_table(plan)}</details>",
    )
    sections = [_promised(plan, result, alone), works, *map(chart_section, drawn), _tokens(plan, result)]
    sections.append(
        section(
            "What was assumed",
            "Predictions hold for this traffic, these engines and these prompts.",
            plan_facts(plan),
            engines_table(plan, profile),
            "".join(f"<p>{html.escape(warning)}</p>" for warning in profile.warnings),
        )
    )
    note = "" if run is not None else "Without a trace nothing was simulated for this page."
    return html_page(f"Gear plan for {plan.name}", note, sections, [loads, *drawn])


def _promised(plan: GearPlan, result: ServingResult | None, alone: Sequence[OneAlone]) -> str:
    objective, name = plan.pipeline.objective, limit_of(plan.pipeline.objective)[0]
    asked = [] if objective.latency_s is None else [f"{name} {percentile_name(objective)} within "]
    asked = [f"{text}{milliseconds(objective.latency_s or 0.0)}" for text in asked]
    asked += [] if objective.accuracy is None else [f"quality of at least {percent(objective.accuracy)}"]
    sentence = f"Asked for: {' and '.join(asked) or 'nothing'}. Predicted by simulation of the trace."
    if result is None or result.tokens is UNSET:
        return section("What is promised", sentence)
    low, high = result.accuracy_interval
    tokens, devices = result.tokens, len(plan.hardware.devices)
    kinds = ", ".join(dict.fromkeys(device.kind for device in plan.hardware.devices))
    late, judged = f"; {percent(result.share_late)} late", objective.metric
    shown = [
        ("devices", str(devices), kinds),
        *cost_tiles(plan),
        ("quality", percent(result.accuracy), f"{percent(low)} to {percent(high)} (95 % sure)"),
        *(
            (f"{words} p95", milliseconds(of.p95), f"p50 {milliseconds(of.p50)}{late if metric == judged else ''}")
            for metric, words, of in (
                ("ttft", "TTFT", tokens.ttft_s),
                ("per_token", "per token", tokens.per_token_s),
                ("total", "whole answers", tokens.total_s),
            )
        ),
    ]
    content = ReportContent(
        title=plan.name, plan=plan, slo_s=objective.latency_s, percentile=percentile_name(objective)
    )
    beside = alone_below(result, alone, right="quality", time=f"{name} p95")
    return section("What is promised", sentence, tiles(shown), costs_below(content, plan, result), beside)


def loads_chart(plan: GearPlan, profile: LanguageProfile) -> Chart:
    """The share of answers of each model, the quality and the time that a gear is predicted to have, by load."""
    pipeline, unit = plan.pipeline, UNITS[plan.pipeline.load_unit]
    from_ = [gear.load_range.from_ for gear in pipeline.gears]
    end = from_[-1] * (1 + OPEN_END) if from_[-1] else 1.0
    to = [end if gear.load_range.to is None else gear.load_range.to for gear in pipeline.gears]
    x = scales.exact(0.0, end)
    told = [
        f"gear {n}, {load_in_words(gear.load_range.from_, gear.load_range.to)} {unit}\n{cascade_text(gear.cascade)}"
        for n, gear in enumerate(pipeline.gears)
    ]
    shares = np.array([answered_shares(gear.cascade, profile) for gear in pipeline.gears])
    colour, base, blocks = colours.of_models(profile.models), np.zeros(len(from_)), []
    for row, model in enumerate(profile.models):
        share = 100 * shares[:, row]
        some = np.flatnonzero(share > 0)
        if len(some):
            texts = [f"{model} answers {percent(share[n] / 100)}\n{told[n]}" for n in some.tolist()]
            edges = np.array(from_)[some], np.array(to)[some], base[some], (base + share)[some]
            blocks.append(Blocks(model, *edges, colour[model], texts))
        base = base + share
    panels = [Panel("answered by (%)", x, scales.exact(0, 100), tuple(blocks), height=170)]
    name, objective = (
        f"{limit_of(pipeline.objective)[0]} {percentile_name(pipeline.objective)} (ms)",
        pipeline.objective,
    )
    if all(gear.predicted is not None for gear in pipeline.gears):
        known = [gear.predicted for gear in pipeline.gears if gear.predicted is not None]
        quality = [100 * one.accuracy for one in known]
        latency = [1e3 * one.latency_p95_s for one in known]
        rules = () if objective.latency_s is None else (objective_rule(objective.latency_s),)
        for title, values, of, y, marked in (
            ("quality (%)", quality, colours.ACCURACY, scales.linear(quality, zero=False, most=4, end=100), ()),
            (name, latency, colours.LATENCY, scales.scaled([*latency, *(rule.y for rule in rules)]), rules),
        ):
            points = [(a, v, t) for a, b, v, t in zip(from_, to, values, told, strict=True) for a in (a, b)]
            xs, ys, words = zip(*points, strict=True)
            panels.append(Panel(title, x, y, (Line("", xs, ys, of, texts=words, width=2.5),), marked, height=110))
    sentence = (
        "Load is the work that is outstanding: what engines have and what waits. As it rises, more requests go to "
        "models that take less of it. Shares are those on recorded answers of part B."
    )
    return Chart("loads", "Who answers at each load", sentence, f"outstanding work ({unit})", tuple(panels))


def answered_shares(cascade: Cascade, profile: LanguageProfile) -> Floats:
    """The share of answers (models,) that each model of the profile gives in this cascade, on part B."""
    answers = profile.answers
    records = answers.indices(PART_B)
    found, reach = np.zeros(len(profile.models)), np.ones(len(records))
    at = cascade.decide_at_tokens
    for stage, (model, threshold) in enumerate(zip(cascade.models, cascade.thresholds, strict=False)):
        row, token = profile.models.index(model), None if at is UNSET else at[stage]
        if token == 0:
            onward = np.minimum(reach, threshold)
        else:
            onward = reach * (answers.certainty[row, records, DECIDE_AT_TOKENS.index(token)] < threshold)
        found[row] += float((reach - onward).mean())
        reach = onward
    found[profile.models.index(cascade.models[-1])] += float(reach.mean())
    return found


def gears_table(plan: GearPlan) -> str:
    pipeline = plan.pipeline
    rows = ""
    for number, gear in enumerate(pipeline.gears):
        one = gear.predicted
        figures = ("", "", "")
        if one is not None:
            figures = percent(one.accuracy), milliseconds(one.latency_p95_s), f"{digits(one.load_qps)}/s"
        cells = "".join(f"<td>{text}</td>" for text in (*figures, html.escape(most_outstanding(plan, gear))))
        rows += (
            f"<tr><td>{number}</td><td>{load_in_words(gear.load_range.from_, gear.load_range.to)}</td>"
            f"<td class='text'>{html.escape(cascade_text(gear.cascade))}</td>{cells}</tr>"
        )
    load = f"outstanding work ({UNITS[pipeline.load_unit]})"
    time = f"{limit_of(pipeline.objective)[0]} {percentile_name(pipeline.objective)}"
    return html_table(
        ("gear", load, "cascade", "quality", time, "at rate", "most outstanding"), rows, text=("cascade",)
    )


def _run_charts(
    plan: GearPlan, profile: LanguageProfile, run: LanguageSimulation, result: ServingResult
) -> list[Chart]:
    pipeline = plan.pipeline
    metric = pipeline.objective.metric
    times: Mapping[str, Floats] = {
        "ttft": run.ttft_ns / NS_PER_S,
        "per_token": run.per_token_s,
        "total": run.total_ns / NS_PER_S,
    }
    latency_s = times["total" if metric in (UNSET, "latency") else str(metric)]
    arrivals_s = run.workload.arrivals_ns / NS_PER_S
    known = ~np.isnan(latency_s)
    answers = Answers(
        arrivals_s=arrivals_s,
        answered_s=arrivals_s[known],
        latency_s=latency_s[known],
        quality=run.quality(profile)[known],
        shifts=[(at / NS_PER_S, gear) for at, gear in run.shifts.tolist()],
    )
    of_gears = [np.nan if gear.predicted is None else gear.predicted.accuracy for gear in pipeline.gears]
    one: RunSeries = series("gear plan", "predicted", result, answers, latency_s[known], of_gears)
    content = ReportContent(
        title=plan.name,
        plan=plan,
        runs=(one,),
        slo_s=pipeline.objective.latency_s,
        percentile=percentile_name(pipeline.objective),
    )
    return [chart for chart in (day_chart(content), latency_chart(content)) if chart is not None]


def _tokens(plan: GearPlan, result: ServingResult | None) -> str:
    if result is None or result.tokens is UNSET:
        return ""
    tokens = result.tokens
    rows = "".join(
        f"<tr><td class='text'>{html.escape(name)}</td>"
        f"{''.join(f'<td>{milliseconds(at)}</td>' for at in (of.mean, of.p50, of.p95, of.p99))}</tr>"
        for name, of in (
            ("to the first token", tokens.ttft_s),
            ("between tokens", tokens.per_token_s),
            ("whole answers", tokens.total_s),
        )
    )
    models = [*dict.fromkeys([*plan.placement.models, *tokens.answered_by, *tokens.discarded_tokens])]
    of_models = "".join(
        f"<tr><td class='text'>{html.escape(model)}</td><td>{percent(tokens.answered_by.get(model, 0.0))}</td>"
        f"<td>{tokens.discarded_tokens.get(model, 0):,}</td></tr>"
        for model in models
    )
    sentence = (
        f"{tokens.output_tokens:,} tokens were shown to clients; {percent(discarded_share(tokens))} of all that were "
        "made were discarded, by models that did not answer in the end. All of it is predicted: `gearshift validate` "
        "serves the plan and sets measured figures beside these."
    )
    return section(
        "Times and tokens",
        sentence,
        html_table(("time", "mean", "p50", "p95", "p99"), rows, text=("time",)),
        html_table(("model", "answers", "discarded tokens"), of_models, text=("model",)),
    )


def engines_table(plan: GearPlan, profile: LanguageProfile) -> str:
    """The engines that the plan places: steps, and the tokens of context that they hold."""
    rows, kinds = "", {device.id: device.kind for device in plan.hardware.devices}
    for replica in plan.placement.replicas:
        kind, parallel = kinds[replica.device_ids[0]], replica.tensor_parallel
        engine = profile.engine(replica.model, device_kind=kind, tensor_parallel=parallel)
        chunk, most = engine.largest_batched_tokens, engine.largest_running
        held = engine.kv_blocks * engine.block_tokens if replica.kv_tokens is UNSET else replica.kv_tokens
        figures: Sequence[str] = (
            html.escape(", ".join(replica.device_ids)),
            milliseconds(engine.reading_s),
            f"{digits(chunk / engine.prefill.seconds(chunk))} tokens/s",
            milliseconds(engine.decode.seconds(1)),
            f"{digits(most / engine.decode.seconds(most))} tokens/s",
            f"{held:,} tokens",
        )
        cells = "".join(f"<td>{text}</td>" for text in figures)
        rows += f"<tr><td class='text'>{html.escape(replica.id)}</td>{cells}</tr>"
    names = ("engine", "devices", "reading a prompt", "prompts", "a token alone", "all together", "holds")
    return html_table(names, rows, text=("engine",))
