"""Why a plan of language models is as it is, as tables and sentences."""

from typing import TYPE_CHECKING

from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import milliseconds, percent
from gearshift.cli.views.tokens.tables import language_results
from gearshift.gear import GearPlan
from gearshift.reporting.language.words import (
    cascade_text,
    ended_early_text,
    limit_of,
    load_text,
    placed_sharing_in_words,
)
from gearshift.support.numbers import digits
from gearshift.verbs.kinds.kind import Inputs

if TYPE_CHECKING:
    from gearshift.planner.language.compared.explain import GearExplanation, LanguageExplanation


def show(output: Output, explained: "LanguageExplanation", inputs: Inputs) -> None:
    made = inputs.plan
    if made.unfinished:
        output.say(ended_early_text(made))
    _show_gears(output, explained, made)
    for told in placed_sharing_in_words(made, inputs.records):
        output.say(told)


def _show_gears(output: Output, explained: "LanguageExplanation", made: GearPlan) -> None:
    columns = ("gear", "cascade", "load to", "quality", "device-seconds", "tokens made", "discarded", "of requests")
    rows = table("A request of each gear", *columns)
    rows.columns[1].justify = "left"
    for gear in explained.gears:
        rows.add_row(
            str(gear.gear),
            cascade_text(gear.cascade),
            load_text(gear.load_range.to, made.pipeline),
            f"{gear.quality:.4f}",
            digits(gear.device_s),
            f"{sum(gear.output_tokens.values()):.0f}",
            percent(gear.discarded),
            percent(gear.share_of_requests),
        )
    output.show(rows)
    output.say("")
    name, limit_s = limit_of(explained.objective)
    for gear in explained.gears:
        output.say(f"gear {gear.gear}: {sentence(gear, name, limit_s)}")
    output.say("")
    known = [(one.name, one.predicted) for one in explained.alone if one.predicted is not None]
    output.show(
        language_results(
            "The trace, and one model alone on the same devices", [("gear plan", explained.replayed), *known]
        )
    )
    for one in explained.alone:
        if one.reason:
            output.say(f"{one.name}: {one.reason}")
    output.say(
        f"with certainties permuted, the trace's quality changes by {-explained.certainty_worth:+.4f}: "
        "that much of it comes from knowing which answers to trust, and the rest from splitting under load"
    )


def sentence(gear: "GearExplanation", name: str, limit_s: float | None) -> str:
    following = gear.next
    if following is None:
        return "no cascade of the placed models is more accurate"
    named = f"{cascade_text(following.cascade)} ({following.quality:.4f})"
    if following.breaks == "nothing":
        return f"{named} would hold on this trace, which no other hour of traffic need allow"
    allowed = "" if limit_s is None else f", allowed are {milliseconds(limit_s)}"
    late = percent(following.share_late)
    return f"{named} would take {milliseconds(following.latency_s)} of {name} on the trace{allowed}: {late} late"
