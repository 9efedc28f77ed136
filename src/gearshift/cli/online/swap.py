"""`gearshift swap`."""

from typing import Any

import click

from gearshift.cli.common.operating import server_options
from gearshift.cli.common.output import Output, table, verb
from gearshift.cli.common.tables import milliseconds
from gearshift.serving.operate.control_client import Operator
from gearshift.serving.operate.shadow import Comparison
from gearshift.serving.operate.swap import SwapBody


@click.command("swap")
@click.argument("plan")
@click.option("--shadow", type=float, default=0.0, show_default=True, help="First copy this share of requests to it.")
@click.option("--shadow-s", type=float, default=10.0, show_default=True, help="Copy for this many seconds.")
@click.option("--compare-only", is_flag=True, help="Unload it after the comparison; the plan in force stays.")
@server_options
@verb
def command(
    output: Output, plan: str, shadow: float, shadow_s: float, compare_only: bool, url: str, **access: Any
) -> None:
    """Put PLAN, a file in the server's --plans folder, in force in the server at --url.

    It is loaded next to the plan in force and tried. Then it gets all new requests; the plan
    before answers those it has accepted, and is unloaded. If anything fails, the plan in force
    stays.
    """
    asked = SwapBody(plan=plan, shadow=shadow, shadow_s=shadow_s, take_over=not compare_only)
    what = "loading and trying the plan" + (", then copying requests to it" if shadow else "")
    with output.waiting(what):
        result = Operator(url, **access).swap(asked)
    output.json(result)
    compared = {} if result.comparison is None else {"": result.comparison}
    for name, comparison in (result.comparisons or compared).items():
        if name:
            output.say(f"{name}:")
        show_comparison(output, comparison)
    output.say(f"in force at {url}: {result.plan.path} ({result.plan.sha256[:12]})")


def show_comparison(output: Output, compared: Comparison) -> None:
    output.say(f"{compared.requests} requests compared, {compared.failed} copies failed, {compared.skipped} left out")
    for name, share in sorted(compared.agreement.items()):
        output.say(f"agreement on {name}: {share:.2%} of {compared.rows} rows")
    rows = table("latency of the same requests", "plan", "p50", "p95", "p99")
    for name, latency in (("in force", compared.latency_in_force_s), ("shadow", compared.latency_shadow_s)):
        if latency is not None:
            rows.add_row(name, *(milliseconds(value) for value in (latency.p50, latency.p95, latency.p99)))
    output.show(rows)
