"""`gearshift serve`."""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gearshift.cli.common.grouped import Grouped
from gearshift.cli.common.option_table import PATH, flag_of, options_of, require_positive
from gearshift.cli.common.options import require_supported, seconds_of
from gearshift.cli.common.output import Output, notice, verb
from gearshift.errors import require
from gearshift.serving.door.settings import require_settings
from gearshift.verbs.kinds.registry import kind_of_plan
from gearshift.verbs.quick.serve import (
    ServeOptions,
    plan_to_serve,
    serve_plan,
)
from gearshift.verbs.quick.sources import models_at

if TYPE_CHECKING:
    from gearshift.serving.operate.start_progress import Bar

GROUPS = {
    "The plan": ("--p95-ms", "--accuracy", "--profile", "--project", "--backend"),
    "Models without a plan": ("--samples", "--example", "--keep"),
    "Addresses": ("--host", "--port", "--openai", "--grpc-port", "--front-ends"),
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
    "Logs, traces and the live page": ("--journal", "--log-level", "--log-format", "--otel", "--dashboard"),
    "A Ray cluster": ("--address", "--advertise-host"),
}


EXAMPLES = """\b
gearshift serve plan.json
gearshift serve models.py:load --port 8000
gearshift serve models.py --p95-ms 100 --keep task
gearshift serve plan.json --host 0.0.0.0 --api-keys keys.txt --journal journal.jsonl
gearshift serve plans --p95-ms 100 --plans plans --replan swap --admin-keys admins.txt
"""


@click.command("serve", cls=Grouped, groups=GROUPS, epilog=EXAMPLES)
@click.argument("plan", type=PATH)
@click.option(
    "--p95-ms",
    type=float,
    help="Of a folder of plans, serve the most accurate that is predicted within this; plan models for it.",
)
@click.option(
    "--openai", is_flag=True, help="Speak OpenAI's API, as plans of language models do anyway; others are refused."
)
@options_of(ServeOptions)
@verb
def command(
    output: Output,
    plan: Path,
    p95_ms: float | None,
    openai: bool,
    **options: Any,
) -> None:
    """Serve PLAN until Ctrl-C or SIGTERM; then answer all accepted requests, and end.

    PLAN is a plan file, or a folder of plans with --p95-ms or --accuracy to choose one. It may also be
    models that have no plan: models.py:load, an ONNX file, a file or a folder of models, or a
    gearshift.toml. They are measured for seconds, planned for this machine, and served.
    """
    require_settings(options, spelt=flag_of)
    require_positive("--p95-ms", p95_ms, "milliseconds")
    without_plan, options["latency_s"] = models_at(plan) is not None, seconds_of(p95_ms)
    refused = openai and without_plan
    require(not refused, "--openai is given, and these models are no language models", remedy="leave it out")
    with ExitStack() as stack:
        with output.progress() as tell:
            made, left = stack.enter_context(plan_to_serve(plan, options, progress=tell, notice=notice))
        if made != plan and (not without_plan or options["keep"] is not None):
            output.say(f"{'wrote' if without_plan else 'chose'} {made}")
        if openai:
            require_supported(kind_of_plan(made), "serve")
        code = serve_plan(made, bar=_bar_of(output, options), **left)
    output.json({"plan": str(plan if without_plan else made), "exit_code": code})
    if code:
        raise SystemExit(code)


def _bar_of(output: Output, options: Mapping[str, Any]) -> "Bar | None":
    """A bar is for people at a terminal; elsewhere the log tells how far loading is."""
    return output.progress if sys.stderr.isatty() and options["log_format"] == "text" else None
