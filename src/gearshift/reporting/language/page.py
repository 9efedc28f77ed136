"""The page about a plan of language models: in tokens, by the load that its meter reads."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.gear import GearPlan
from gearshift.planner.one_alone import OneAlone
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, LanguageProfile
from gearshift.profiles.profile import PART_B
from gearshift.reporting.charts import Loads, loads_chart
from gearshift.reporting.drawing import scales
from gearshift.reporting.drawing.charts import Chart
from gearshift.reporting.drawing.page import Below, Body, Bullets, Folded, Section, Table, Tiles, of_chart
from gearshift.reporting.headline import percentile_name
from gearshift.reporting.language.words import UNITS, cascade_text, discarded_share, limit_of, most_outstanding
from gearshift.reporting.plan_parts import PROMISED, alone_below, asked_in_words, cost_tiles, costs_below, plan_facts
from gearshift.reporting.run_charts import charts_of, latency_chart
from gearshift.reporting.runs import Answers, RunSeries, series
from gearshift.reporting.shown import RangePoint, Shown
from gearshift.result import ServingResult
from gearshift.simulator.engines.language_simulation import LanguageSimulation
from gearshift.support.numbers import digits, load_in_words, milliseconds, percent

Floats = NDArray[np.float64]


def tokens_shown(
    plan: GearPlan, profile: LanguageProfile, run: LanguageSimulation | None = None, alone: Sequence[OneAlone] = ()
) -> Shown:
    """Without a `run` of its trace there are the figures that the plan predicts; `alone` is each model by itself."""
    return Shown(
        plan=plan,
        name=plan.name,
        ranges=[
            RangePoint(
                gear=f"{n}",
                load=gear.load_range,
                cascade=cascade_text(gear.cascade),
                predicted=gear.predicted,
                answered=dict(zip(profile.models, answered_shares(gear.cascade, profile).tolist(), strict=True)),
            )
            for n, gear in enumerate(plan.pipeline.gears)
        ],
        models=profile.models,
        runs=() if run is None else [_series_of(plan, profile, run)],
        alone=alone,
        warnings=profile.warnings,
    )


def tokens_sections(shown: Shown, profile: LanguageProfile) -> list[Section | None]:
    plan = shown.plan
    result = shown.runs[0].result if shown.runs else plan.predictions.get(plan.name)
    works = Section(
        "How it works",
        "A gear is the cascade for one range of outstanding work. A stage decides by its certainty at a token, or by "
        "the request's id where its certainty ranks nothing; what was shown to a client is never taken back.",
        [
            of_chart(loads_of(shown), Below),
            Folded("All gears as a table", "", [_gears_table(plan)]),
        ],
    )
    assumed: list[Body] = [plan_facts(plan), _engines_table(plan, profile)]
    return [
        _promised(shown, result),
        works,
        *map(of_chart, charts_of(shown)),
        of_chart(latency_chart(shown)),
        _tokens(plan, result),
        Section(
            "What was assumed",
            "Predictions hold for this traffic, these engines and these prompts.",
            [*assumed, Bullets(shown.warnings)] if shown.warnings else assumed,
        ),
    ]


def loads_of(shown: Shown) -> Chart | None:
    unit = UNITS[shown.pipeline.load_unit]
    sentence = (
        "Load is the work that is outstanding: what engines have and what waits. As it rises, more requests go to "
        "models that take less of it. Shares are those on recorded answers of part B."
    )
    time = f"{limit_of(shown.pipeline.objective)[0]} "
    return loads_chart(shown, Loads(sentence, f"outstanding work ({unit})", f" {unit}", "quality", time, scales.scaled))


def _promised(shown: Shown, result: ServingResult | None) -> Section:
    plan, objective = shown.plan, shown.pipeline.objective
    sentence = f"Asked for: {asked_in_words(objective, 'quality') or 'nothing'}. Predicted by simulation of the trace."
    if result is None or result.tokens is UNSET:
        return Section(PROMISED, sentence)
    (low, high), tokens, late = result.accuracy_interval, result.tokens, f"; {percent(result.share_late)} late"
    kinds = ", ".join(dict.fromkeys(device.kind for device in plan.hardware.devices))
    tiles = [
        ("devices", str(len(plan.hardware.devices)), kinds),
        *cost_tiles(plan),
        ("quality", percent(result.accuracy), f"{percent(low)} to {percent(high)} (95 % sure)"),
    ]
    for metric, words, of in (
        ("ttft", "TTFT", tokens.ttft_s),
        ("per_token", "per token", tokens.per_token_s),
        ("total", "whole answers", tokens.total_s),
    ):
        more = f"p50 {milliseconds(of.p50)}{late if metric == objective.metric else ''}"
        tiles.append((f"{words} p95", milliseconds(of.p95), more))
    alone = alone_below(result, shown.alone, right="quality", time=f"{limit_of(objective)[0]} p95")
    return Section(PROMISED, sentence, [Tiles(tiles), costs_below(shown, result), alone])


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


def _gears_table(plan: GearPlan) -> Table:
    rows = []
    for n, gear in enumerate(plan.pipeline.gears):
        one, load = gear.predicted, load_in_words(gear.load_range.from_, gear.load_range.to)
        figures = ["", "", ""]
        if one is not None:
            figures = [percent(one.accuracy), milliseconds(one.latency_p95_s), f"{digits(one.load_qps)}/s"]
        rows.append([f"{n}", load, cascade_text(gear.cascade), *figures, most_outstanding(plan, gear)])
    objective, load = plan.pipeline.objective, f"outstanding work ({UNITS[plan.pipeline.load_unit]})"
    time = f"{limit_of(objective)[0]} {percentile_name(objective)}"
    return Table(("gear", load, "cascade", "quality", time, "at rate", "most outstanding"), rows, text=("cascade",))


def _series_of(plan: GearPlan, profile: LanguageProfile, run: LanguageSimulation) -> RunSeries:
    pipeline, metric = plan.pipeline, plan.pipeline.objective.metric
    times: Mapping[str, Floats] = {
        "ttft": run.ttft_ns / NS_PER_S,
        "per_token": run.per_token_s,
        "total": run.total_ns / NS_PER_S,
    }
    latency_s = times["total" if metric in (UNSET, "latency") else str(metric)]
    arrivals_s, known = run.workload.arrivals_ns / NS_PER_S, ~np.isnan(latency_s)
    answers = Answers(
        arrivals_s=arrivals_s,
        answered_s=arrivals_s[known],
        latency_s=latency_s[known],
        quality=run.quality(profile)[known],
        shifts=[(at / NS_PER_S, gear) for at, gear in run.shifts.tolist()],
    )
    of_gears = [np.nan if gear.predicted is None else gear.predicted.accuracy for gear in pipeline.gears]
    result = run.result(profile, pipeline.objective)
    return series("gear plan", "predicted", result, answers, latency_s[known], of_gears)


def _tokens(plan: GearPlan, result: ServingResult | None) -> Section | None:
    if result is None or result.tokens is UNSET:
        return None
    tokens = result.tokens
    times = [
        (name, *map(milliseconds, (of.mean, of.p50, of.p95, of.p99)))
        for name, of in (
            ("to the first token", tokens.ttft_s),
            ("between tokens", tokens.per_token_s),
            ("whole answers", tokens.total_s),
        )
    ]
    models = [
        (model, percent(tokens.answered_by.get(model, 0.0)), f"{tokens.discarded_tokens.get(model, 0):,}")
        for model in dict.fromkeys([*plan.placement.models, *tokens.answered_by, *tokens.discarded_tokens])
    ]
    sentence = (
        f"{tokens.output_tokens:,} tokens were shown to clients; {percent(discarded_share(tokens))} of all that were "
        "made were discarded, by models that did not answer in the end. All of it is predicted: `gearshift validate` "
        "serves the plan and sets measured figures beside these."
    )
    return Section(
        "Times and tokens",
        sentence,
        [
            Table(("time", "mean", "p50", "p95", "p99"), times, text=("time",)),
            Table(("model", "answers", "discarded tokens"), models, text=("model",)),
        ],
    )


def _engines_table(plan: GearPlan, profile: LanguageProfile) -> Table:
    """The engines that the plan places: steps, and the tokens of context that they hold."""
    rows, kinds = list[list[str]](), {device.id: device.kind for device in plan.hardware.devices}
    for replica in plan.placement.replicas:
        kind, parallel = kinds[replica.device_ids[0]], replica.tensor_parallel
        engine = profile.engine(replica.model, device_kind=kind, tensor_parallel=parallel)
        chunk, most = engine.largest_batched_tokens, engine.largest_running
        held = engine.kv_blocks * engine.block_tokens if replica.kv_tokens is UNSET else replica.kv_tokens
        rows.append(
            [
                replica.id,
                ", ".join(replica.device_ids),
                milliseconds(engine.reading_s),
                f"{digits(chunk / engine.prefill.seconds(chunk))} tokens/s",
                milliseconds(engine.decode.seconds(1)),
                f"{digits(most / engine.decode.seconds(most))} tokens/s",
                f"{held:,} tokens",
            ]
        )
    names = ("engine", "devices", "reading a prompt", "prompts", "a token alone", "all together", "holds")
    return Table(names, rows, text=("engine",))
