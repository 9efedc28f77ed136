"""Plans, profiles and results of language models as tables."""

from collections.abc import Sequence

from msgspec import UNSET
from rich.table import Table

from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import milliseconds, percent, tell_warnings
from gearshift.gear import GearPlan
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, LanguageProfile
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.reporting.headline import asks_for_devices, cost_in_words, counted, percentile_name
from gearshift.reporting.language.words import (
    cascade_text,
    discarded_share,
    limit_of,
    load_text,
    most_outstanding,
    sharing_in_words,
)
from gearshift.result import ServingResult, TokenFigures
from gearshift.support.numbers import digits


def language_results(title: str, rows: Sequence[tuple[str, ServingResult]]) -> Table:
    """Quality, and the percentiles of first tokens, tokens and answers."""
    counted = ", ".join(str(count) for count in dict.fromkeys(result.requests for _, result in rows))
    columns = (
        "",
        "quality",
        "TTFT p50",
        "p95",
        "per token p95",
        "total p50",
        "p95",
        "late",
        "answered by",
        "discarded",
    )
    made = table(f"{title}, {counted} requests", *columns)
    for name, result in rows:
        tokens = result.tokens
        told = ["", "", "", "", ""] if tokens is UNSET else _times(tokens)
        shares = "" if tokens is UNSET else answered_by(tokens)
        made.add_row(
            name,
            f"{result.accuracy:.4f}",
            *told,
            percent(result.share_late),
            shares,
            "" if tokens is UNSET else percent(discarded_share(tokens)),
        )
    return made


def _times(tokens: TokenFigures) -> list[str]:
    seconds = (tokens.ttft_s.p50, tokens.ttft_s.p95, tokens.per_token_s.p95, tokens.total_s.p50, tokens.total_s.p95)
    return [milliseconds(each) for each in seconds]


def answered_by(tokens: TokenFigures) -> str:
    return ", ".join(f"{model} {percent(share)}" for model, share in tokens.answered_by.items())


def show_language_gears(output: Output, plan: GearPlan) -> None:
    pipeline = plan.pipeline
    name, _ = limit_of(pipeline.objective)
    columns = (
        "gear",
        "cascade",
        "load from",
        "to",
        "quality",
        f"{name} {percentile_name(pipeline.objective)}",
        "at rate",
    )
    made = table(f"Gears of {plan.name}", *columns, "most outstanding")
    made.columns[1].justify = "left"
    for number, gear in enumerate(pipeline.gears):
        predicted = gear.predicted
        made.add_row(
            str(number),
            cascade_text(gear.cascade),
            load_text(gear.load_range.from_, pipeline),
            load_text(gear.load_range.to, pipeline),
            *(
                ("", "", "")
                if predicted is None
                else (
                    f"{predicted.accuracy:.4f}",
                    milliseconds(predicted.latency_p95_s),
                    f"{digits(predicted.load_qps)}/s",
                )
            ),
            most_outstanding(plan, gear),
        )
    output.show(made)


def placement_text(plan: GearPlan) -> str:
    """For example "small on gpu-0 (2,000 tokens of context), large on gpu-0 and gpu-1 (40,000)"."""
    parts = []
    for replica in plan.placement.replicas:
        room = "" if replica.kv_tokens is UNSET else f" ({replica.kv_tokens:,} tokens of context)"
        parts.append(f"{replica.model} on {' and '.join(replica.device_ids)}{room}")
    return "; ".join(parts)


def language_headline(plan: GearPlan) -> str:
    result, pipeline = plan.predictions.get(plan.name), plan.pipeline
    name, limit_s = limit_of(pipeline.objective)
    if result is None:
        return "nothing is predicted"
    within = "" if limit_s is None else f" (asked: within {milliseconds(limit_s)})"
    at = percentile_name(pipeline.objective)
    reached = milliseconds(result.latency_s.at(pipeline.objective.percentile))
    devices = ", ".join(filter(None, (counted(len(plan.hardware.devices), "device"), cost_in_words(plan))))
    figures = f"quality {result.accuracy:.4f}", f"{name} {at} {reached}{within}"
    parts = figures if limit_s is None else figures[::-1]
    return "; ".join([devices, *parts] if asks_for_devices(plan) else [*parts, devices])


def _ranks_text(profile: LanguageProfile, model: str) -> str:
    """The tokens at which the model's certainty ranks its answers."""
    at = [one for one in DECIDE_AT_TOKENS if profile.ranks_by(model, one)]
    everywhere = "yes" if at else "no"
    return everywhere if len(at) in (0, len(DECIDE_AT_TOKENS)) else ", ".join(str(one or "end") for one in at)


def show_language_profile(output: Output, profile: LanguageProfile) -> None:
    made = table(
        "Models",
        "model",
        "device",
        "reading a prompt",
        "prefill",
        "decode alone",
        "with all",
        "holds",
        "runs",
        "quality A",
        "B",
        "ranks",
    )
    for engine in profile.engines:
        row = profile.models.index(engine.model)
        quality, part = profile.answers.quality[row], profile.answers.part
        parallel = f" tp{engine.tensor_parallel}" if engine.tensor_parallel > 1 else ""
        chunk = engine.largest_batched_tokens
        made.add_row(
            engine.model,
            f"{engine.device_kind}{parallel}",
            milliseconds(engine.reading_s),
            f"{chunk / engine.prefill.seconds(chunk):,.0f} tokens/s",
            f"{milliseconds(engine.decode.seconds(1))}/token",
            f"{engine.largest_running / engine.decode.seconds(engine.largest_running):,.0f} tokens/s",
            f"{engine.kv_blocks * engine.block_tokens:,} tokens",
            str(engine.largest_running),
            f"{quality[part == PART_A].mean():.4f}",
            f"{quality[part == PART_B].mean():.4f}",
            _ranks_text(profile, engine.model),
        )
    output.show(made)
    for sentence in sharing_in_words(profile):
        output.say(sentence)
    tell_warnings(output, profile.warnings)
    certainty = f"certainty is {profile.certainty}"
    output.say(f"{len(profile.answers.part)} prompts; {certainty}; sha256 {profile.sha256[:12]}")
    without = [model for model in profile.models if model not in profile.ranks]
    if without:
        output.say(f"the certainty of {', '.join(without)} ranks nothing: plans split requests by share there")
