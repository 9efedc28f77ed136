"""Shows results of verbs by the views of a kind, or as they stand in `--json`."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import msgspec

from gearshift.cli.common.output import Output
from gearshift.errors import InvalidInput
from gearshift.verbs.kinds.kind import Kind

VIEWS = {"models of rows": "rows", "language models": "tokens"}
"""By kind, the folder of its views: modules with functions that take the output, the result, and what it is of."""


def show(kind: Kind, view: str, output: Output, result: Any, *of: Any, is_json: bool = False, **how: Any) -> None:
    """Show a result by `view`, such as `plan:show`; a kind without views has it shown as it stands in `--json`.

    Where that `is_json` already, it is not written again.
    """
    if kind.name in VIEWS:
        view_of(kind, view)(output, result, *of, **how)
        return
    if not is_json:
        output.json(result)
    output.say(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())


def view_of(kind: Kind, view: str) -> Callable[..., Any]:
    """Raises `InvalidInput` where the kind has no views, or not this one."""
    try:
        found: Callable[..., Any] = resolve_name(f"gearshift.cli.views.{VIEWS[kind.name]}.{view}")
    except (KeyError, AttributeError):
        raise InvalidInput(f"{kind.name} have nothing to write there", remedy="leave it out, or take --json") from None
    return found
