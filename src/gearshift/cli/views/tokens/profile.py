"""The output of `gearshift profile` for language models."""

from pathlib import Path

from msgspec import to_builtins
from rich.table import Table

from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import milliseconds, percent, tell_warnings
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.ranking import Ranking, rankings
from gearshift.reporting.language.words import sharing_in_words


def facts(made: LanguageProfile, out: Path) -> dict[str, object]:
    answers = made.answers
    return {
        "operator": made.operator,
        "profile": str(out),
        "sha256": made.sha256,
        "prompts": len(answers.part),
        "judged": answers.judged,
        "certainty": made.certainty,
        "ranks": made.ranks,
        "ranks_at": made.ranks_at,
        "overhead_s": made.overhead_s,
        "sharing": made.sharing,
        "models": [
            {
                "model": engine.model,
                "quality": float(answers.quality[answers.models.index(engine.model)].mean()),
                "output_tokens": float(answers.output_tokens[answers.models.index(engine.model)].mean()),
                "engine": to_builtins(engine),
            }
            for engine in made.engines
        ],
        "rankings": [to_builtins(one) for one in rankings(made)],
        "warnings": made.warnings,
    }


def show(output: Output, made: LanguageProfile, out: Path) -> None:
    output.json(facts(made, out))
    output.show(engines_table(made))
    found = rankings(made)
    if found:
        output.show(rankings_table(made, found))
        output.say("gain: quality gained over a random split between the model and the last one, over all shares")
    if not made.answers.judged:
        output.say("there is neither a judge nor a reference: quality is agreement with the last model")
    for sentence in sharing_in_words(made):
        output.say(sentence)
    tell_warnings(output, made.warnings)


def engines_table(made: LanguageProfile) -> Table:
    answers = made.answers
    columns = "model", "on", "quality", "tokens", "reading a prompt", "first token alone", "a token alone", "with all"
    shown = table(f"Engines of {made.operator}, {len(answers.part)} prompts", *columns)
    for engine in made.engines:
        row = answers.models.index(engine.model)
        prompt = int(answers.prompt_tokens[row].mean())
        first_s = engine.lone_prompt_s(min(prompt, engine.largest_batched_tokens)) + made.overhead_s
        shown.add_row(
            engine.model,
            engine.device_kind + (f" x {engine.tensor_parallel}" if engine.tensor_parallel > 1 else ""),
            percent(float(answers.quality[row].mean())),
            f"{answers.output_tokens[row].mean():.0f}",
            milliseconds(engine.reading_s),
            milliseconds(first_s),
            milliseconds(engine.decode.step_s[0]),
            f"{milliseconds(engine.decode.seconds(engine.largest_running))} x {engine.largest_running}",
        )
    return shown


def rankings_table(made: LanguageProfile, found: list[Ranking]) -> Table:
    coverages = [f"surest {100 * share:.0f} %" for share, _ in found[0].risk_coverage]
    shown = table(f"What {made.certainty} is worth", "model", "at token", "AUROC", "gain", "", *coverages)
    for one in found:
        shown.add_row(
            one.model,
            "end" if one.decide_at is None else str(one.decide_at),
            str(one.auroc),
            str(one.gain),
            "ranks" if one.ranks else "no better than chance",
            *(percent(quality) for _, quality in one.risk_coverage),
        )
    return shown
