"""The command `gearshift`."""

import os
import signal
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

import gearshift
from gearshift.cli.common.streams import end_as_at_ctrl_c, interrupted_code, make_usable

VERBS = {
    "demo": ("offline", "Everything on a built-in task, in about 90 seconds; of a pipeline in two minutes."),
    "init": ("offline", "Write gearshift.toml and a small Python file to start from."),
    "profile": ("offline", "Measure models, or import records of them."),
    "trace": ("data", "Make a trace of an access log, or of what a monitor or a server's journal has."),
    "records": ("data", "Make records of logs whose columns have other names."),
    "plan": ("offline", "Search for the best gear plan within an objective."),
    "simulate": ("offline", "Predict how a plan serves a trace."),
    "inspect": ("offline", "Print and check a plan or a profile."),
    "explain": ("offline", "Say why a plan is as it is, and what would break."),
    "diff": ("offline", "Say what differs between two plans."),
    "compare": ("offline", "Compare planners, device counts and objectives."),
    "report": ("offline", "Write a self-contained HTML page about a plan."),
    "query": ("offline", "Run SQL in which the pipelines of a plan or a server are functions."),
    "serve": ("online", "Serve a plan over HTTP."),
    "status": ("online", "Say what a server is doing."),
    "dashboard": ("online", "Show the live page of a server."),
    "gear": ("online", "Keep a server in a gear, or let the load choose again."),
    "swap": ("online", "Put another plan in force in a server."),
    "drain": ("online", "Have a server refuse new requests, or let them in again."),
    "replay": ("online", "Send a trace to a server in an open loop, and measure."),
    "validate": ("online", "Serve and simulate the same trace, and compare."),
    "caches": ("offline", "Build, show and evaluate learned caches of a PyTorch module."),
    "completion": ("data", "Print what makes a shell complete verbs and options."),
    "doctor": ("offline", "Say what this machine offers, and what is missing."),
}
"""The folder of each verb's module, and what it does."""


class _Verbs(click.Group):
    """Verbs: each is imported when it is first used; to list them imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"gearshift.cli.{VERBS[cmd_name][0]}.{cmd_name}").command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs that begin so, none of them imported; options of the group as usual."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=text) for name, (_, text) in VERBS.items() if name.startswith(incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; a mistyped one is answered with those that are like it."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            like = get_close_matches(args[0], VERBS)
            hint = f"did you mean {' or '.join(like)}?" if like else "`gearshift --help` lists the verbs"
            raise click.UsageError(f"there is no verb {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember the path of `--json` before parsing, in case the rest cannot be parsed."""
        ctx.obj = _json_path(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a usage error is also written to the path of `--json`."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:  # while the verb is imported
            click.echo("interrupted", err=True)
            raise SystemExit(interrupted_code(interrupt)) from None
        except click.UsageError as error:
            from gearshift.cli.common.output import Output, write_error
            from gearshift.support.plain_text import plain

            error.message = plain(error.message, keep="\n\t")  # type: ignore[misc]  # not by others
            said = error.format_message()
            write_error(Output(ctx.obj), {"kind": "usage", "message": said}, said=said)
            raise


def _json_path(args: Sequence[str]) -> str | None:
    for i, argument in enumerate(args):
        if argument.startswith("--json="):
            return argument.removeprefix("--json=")
        if argument == "--json" and i + 1 < len(args):
            return args[i + 1]
    return None


def _version() -> str:
    """The version, and whether the router is compiled (`make wheel`)."""
    compiled = any((Path(gearshift.__file__).parent / "runtime" / "router").glob("router.*.so"))
    return f"{gearshift.__version__}, compiled" if compiled else gearshift.__version__


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(_version())
def main_group() -> None:
    """Serve machine-learning models as cascades that shift gears with load."""


def main() -> None:
    make_usable()
    if os.getpid() == 1:
        from gearshift.cli.first_process import become_first_process

        become_first_process()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup has the second ignored
            signal.signal(number, end_as_at_ctrl_c)  # a server takes its signals over
    main_group(prog_name="gearshift", auto_envvar_prefix="GEARSHIFT")
