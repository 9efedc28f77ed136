"""Decides when a node of a pipeline begins."""

WAIT = 0
BEGIN = 1
SKIP = 2


def node_begins(open_edges: int, live_edges: int, joins_first: bool, has_begun: bool) -> int:
    """Whether a node waits, begins or is skipped, after an edge to it has turned live or dead.

    `open_edges` lead to it and may still turn live; `live_edges` have. A node that joins all its
    edges begins with the last, one that joins the first with the first that is live; with no live
    one it is skipped. A fan-out counts, for a node that closes it, as one live edge when its rows
    are known, and as one open edge for each row: so a fan-out without rows begins it, too.
    """
    if has_begun:
        return WAIT
    if joins_first and live_edges > 0:
        return BEGIN
    if open_edges > 0:
        return WAIT
    return BEGIN if live_edges > 0 else SKIP
