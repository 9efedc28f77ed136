"""`gearshift replay` and `gearshift validate` of language models."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gearshift.cli.common.output import EXIT_NOT_VALID, EXIT_NOT_WITHIN, Output
from gearshift.cli.common.tables import milliseconds, percent, signed_percent
from gearshift.cli.views.tokens.tables import language_results
from gearshift.errors import require
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.store import read_language_profile
from gearshift.verbs.tokens.inputs import plan_and_language_profile
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.load_generator.language.stream_log import StreamReplay
    from gearshift.verbs.tokens.validate import LanguageValidation

LITTLE = 0.05
"""A change of engines that is told."""


def replay_of_language(
    output: Output, url: str, trace: Trace, profile: Path, refused: Mapping[str, object], options: Mapping[str, Any]
) -> None:
    """Replay and print; `options` are those of `replay`, `refused` flags that do not go with language models."""
    from gearshift.verbs.tokens.replay import replay_language, trace_to_send

    _refuse(refused)
    require(
        url.startswith(("http://", "https://")),
        f"{url} is no URL",
        remedy="serve the plan, and name the server's URL up to /v1; or compare both with `gearshift validate`",
    )
    measured = read_language_profile(profile)
    for told in trace_to_send(trace, measured.engines, own_prompts=options["project"] is not None)[1]:
        output.say(told)
    with output.progress() as tell:
        run = replay_language(
            url,
            trace,
            measured,
            project=options["project"],
            model=options["model"],
            key=options["api_key"],
            longest_s=options["longest_s"],
            seed=options["seed"],
            progress=lambda done, total: tell("replaying", done / total),
        )
    output.json(run)
    output.show(language_results(f"Measured at {url}", [("replay", run.result)]))
    tell_replay(output, run)


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


def validate_of_language(
    output: Output,
    plan: Path,
    trace: Trace,
    bounds: Mapping[str, float | None],
    options: Mapping[str, Any],
) -> None:
    """Validate and print; `bounds` are on the errors of p95 TTFT and of shares."""
    from gearshift.verbs.tokens.replay import trace_to_send
    from gearshift.verbs.tokens.validate import validate_language

    require(options["backend"] != "ray", "language models run in engines", remedy="leave out --backend ray")
    emulated = options["backend"] == "emulated"
    engines = engine_tables(*plan_and_language_profile(plan, options["profile"])).engines
    for told in trace_to_send(trace, engines, own_prompts=not emulated)[1]:
        output.say(told)
    with output.progress() as tell:
        run = validate_language(
            plan,
            trace,
            profile=options["profile"],
            project=options["project"],
            emulated=emulated,
            longest_s=options["longest_s"],
            seed=options["seed"],
            progress=lambda done, total: tell("serving and replaying", done / total),
        )
    output.json(run)
    show_validation(output, run)
    broken = broken_bounds(run, bounds)
    for sentence in broken:
        output.say(f"not within: {sentence}")
    if broken:
        raise SystemExit(EXIT_NOT_WITHIN)


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


def broken_bounds(run: "LanguageValidation", bounds: Mapping[str, float | None]) -> list[str]:
    within, points = bounds["within"], bounds["within_points"]
    broken = []
    if within is not None and abs(run.errors["ttft_p95"]) > within:
        broken.append(f"p95 of the time to the first token is off by {signed_percent(run.errors['ttft_p95'])}")
    far = [name for name in ("quality", "share_late") if points is not None and abs(run.errors[name]) > points]
    return [*broken, *(f"{name.replace('_', ' ')} is off by {percent(run.errors[name])}" for name in far)]


def _refuse(given: Mapping[str, object]) -> None:
    for flag, value in given.items():
        require(not value, f"{flag} is given, and the profile is of language models", remedy="leave it out")
