"""Which view a kind of engine has."""

from pkgutil import resolve_name

from gearshift.cli.common.view import View
from gearshift.verbs.kinds.kind import Kind

VIEWS = {
    "models of rows": "gearshift.cli.views.rows.view:RowsView",
    "language models": "gearshift.cli.views.tokens.view:TokensView",
}
"""The view of a kind, by its name; loaded when it is asked for."""


def view_of(kind: Kind) -> View:
    """A kind without a view of its own has its results shown as they stand in `--json`."""
    view: type[View] = resolve_name(VIEWS[kind.name]) if kind.name in VIEWS else View
    return view()
