"""`gearshift replay`."""

from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.option_table import PATH, options_of
from gearshift.cli.common.options import (
    are_named,
    network_options,
    plan_traces_options,
    require_supported,
    seconds_of,
    take_traces,
    the_uplink,
)
from gearshift.cli.common.output import Output, verb
from gearshift.cli.views.shown import show
from gearshift.client.v2_client import LONGEST_CALL_S
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.load_generator.replay_result import require_log_path, write_request_log
from gearshift.serving.door.keys import first_key
from gearshift.verbs.replay import kind_to_replay, replay

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
    named = are_named(options["trace"])
    found = kind_to_replay(target, options["profile"], several=named and len(options["trace"]) > 1)
    require_supported(found, "replay")
    plan = found.of if isinstance(found.of, GearPlan) else None
    uplink = the_uplink(network, request_kb, options["slo_s"])
    traces = take_traces(output.say, plan, target, options, options["model"])
    by_name = named or (plan is not None and len(plan.pipelines) > 1)
    with output.progress() as tell:
        run: Any = replay(
            target,
            traces if by_name else next(iter(traces.values())),
            uplink=uplink,
            progress=lambda done, total: tell("replaying", done / total),
            notice=output.say,
            **options,
        )
    if log is not None:
        for one in run.values() if isinstance(run, dict) else [run]:
            write_request_log(one.log, log)
    show(found.kind, "replay:show", output, run, target)
