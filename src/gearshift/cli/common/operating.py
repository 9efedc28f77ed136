"""Common to the verbs that steer a running server."""

from collections.abc import Iterator, Sequence

import click
from msgspec import UNSET
from rich.table import Table

from gearshift.cli.common.option_table import PATH, in_order
from gearshift.cli.common.output import Output, table
from gearshift.runtime.router.status import AdaptingStatus, PipelineStatus, Status
from gearshift.support.numbers import digits

MIB = 1 << 20
URL = "http://127.0.0.1:8000"
TOLD_SLOWDOWN = 1.2

server_options = in_order(
    click.option("--url", default=URL, envvar="GEARSHIFT_URL", show_default=True, help="The server."),
    click.option("--key-file", type=PATH, envvar="GEARSHIFT_KEY_FILE", help="A file whose first key is sent."),
    click.option("--ca-file", type=PATH, help="A PEM file of certificates to trust, in addition to the system's."),
)


def moved(status: Status) -> Iterator[str]:
    for model in status.degraded_models:
        yield f"model {model!r} has no replica that answers: is its endpoint down?"
    slow: dict[str, float] = {}
    for one in status.replicas:
        slow[one.model] = max(one.slowdown, slow.get(one.model, 0.0))
    for model, slowdown in slow.items():
        if slowdown >= TOLD_SLOWDOWN:
            yield f"model {model!r} takes {slowdown:.2f} times the profiled time, and gears are chosen by that"
    for pipeline in status.pipelines:
        about = f"{pipeline.name}: " if len(status.pipelines) > 1 else ""
        if pipeline.adapting is not None:
            yield from (about + line for line in _drifted(pipeline.adapting))
    if status.replan is not None and status.replan.running:
        yield "a plan for the load of now is being made"
    if status.replan is not None and status.replan.offered is not None:
        yield f"a plan for the load of now is offered: gearshift swap {status.replan.offered}"


def _drifted(world: AdaptingStatus) -> Iterator[str]:
    if world.load_factor != 1:
        yield f"load is multiplied by {digits(world.load_factor)}, so that its distribution is the plan's"
    if world.load_drifts:
        yield f"load has drifted: {100 * world.load_distance:.0f} % of the time it is elsewhere than planned"
    for model in world.slow_or_fast_models:
        yield f"run times of model {model!r} are not as profiled: profile and plan again"
    for one in world.disagreement:
        if one.alarm:
            share = f"{100 * one.low:.1f} to {100 * one.high:.1f} %"
            yield f"stage {one.stage} of gear {one.gear}: disagreement of {share} is {one.alarm} the planned"


def show_status(output: Output, url: str, status: Status) -> None:
    output.json(status)
    names = ", ".join(pipeline.name for pipeline in status.pipelines)
    output.say(f"{names} at {url}: {status.state} for {status.uptime_s:.0f} s")
    output.say(f"plan {status.plan.path} ({status.plan.sha256[:12]})")
    if len(status.pipelines) == 1:
        _say_only(output, status, status.pipelines[0])
    else:
        output.show(_pipelines_table(status.pipelines))
        output.say(f"{status.waiting} samples wait, {status.open_requests} requests are open and hold {_held(status)}")
    for line in moved(status):
        output.say(line)
    rows = table("replicas", "replica", "model", "devices", "ready", "waiting", "running")
    for one in status.replicas:
        ready = "NO" if not one.ready else "FAILING" if one.failing else "yes"
        rows.add_row(one.id, one.model, " ".join(one.devices), ready, str(one.waiting), str(one.running))
    output.show(rows)


def _say_only(output: Output, status: Status, pipeline: PipelineStatus) -> None:
    output.say(f"gear {_gear_in_force(pipeline)} for load {pipeline.load_range}: {_cascades(pipeline)}")
    output.say(f"the plan has gears 0 to {pipeline.last_gear}")
    unit = "/s" if pipeline.load_unit is UNSET else f" {pipeline.load_unit}"
    output.say(
        f"load {digits(pipeline.load)}{unit} ({digits(pipeline.rate_qps)}/s arrive), {status.waiting} of up to "
        f"{pipeline.most_waiting} samples wait, {status.open_requests} requests are open and hold "
        f"{_held(status)}"
    )


def _held(status: Status) -> str:
    return f"{digits(status.held_bytes / MIB)} of up to {digits(status.most_held_bytes / MIB)} MiB"


def _pipelines_table(pipelines: Sequence[PipelineStatus]) -> Table:
    rows = table("pipelines", "pipeline", "gear", "for load", "cascades", "load/s", "arrive/s", "waiting", "open")
    for one in pipelines:
        rows.add_row(
            one.name,
            f"{_gear_in_force(one)} of 0 to {one.last_gear}",
            str(one.load_range),
            _cascades(one),
            digits(one.load),
            digits(one.rate_qps),
            f"{one.waiting} of up to {one.most_waiting}",
            str(one.open_requests),
        )
    return rows


def _gear_in_force(pipeline: PipelineStatus) -> str:
    return f"{pipeline.gear} (pinned)" if pipeline.pinned else str(pipeline.gear)


def _cascades(pipeline: PipelineStatus) -> str:
    """The cascades of the nodes, which are named where there are several."""
    texts = {node: " or ".join(map(str, cascades)) for node, cascades in pipeline.cascades.items()}
    return (
        next(iter(texts.values())) if len(texts) == 1 else "; ".join(f"{node}: {text}" for node, text in texts.items())
    )
