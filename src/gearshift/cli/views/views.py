"""Which view a kind of engine has."""

from gearshift.cli.common.view import View
from gearshift.cli.views.rows.view import RowsView
from gearshift.cli.views.tokens.view import TokensView
from gearshift.verbs.kinds.kind import Kind

VIEWS: dict[str, type[View]] = {"models of rows": RowsView, "language models": TokensView}


def view_of(kind: Kind) -> View:
    """A kind without a view of its own has its results shown as they stand in `--json`."""
    return VIEWS.get(kind.name, View)()
