"""`gearshift replay`."""

from pathlib import Path
from typing import Any

import click

from gearshift import api
from gearshift.cli.options import PATH, the_trace, trace_options
from gearshift.cli.output import Output, verb
from gearshift.cli.tables import milliseconds, results_table
from gearshift.serving.replay_result import write_request_log


@click.command("replay", short_help="Send a trace to a server in an open loop, and measure.")
@click.argument("url")
@trace_options
@click.option("--profile", type=PATH, default="profile", show_default=True, help="The profile whose samples to send.")
@click.option("--project", type=PATH, help="The gearshift.toml with the samples, where it has moved.")
@click.option("--emulated", is_flag=True, help="The server has emulated devices: send numbers of recorded samples.")
@click.option("--slo-ms", type=float, help="Requests answered later than this are late.")
@click.option("--connections", type=int, default=2048, show_default=True, help="At most so many connections.")
@click.option("--longest-s", type=float, default=30.0, show_default=True, help="Give a request up after so long.")
@click.option("--log", type=PATH, help="Write a row for every request as CSV.")
@verb
def command(
    output: Output,
    url: str,
    profile: Path,
    project: Path | None,
    emulated: bool,
    slo_ms: float | None,
    connections: int,
    longest_s: float,
    log: Path | None,
    **trace_arguments: Any,
) -> None:
    """Send a trace to the server at URL, each request at its instant, and measure latency and accuracy."""
    trace = the_trace(**trace_arguments)
    with output.progress() as tell:
        run = api.replay(
            url,
            trace,
            profile,
            project=project,
            emulated=emulated,
            slo_s=None if slo_ms is None else slo_ms / 1e3,
            seed=trace_arguments["seed"],
            connections=connections,
            longest_s=longest_s,
            progress=lambda done, total: tell("replaying", done / total),
        )
    if log is not None:
        write_request_log(run.log, log)
    output.json(run.as_json())
    output.show(results_table(f"Measured at {url}", [("replay", run.result)]))
    output.say(f"the generator itself was late by {milliseconds(run.lateness.p99_s)} (p99)")
    if not run.valid:
        output.say("not valid: the generator could not keep the schedule; use fewer requests or another machine")
