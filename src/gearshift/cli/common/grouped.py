"""Help of a command with many options, in groups under headings."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

Groups = Mapping[str, Sequence[str]]
"""The flags under each heading; what is left out comes last."""


class Grouped(click.Command):
    def __init__(self, *arguments: Any, groups: Groups, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records = {option.opts[0]: option.get_help_record(ctx) for option in options}
        left = {flag: record for flag, record in records.items() if record is not None}
        for heading, flags in self.groups.items():
            rows = [left.pop(flag) for flag in flags if flag in left]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)
        if left:
            with formatter.section("Others"):
                formatter.write_dl(list(left.values()))
