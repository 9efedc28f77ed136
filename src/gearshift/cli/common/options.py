"""Options that several verbs share, and options made from a settings struct."""

import math
import shlex
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import click
import msgspec
from click.core import ParameterSource

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.traces.doubts import doubts_about_trace
from gearshift.traces.network import Uplink, read_network
from gearshift.traces.read import read_trace
from gearshift.verbs.plan_request import trace_for
from gearshift.workload import Reading, Trace

PATH = click.Path(path_type=Path)
SEED = click.IntRange(min=0)
TRACE_OPTIONS = ("rate_scale", "start_s", "duration_s", "arrivals")
"""Options that change a trace, without its path and the seed."""

UNCHANGED = Reading(file_sha256="")

Command = Callable[..., None]


def trace_options(function: Command) -> Command:
    """Add `--trace` and the options that change it; `the_trace` reads them."""
    trace = click.option("--trace", type=PATH, required=True, help="CSV: column arrival_s, or second, requests.")
    return trace(_reading_options(rate_scale=1.0, start_s=0.0, arrivals="poisson", seed=0)(function))


def plan_trace_options(function: Command) -> Command:
    """Add the same, for a verb that by default takes the plan's own trace (`take_trace`)."""
    trace = click.option("--trace", type=PATH, help="Another trace than the plan names, as CSV.")
    return trace(_reading_options()(function))


def _reading_options(**defaults: Any) -> Callable[[Command], Command]:
    def option(flag: str, help_text: str, **kind: Any) -> Callable[[Command], Command]:
        name = flag.removeprefix("--").replace("-", "_")
        if name in defaults:
            return click.option(flag, default=defaults[name], show_default=True, help=help_text, **kind)
        return click.option(flag, help=help_text if defaults else f"{help_text}  [default: as for the plan]", **kind)

    options = (
        option("--rate-scale", "Multiply the trace's rate.", type=float),
        option("--start-s", "Begin this many seconds in.", type=float),
        option("--duration-s", "Keep only so many seconds.", type=float),
        option(
            "--arrivals",
            "How arrivals are drawn within a second of counts.",
            type=click.Choice(["uniform", "poisson"]),
        ),
        option("--seed", "Seed of everything that is drawn.", type=SEED),
    )

    def decorate(function: Command) -> Command:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def served_options(function: Command) -> Command:
    options = (
        click.option(
            "--backend",
            type=click.Choice(["local", "emulated", "ray"]),
            default="local",
            show_default=True,
            help="Models in processes here, devices that sleep for the profiled time, or models on a Ray cluster.",
        ),
        click.option("--profile", type=PATH, help="The plan's profile, where it has moved."),
        click.option("--project", type=PATH, help="The gearshift.toml with the models, where it has moved."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def generator_options(function: Command) -> Command:
    options = (
        click.option("--processes", type=int, default=1, show_default=True, help="Send from so many processes."),
        click.option("--connections", type=int, default=2048, show_default=True, help="Requests under way, at most."),
        click.option(
            "--longest-s", type=float, default=30.0, show_default=True, help="Give a request up after so long."
        ),
        click.option(
            "--largest-lateness-ms",
            type=float,
            help="The generator may send so late at p50, p95 and p99, instead of a tenth of the latency there.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


scope_option = click.option(
    "--scope",
    type=click.Choice(["every-range", "trace"]),
    default="every-range",
    show_default=True,
    help="Where the objective must hold: in every load range and on the trace, or on the trace alone.",
)


def network_options(function: Command) -> Command:
    options = (
        click.option("--network", type=PATH, help="A log of bandwidth that requests come over, as of 4G."),
        click.option("--request-kb", type=float, help="With --network: so many kilobytes (1000 bytes) each."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def the_uplink(network: Path | None, request_kb: float | None, slo_s: float | None) -> Uplink | None:
    require(
        (network is None) == (request_kb is None),
        "one of --network and --request-kb is missing",
        remedy="give both, or neither",
    )
    if network is None or request_kb is None:
        return None
    require_positive("--request-kb", request_kb, "kilobytes")
    return Uplink(read_network(network), 1e3 * request_kb, slo_s)


def listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def seconds_of(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3


def numbers(value: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of whole numbers; give some from 1 on, as in 1,2,4") from None


def devices(value: str) -> int | Path:
    try:
        return int(value)
    except ValueError:
        return Path(value)


def command_line(**changed: object) -> str:
    """Return the user's command line, as given by flags, with changes; None drops an option."""
    context = click.get_current_context()
    words = [f"gearshift {context.info_name}"]
    for parameter in context.command.params:
        name = str(parameter.name)
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        value = changed.get(name, context.params[name] if given else None)
        if value is None or value is False:
            continue
        flag = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
        text = f"{value:.10g}" if isinstance(value, float) else str(value)
        words += flag if value is True else [*flag, shlex.quote(text)]
    return " ".join(words)


def the_trace(
    trace: Path, rate_scale: float, start_s: float, duration_s: float | None, arrivals: str, seed: int
) -> Trace:
    read = read_trace(
        trace,
        rate_scale=rate_scale,
        start_s=start_s,
        duration_s=duration_s,
        arrivals=arrivals,  # type: ignore[arg-type]
        seed=seed,
    )
    _warn_of(read)
    return read


def _warn_of(trace: Trace) -> None:
    for sentence in doubts_about_trace(trace):
        click.echo(f"warning: {sentence}", err=True)


def take_trace(say: Callable[[str], None], plan: GearPlan | None, path: object, options: dict[str, Any]) -> Trace:
    """Read the trace of `plan_trace_options`, removing them from `options`, except the seed.

    Say so if the plan's own trace is read with changes, or is not the one the plan was made from.
    """
    given = {name: options.pop(name) for name in ("trace", *TRACE_OPTIONS)}
    made = trace_for(plan, str(path), seed=options["seed"], notice=say, **given)
    if plan is not None and (words := _read_as_for_plan(plan.trace.reading, made.reading, given)):
        say(f"the trace is read as for the plan: {words}")
    if given["trace"] is not None:
        _warn_of(made)
    return made


def _read_as_for_plan(source: Reading | None, made: Reading | None, given: dict[str, Any]) -> str:
    if source is None or made is None or made.file_sha256 != source.file_sha256:
        return ""
    taken = [name for name in ("rate_scale", "start_s", "duration_s") if given[name] is None]
    values = {name: getattr(source, name) for name in taken}
    changed = {name: value for name, value in values.items() if value != getattr(UNCHANGED, name)}
    return " ".join(f"{flag_of(name)} {value:g}" for name, value in changed.items())


def require_positive(option: str, value: float | None, unit: str) -> None:
    if value is not None:
        require(0 < value < math.inf, f"{option} is {value:g}", remedy=f"give a positive number of {unit}")


def require_one_latency(p95_ms: object, latency_ms: object, percentile: float | None) -> None:
    require(p95_ms is None or latency_ms is None, "--p95-ms and --latency-ms are both given", remedy="give one of them")
    require(
        p95_ms is None or percentile is None,
        "--p95-ms and --percentile are both given",
        remedy="give --latency-ms instead",
    )


def settings_options(settings: type[msgspec.Struct]) -> Callable[[Command], Command]:
    """Add an option per field of a settings struct, with its default and its description."""

    def decorate(function: Command) -> Command:
        hints = get_type_hints(settings, include_extras=True)
        for field in reversed(msgspec.structs.fields(settings)):
            type_, help_text = _described(hints[field.name])
            option = click.option(
                flag_of(field.name),
                type=type_,
                is_flag=type_ is bool,
                default=field.default,
                show_default=True,
                help=help_text,
            )
            function = option(function)
        return function

    return decorate


def flag_of(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _described(hint: Any) -> tuple[Any, str]:
    if get_origin(hint) is not Annotated:
        return hint, ""
    type_, *metas = get_args(hint)
    if get_origin(type_) is Literal:
        type_ = click.Choice(get_args(type_))
    else:
        type_ = next((inner for inner in get_args(type_) if inner is not NoneType), type_)
    return type_, next((m.description for m in metas if isinstance(m, msgspec.Meta) and m.description), "")
