"""Options of the command line alone that several verbs share: a trace, a network, latencies."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from gearshift.cli.common.named import Repeated, named_paths
from gearshift.cli.common.option_table import PATH, Command, flag_of, in_order, require_positive
from gearshift.cli.common.output import notice
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.traces.read import doubts_about_trace, read_trace
from gearshift.verbs.common.inputs import trace_for, traces_for
from gearshift.verbs.kinds.kind import Apart, Kind
from gearshift.verbs.kinds.registry import Found
from gearshift.workload import Reading, Trace

if TYPE_CHECKING:
    from gearshift.traces.network import Uplink

SEED = click.IntRange(min=0)
TRACE_OPTIONS = ("rate_scale", "start_s", "duration_s", "arrivals")
"""Options that change a trace, without its path and the seed."""

UNCHANGED = Reading(file_sha256="")


def traces_options(function: Command) -> Command:
    """Add `--trace`, which may be given for each of several operators, and the options that change it."""
    trace = click.option(
        "--trace",
        cls=Repeated,
        metavar="[NAME=]FILE",
        required=True,
        help="CSV: column arrival_s, or second, requests; for several operators NAME=FILE each, on one clock.",
    )
    return trace(_reading_options(rate_scale=1.0, start_s=0.0, arrivals="poisson", seed=0)(function))


def plan_traces_options(function: Command) -> Command:
    """Add the same, for a verb that takes a trace of each pipeline (`take_traces`)."""
    trace = click.option(
        "--trace",
        cls=Repeated,
        metavar="[NAME=]FILE",
        help="Another trace than the plan names, as CSV; with several pipelines NAME=FILE for each, on one clock.",
    )
    return trace(_reading_options()(function))


def _reading_options(**defaults: Any) -> Callable[[Command], Command]:
    """Options without a default are by default those that the plan's trace was read with."""

    def option(flag: str, help_text: str, **kind: Any) -> Callable[[Command], Command]:
        default = defaults.get(flag.removeprefix("--").replace("-", "_"))
        text = help_text if defaults else f"{help_text}  [default: as for the plan]"
        return click.option(flag, default=default, show_default=True, help=text, **kind)

    return in_order(
        option("--rate-scale", "Multiply the trace's rate.", type=float),
        option("--start-s", "Begin this many seconds in.", type=float),
        option("--duration-s", "Keep only this many seconds.", type=float),
        option(
            "--arrivals",
            "How arrivals are drawn within a second of counts.",
            type=click.Choice(["uniform", "poisson"]),
        ),
        option("--seed", "Seed of everything that is drawn.", type=SEED),
    )


network_options = in_order(
    click.option("--network", type=PATH, help="A log of the bandwidth over which requests are sent, as of 4G."),
    click.option("--request-kb", type=float, help="With --network: kilobytes (1000 bytes) per request."),
)


def the_uplink(network: Path | None, request_kb: float | None, slo_s: float | None) -> "Uplink | None":
    require(
        (network is None) == (request_kb is None),
        "one of --network and --request-kb is missing",
        remedy="give both, or neither",
    )
    if network is None or request_kb is None:
        return None
    require_positive("--request-kb", request_kb, "kilobytes")
    from gearshift.traces.network import Uplink, read_network

    return Uplink(read_network(network), 1e3 * request_kb, slo_s)


def seconds_of(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3


def command_line(**changed: object) -> str:
    """Return the user's command line, as given by flags, with changes; None drops an option."""
    context = click.get_current_context()
    words = [f"gearshift {context.info_name}"]
    for parameter in context.command.params:
        name = str(parameter.name)
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        value = changed.get(name, context.params[name] if given else None)
        flag = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
        for one in value if type(value) is tuple else (value,):
            if one is None or one is False:
                continue
            text = f"{one:.10g}" if isinstance(one, float) else str(one)
            words += flag if one is True else [*flag, shlex.quote(text)]
    return " ".join(words)


def the_trace(trace: Path, **options: Any) -> Trace:
    """Read the trace of `trace_options`."""
    read = read_trace(trace, **options)
    _warn_of(read)
    return read


def _warn_of(trace: Trace) -> None:
    for sentence in doubts_about_trace(trace):
        notice(f"warning: {sentence}")


def read_traces(
    say: Callable[[str], None],
    kind: Kind,
    measured: Any,
    given: Sequence[str],
    reading: Mapping[str, Any],
    *,
    only: bool = False,
) -> tuple[Any, Any]:
    """The path of the trace and the trace, or both by operator where profiles are `measured` of several.

    What no model can take is left out, and said. The last of several traces counts, unless `only` one may be given.
    """
    if isinstance(measured, Mapping):
        if len(measured) == 1 and len(given) == 1 and "=" not in given[0]:
            given = [f"{next(iter(measured))}={given[0]}"]
        paths = named_paths("--trace", given, measured)
        return paths, {name: the_trace(path, **reading) for name, path in paths.items()}
    path = the_only_trace(tuple(given), getattr(measured, "operator", "")) if only else Path(given[-1])
    kept, left_out = kind.answerable(measured, {"": the_trace(path or Path(), **reading)})
    for sentence in left_out:
        say(sentence)
    return path, kept[""]


def take_trace(say: Callable[[str], None], plan: GearPlan | None, path: object, options: dict[str, Any]) -> Trace:
    """Read the only trace of `plan_traces_options`, removing them from `options`, except the seed.

    Say so if the plan's own trace is read with changes, or is not the one the plan was made from.
    """
    given = {name: options.pop(name) for name in ("trace", *TRACE_OPTIONS)}
    given["trace"] = the_only_trace(given["trace"], "" if plan is None else plan.name)
    made = trace_for(plan, str(path), seed=options["seed"], notice=say, **given)
    if plan is not None and (words := _read_as_for_plan(plan.trace.reading, made.reading, given)):
        say(f"the trace is read as for the plan: {words}")
    if given["trace"] is not None:
        _warn_of(made)
    return made


Answerable = Callable[[Mapping[str, Trace]], tuple[Mapping[str, Trace], Sequence[str]]]


def take_traces(
    say: Callable[[str], None],
    plan: GearPlan | None,
    path: object,
    options: dict[str, Any],
    only: str | None = None,
    answerable: Answerable = lambda traces: (traces, ()),
) -> dict[str, Trace]:
    """As `take_trace`, for all pipelines of a plan, or `only` one, or those that are named for a URL.

    That of the only pipeline of a URL has no name.

    `answerable` leaves out requests that the plan's models cannot take; what it says is said.
    """
    is_one = len(plan.pipelines) == 1 if plan is not None else not are_named(options["trace"])
    if is_one:
        made = {"" if plan is None else plan.name: take_trace(say, plan, path, options)}
    else:
        made = _take_traces(say, plan, path, options, only)
    kept, left_out = answerable(made)
    for sentence in left_out:
        say(sentence)
    return dict(kept)


def _take_traces(
    say: Callable[[str], None], plan: GearPlan | None, path: object, options: dict[str, Any], only: str | None
) -> dict[str, Trace]:
    given = {name: options.pop(name) for name in ("trace", *TRACE_OPTIONS)}
    if only is not None and not are_named(given["trace"]):
        given["trace"] = tuple(f"{only}={path}" for path in given["trace"])
    names = [each.partition("=")[0] for each in given["trace"]] if plan is None else list(plan.pipelines)
    traces, how = named_paths("--trace", given.pop("trace"), names), {"seed": options["seed"], **given}
    if plan is None:
        made = {name: trace_for(None, str(path), trace, notice=say, **how) for name, trace in traces.items()}
    else:
        made = traces_for(plan, str(path), traces, only=only, notice=say, **how)
    for name in traces:
        _warn_of(made[name])
    return made


def _read_as_for_plan(source: Reading | None, made: Reading | None, given: dict[str, Any]) -> str:
    if source is None or made is None or made.file_sha256 != source.file_sha256:
        return ""
    taken = [name for name in ("rate_scale", "start_s", "duration_s") if given[name] is None]
    values = {name: getattr(source, name) for name in taken}
    changed = {name: value for name, value in values.items() if value != getattr(UNCHANGED, name)}
    return " ".join(f"{flag_of(name)} {value:g}" for name, value in changed.items())


def require_one_latency(p95_ms: object, latency_ms: object, percentile: float | None) -> None:
    require(p95_ms is None or latency_ms is None, "--p95-ms and --latency-ms are both given", remedy="give one of them")
    require(
        p95_ms is None or percentile is None,
        "--p95-ms and --percentile are both given",
        remedy="give --latency-ms instead",
    )


def the_only_trace(given: tuple[str, ...], name: str = "") -> Path | None:
    """The trace of the only pipeline, as FILE or NAME=FILE."""
    require(len(given) <= 1, f"--trace is given {len(given)} times, for one pipeline", remedy="leave all but one out")
    return Path(given[0].removeprefix(f"{name}=")) if given else None


class GivenOption(NamedTuple):
    """An option that differs from its default: its parameter, its flag and its value."""

    parameter: str
    flag: str
    value: object


def given_options() -> dict[str, GivenOption]:
    """The options of the running command that were given, by parameter and by the keyword that they set."""
    context, found = click.get_current_context(), {}
    for one in context.command.params:
        name, value = str(one.name), context.params.get(str(one.name))
        by_hand = context.get_parameter_source(name) not in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
        if isinstance(one, click.Option) and by_hand and value != one.get_default(context):
            found[name] = GivenOption(name, one.opts[0], value)
            found[getattr(one, "keyword", name)] = found[name]
    return found


def require_supported(found: Found, verb: str) -> None:
    """Refuse options that the kind lacks; messages name their flags."""
    given = given_options()
    values = {name: one.value for name, one in given.items()}
    found.kind.require_supported(verb, found.shape, values, spelt=lambda keyword: given[keyword].flag)


def require_apart(apart: Mapping[str, Apart]) -> None:
    """Refuse the first two options that do not go together; `apart` has those that do not go with each."""
    given = given_options()
    for name, (others, why, remedy) in apart.items():
        for other in others if name in given else ():
            if other in given:
                flag, beside = given[name].flag, given[other].flag
                require(False, f"{beside} and {flag} are both given{why}", remedy=remedy.format(flag, beside))


def are_named(given: tuple[str, ...]) -> bool:
    """Whether traces are given as NAME=FILE, which no file has as its name."""
    return bool(given) and all("=" in each and not Path(each).exists() for each in given)
