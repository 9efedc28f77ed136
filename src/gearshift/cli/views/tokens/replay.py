"""What was measured of language models, and how it was predicted: tables and sentences."""

from typing import TYPE_CHECKING

from gearshift.cli.common.output import EXIT_NOT_VALID, Output
from gearshift.cli.common.tables import milliseconds, signed_percent
from gearshift.cli.views.tokens.tables import language_results

if TYPE_CHECKING:
    from gearshift.load_generator.language.stream_log import StreamReplay
    from gearshift.verbs.tokens.validate import LanguageValidation

LITTLE = 0.05
"""A change of engines that is told."""


def show(output: Output, run: "StreamReplay | dict[str, StreamReplay]", url: str) -> None:
    runs = run if isinstance(run, dict) else {"replay": run}
    output.json({"pipelines": run} if isinstance(run, dict) else run)
    output.show(language_results(f"Measured at {url}", [(name, one.result) for name, one in runs.items()]))
    for one in runs.values():
        tell_replay(output, one)


def tell_replay(output: Output, run: "StreamReplay") -> None:
    """Report the generator and what went wrong; exits with `EXIT_NOT_VALID` if the figures are not valid."""
    p50, p99, most = map(milliseconds, run.lateness_s)
    output.say(f"the generator sent {p50} late (p50), {p99} (p99), {most} at most")
    for problem, count in run.problems.items():
        output.say(f"{count} requests: {problem}")
    if not run.answered:
        output.say("not valid: no request was answered")
        raise SystemExit(EXIT_NOT_VALID)
    if not run.valid:
        output.say("not valid: the generator sent many requests late; send from a machine with more to spare")
        raise SystemExit(EXIT_NOT_VALID)


def show_validation(output: Output, run: "LanguageValidation") -> None:
    rows = [("predicted", run.predicted), ("measured", run.measured)]
    output.show(language_results("Predicted and measured", rows))
    shares = ("quality", "share_late")
    told = [f"{name} {100 * error:+.2f} points" for name, error in run.errors.items() if name in shares]
    told += [f"{name} {signed_percent(error)}" for name, error in run.errors.items() if name not in shares]
    output.say(f"predicted too much: {', '.join(told)}")
    for doubt in run.doubts:
        output.say(doubt)
    for sentence in drift_in_words(run.drift.before, run.drift.after):
        output.say(sentence)
    tell_replay(output, run.replay)


def drift_in_words(before: float, after: float) -> list[str]:
    """Engines that changed meanwhile may also be others than were profiled, all the time: faster, or slower."""
    told = [f"a lone request took {before:.3f} times what is predicted before, and {after:.3f} times after"]
    if abs(after / before - 1) > LITTLE:
        told.append(f"engines changed by {signed_percent(after / before - 1)} meanwhile, which is part of the errors")
    if min(before, after) > 1 + LITTLE or max(before, after) < 1 - LITTLE:
        told.append(
            "engines are not as they were profiled, which is part of the errors: profile them anew, or, if other work "
            "has their devices now, validate without it"
        )
    return told
