"""`gearshift serve`."""

from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.options import PATH, flag_of, require_positive, served_options, settings_options
from gearshift.cli.common.output import Output, verb
from gearshift.serving.door.settings import ServerSettings, require_settings
from gearshift.verbs import plan_request as api


@click.command("serve", short_help="Serve a plan over HTTP.")
@click.argument("plan", type=PATH)
@served_options
@click.option("--journal", type=PATH, help="Write gear shifts and faults as JSON lines.")
@click.option(
    "--p95-ms", type=float, help="Of a folder of plans, serve the most accurate that is predicted within this."
)
@click.option("--accuracy", type=float, help="Of a folder of plans, serve the fastest that is predicted to reach this.")
@settings_options(ServerSettings)
@verb
def command(
    output: Output,
    plan: Path,
    profile: Path | None,
    project: Path | None,
    journal: Path | None,
    p95_ms: float | None,
    accuracy: float | None,
    **options: Any,
) -> None:
    """Serve PLAN until Ctrl-C or SIGTERM; then answer all accepted requests, and end.

    PLAN is a plan file, or a folder of plans with --p95-ms or --accuracy to choose one.
    """
    require_settings(options, spelt=flag_of)
    require_positive("--p95-ms", p95_ms, "milliseconds")
    chosen = api.chosen_plan(plan, latency_s=None if p95_ms is None else p95_ms / 1e3, accuracy=accuracy)
    if chosen != plan:
        output.say(f"chose {chosen}")
    code = api.serve(chosen, profile_path=profile, project_path=project, journal_path=journal, **options)
    output.json({"plan": str(chosen), "exit_code": code})
    if code:
        raise SystemExit(code)
