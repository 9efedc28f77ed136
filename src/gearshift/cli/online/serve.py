"""`gearshift serve`."""

from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.grouped import Grouped
from gearshift.cli.common.option_table import PATH, flag_of, options_of, require_positive
from gearshift.cli.common.options import seconds_of
from gearshift.cli.common.output import Output, verb
from gearshift.serving.door.settings import require_settings
from gearshift.verbs.serve import ServeOptions, chosen_plan, serve

GROUPS = {
    "The plan": ("--p95-ms", "--accuracy", "--profile", "--project", "--backend"),
    "Addresses": ("--host", "--port", "--grpc-port", "--front-ends"),
    "Who may ask": (
        *("--api-keys", "--admin-keys", "--allowed-hosts"),
        *("--tls-certificate", "--tls-key", "--trust-clock-s"),
    ),
    "Bounds on requests": (
        *("--most-waiting-requests", "--most-waiting-bytes", "--largest-body-bytes", "--largest-header-bytes"),
        *("--most-rows", "--most-tensors", "--most-elements", "--late"),
    ),
    "Bounds on connections": (
        *("--most-connections", "--address-share", "--most-grpc-calls"),
        *("--longest-read-s", "--first-byte-s", "--keep-alive-s"),
    ),
    "Starting, ending and faults": (
        *("--warm-up", "--longest-start-s", "--drain-s", "--longest-retry-s", "--shortest-hang-s"),
        *("--probe-s", "--awake-s", "--lost-stage"),
    ),
    "When the world moves": (
        *("--plans", "--load-scaling", "--slowdown", "--load-window-s", "--replan", "--replan-longest-s"),
        *("--audit-share", "--audit-seed"),
    ),
    "Learned caches": (
        *("--adapt", "--adapt-share", "--adapt-window-s", "--adapt-interval-s"),
        *("--adapt-fixed-classes", "--cache-audit-share"),
    ),
    "Cores that grow": (
        *("--scaler", "--scaler-period-s", "--scaler-cores", "--scaler-margin"),
        *("--actuator", "--container", "--core-share"),
    ),
    "Logs and traces": ("--journal", "--log-level", "--log-format", "--otel"),
    "A Ray cluster": ("--address", "--advertise-host"),
}


EXAMPLES = """\b
gearshift serve plan.json
gearshift serve plan.json --host 0.0.0.0 --api-keys keys.txt --journal journal.jsonl
gearshift serve plans --p95-ms 100 --plans plans --replan swap --admin-keys admins.txt
"""


@click.command("serve", cls=Grouped, groups=GROUPS, epilog=EXAMPLES)
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
