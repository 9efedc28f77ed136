"""`gearshift serve`."""

from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.option_table import PATH, flag_of, options_of, require_positive
from gearshift.cli.common.options import seconds_of
from gearshift.cli.common.output import Output, verb
from gearshift.serving.door.settings import require_settings
from gearshift.verbs.serve import ServeOptions, chosen_plan, serve


@click.command("serve")
@click.argument("plan", type=PATH)
@click.option(
    "--p95-ms", type=float, help="Of a folder of plans, serve the most accurate that is predicted within this."
)
@options_of(ServeOptions)
@verb
def command(output: Output, plan: Path, p95_ms: float | None, accuracy: float | None, **options: Any) -> None:
    """Serve PLAN until Ctrl-C or SIGTERM; then answer all accepted requests, and end.

    PLAN is a plan file, or a folder of plans with --p95-ms or --accuracy to choose one.
    """
    require_settings(options, spelt=flag_of)
    require_positive("--p95-ms", p95_ms, "milliseconds")
    chosen = chosen_plan(plan, latency_s=seconds_of(p95_ms), accuracy=accuracy)
    if chosen != plan:
        output.say(f"chose {chosen}")
    code = serve(chosen, **options)
    output.json({"plan": str(chosen), "exit_code": code})
    if code:
        raise SystemExit(code)
