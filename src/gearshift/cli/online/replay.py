"""`gearshift replay`."""

from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.option_table import PATH, options_of
from gearshift.cli.common.options import (
    are_named,
    network_options,
    plan_traces_options,
    seconds_of,
    take_trace,
    take_traces,
    the_uplink,
)
from gearshift.cli.common.output import Output, verb
from gearshift.cli.common.tables import results_table, tell_generator
from gearshift.cli.language.replay import replay_of_language
from gearshift.client.v2_client import LONGEST_CALL_S
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.load_generator.replay_result import Replay, require_log_path, write_request_log
from gearshift.plans.plan_file import read_plan
from gearshift.serving.door.keys import first_key
from gearshift.verbs.language.inputs import is_of_language
from gearshift.verbs.replay import plan_at, replay, replay_each

LONGEST_DEADLINE_MS = 1000 * LONGEST_CALL_S


@click.command("replay")
@click.argument("target")
@plan_traces_options
@options_of(replay)
@network_options
@click.option("--deadline-ms", type=float, help="Send this deadline with every request.")
@click.option("--key-file", type=PATH, envvar="GEARSHIFT_KEY_FILE", help="Send the first API key in this file.")
@click.option("--log", type=PATH, help="Write a row for every request; .csv or .parquet.")
@verb
def command(
    output: Output,
    target: str,
    network: Path | None,
    request_kb: float | None,
    deadline_ms: float | None,
    key_file: Path | None,
    log: Path | None,
    **options: Any,
) -> None:
    """Send a trace to TARGET, each request at its time, and measure latency and accuracy.

    TARGET is the URL of a server (http, https, grpc, grpcs), or a plan file to serve within this
    process. With --network the trace says when requests are sent: they reach the server when their
    last byte has, with the time of sending, from which latency counts. All pipelines of a plan get
    their traces at once, unless --model names one; a server's are named by --trace NAME=FILE.
    """
    if log is not None:
        require_log_path(log)
    require(
        deadline_ms is None or 0 < deadline_ms <= LONGEST_DEADLINE_MS,
        f"--deadline-ms is {deadline_ms}",
        remedy=f"give more than 0, up to {LONGEST_DEADLINE_MS}",
    )
    options |= {
        "deadline_s": seconds_of(deadline_ms),
        "api_key": None if key_file is None else first_key(key_file),
        "facts": log is not None,
    }
    if options["profile"] is not None and is_of_language(options["profile"]):
        refused = {"--network": network, "--log": log, "--deadline-ms": deadline_ms, "--slo-ms": options["slo_s"]}
        trace = take_trace(output.say, None, target, options)
        replay_of_language(output, target, trace, Path(options["profile"]), refused, options)
        return
    uplink = the_uplink(network, request_kb, options["slo_s"])
    path = plan_at(target)
    plan = None if path is None else read_plan(path)
    if (plan is not None and len(plan.pipelines) > 1) or are_named(options["trace"]):
        require(
            log is None and uplink is None,
            "--log and --network are for one pipeline",
            remedy="leave them out, or serve a plan of it alone",
        )
        _replay_each(output, target, plan, options)
        return
    trace = take_trace(output.say, plan, target, options)
    with output.progress() as tell:
        run = replay(
            target,
            trace,
            uplink=uplink,
            progress=lambda done, total: tell("replaying", done / total),
            **options,
        )
    if log is not None:
        write_request_log(run.log, log)
    output.json(_with_course(run))
    output.show(results_table(f"Measured at {target}", [("replay", run.result)]))
    tell_generator(output, run)


def _replay_each(output: Output, target: str, plan: GearPlan | None, options: dict[str, Any]) -> None:
    only, options["profiles"] = options.pop("model"), options.pop("profile")
    if only is not None and not are_named(options["trace"]):
        options["trace"] = tuple(f"{only}={path}" for path in options["trace"])
    traces = take_traces(output.say, plan, target, options, only)
    with output.progress() as tell:
        runs = replay_each(
            target,
            traces,
            only=only,
            progress=lambda done, total: tell("replaying", done / total),
            **options,
        )
    output.json({"pipelines": {name: _with_course(run) for name, run in runs.items()}})
    output.show(results_table(f"Measured at {target}", [(name, run.result) for name, run in runs.items()]))
    for run in runs.values():
        tell_generator(output, run)


def _with_course(run: Replay) -> dict[str, object]:
    from gearshift.reporting.runs import measured_series

    return run.as_json() | {"over_time": measured_series("", run).course}
