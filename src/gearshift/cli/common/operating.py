"""Common to the verbs that steer a running server."""

from collections.abc import Iterator

import click

from gearshift.cli.common.option_table import PATH, in_order
from gearshift.cli.common.output import Output, table
from gearshift.runtime.router.status import Status

URL = "http://127.0.0.1:8000"

server_options = in_order(
    click.option("--url", default=URL, envvar="GEARSHIFT_URL", show_default=True, help="The server."),
    click.option("--key-file", type=PATH, envvar="GEARSHIFT_KEY_FILE", help="A file whose first key is sent."),
    click.option("--ca-file", type=PATH, help="A PEM file of certificates to trust, in addition to the system's."),
)


def moved(status: Status) -> Iterator[str]:
    world, replan = status.adapting, status.replan
    for model in status.silent_models:
        yield f"model {model!r} gives no answers: is its endpoint down?"
    if world is not None:
        if world.load_factor != 1:
            yield f"load is multiplied by {world.load_factor:.3g}, so that its distribution is the plan's"
        if world.load_drifts:
            yield f"load has drifted: {100 * world.load_distance:.0f} % of the time it is elsewhere than planned"
        for model in world.slow_or_fast_models:
            yield f"run times of model {model!r} are not as profiled: profile and plan again"
        for one in world.disagreement:
            if one.alarm:
                share = f"{100 * one.low:.1f} to {100 * one.high:.1f} %"
                yield f"stage {one.stage} of gear {one.gear}: disagreement of {share} is {one.alarm} the planned"
    if replan is not None and replan.running:
        yield "a plan for the load of now is being made"
    if replan is not None and replan.offered is not None:
        yield f"a plan for the load of now is offered: gearshift swap {replan.offered}"


def show_status(output: Output, url: str, status: Status) -> None:
    output.json(status)
    pinned = " (pinned)" if status.pinned else ""
    output.say(f"{status.operator} at {url}: {status.state} for {status.uptime_s:.0f} s")
    output.say(f"plan {status.plan.path} ({status.plan.sha256[:12]})")
    output.say(f"gear {status.gear}{pinned} for load {status.load_range}: {status.cascade}")
    output.say(f"the plan has gears 0 to {status.last_gear}")
    output.say(
        f"load {status.load:.4g}/s ({status.rate_qps:.4g}/s arrive), {status.waiting} of up to {status.most_waiting} "
        f"samples wait, {status.open_requests} requests are open and hold {status.held_bytes} of up to "
        f"{status.most_held_bytes} bytes"
    )
    for line in moved(status):
        output.say(line)
    rows = table("replicas", "replica", "model", "devices", "ready", "waiting", "running")
    for one in status.replicas:
        ready = "yes" if one.ready else "NO"
        rows.add_row(one.id, one.model, " ".join(one.devices), ready, str(one.waiting), str(one.running))
    output.show(rows)
