"""The state of a request row on its way through a graph: edges that are open, and nodes that begin.

A `Scope` is one run of the nodes that belong together: once for the request row, or once for a row
of a fan-out. It counts the edges to its nodes:

    row of the request     scope: split
      +- row 0 of split      scope of split: read, check
      +- row 1 of split      scope of split: read, check
      join                   is counted in the outer scope: an edge for each row
"""

from collections import deque
from collections.abc import Iterator

from gearshift.pipeline import NO_SCOPE
from gearshift.plans.graph_tables import GraphTables
from gearshift.policies.graph import WAIT, node_begins
from gearshift.request import Sample
from gearshift.runtime.router.pipeline import Pipeline


class Flow:
    """A request row in its graph, with the `items` that have been made and have not ended.

    `missing` are the nodes that failed and are not required, with the reasons; `degraded_by` is why
    an item of it was answered by an earlier stage. Its pipeline's backlog counts it once, however
    many of its items wait.
    """

    def __init__(self, row: Sample, pipeline: Pipeline) -> None:
        self.row, self.pipeline = row, pipeline
        self.items: dict[int, Sample] = {}
        self.missing: list[tuple[int, str]] = []
        self.degraded_by = ""
        self.ended = False
        self.waiting = 0
        self.held_bytes = 0
        """Of its items and their outputs, and of inputs that were gathered from rows (by item)."""
        self.gathered_bytes: dict[int, int] = {}
        self.held_up: deque[tuple[int, Scope, int]] = deque()
        """Fan-outs that go on once fewer items are open: the node, its scope, and the number of rows."""
        self.touched: dict[int, tuple[int, Scope]] = {}
        """Nodes whose edges have changed, and their scopes, by place in topological order."""

    def waits(self) -> None:
        self.waiting += 1
        if self.waiting == 1:
            self.pipeline.waiting += 1

    def waits_no_more(self) -> None:
        self.waiting -= 1
        if self.waiting == 0:
            self.pipeline.waiting -= 1


class Scope:
    """One run of the nodes after fan-out `opener`, for its row number `row`.

    The outermost, for the request row itself, has `opener` `NO_SCOPE` and nothing `around` it.

    `results` are ended items by node, None where a node failed that is not required; `rows` the
    scopes of each fan-out in it; `causes` the items whose ends made nodes begin, None at arrival.
    """

    def __init__(self, flow: Flow, around: "Scope | None", opener: int, row: int, open_edges: dict[int, int]) -> None:
        self.flow, self.around, self.opener, self.row = flow, around, opener, row
        self.open_edges = dict(open_edges)
        self.live_edges = dict.fromkeys(open_edges, 0)
        self.begun: set[int] = set()
        self.results: dict[int, Sample | None] = {}
        self.rows: dict[int, list[Scope]] = {}
        self.causes: dict[int, Sample | None] = {}

    def taken_apart(self) -> Iterator[None]:
        """Break the circles of references to and from items, so that nothing is left to collect: scope by scope."""
        for inner in self.rows.values():
            while inner:
                yield from inner.pop().taken_apart()
        self.results.clear()
        self.rows.clear()
        self.causes.clear()
        yield


class Graph:
    """The edges of all pipelines; turns them live or dead, and finds the nodes that begin."""

    def __init__(self, tables: GraphTables) -> None:
        self._begin: list[int] = tables.edge_begin.tolist()
        self._to: list[int] = tables.edge_to.tolist()
        self.conditional = [condition is not None for condition in tables.conditions]
        self._crosses: list[bool] = tables.crosses.tolist()
        self._joins_first: list[bool] = tables.joins_first.tolist()
        self.fans_out: list[bool] = tables.fans_out.tolist()
        self.required: list[bool] = tables.required.tolist()
        nodes = range(len(self.required))
        order: list[int] = tables.order.tolist()
        self._place = [order.index(node) for node in nodes]
        entries: list[int] = tables.entries.tolist()
        begins: list[int] = tables.entry_begin.tolist()
        self.entries = [
            sorted(entries[begins[p] : begins[p + 1]], key=self._place.__getitem__) for p in range(len(begins) - 1)
        ]
        """The nodes with which a request of each pipeline begins, in topological order."""
        counted_in, edges_to = tables.counted_in.tolist(), tables.edges_to.tolist()
        self._open_edges: dict[int, dict[int, int]] = {opener: {} for opener in [NO_SCOPE, *nodes]}
        for node in nodes:
            if edges_to[node]:
                self._open_edges[counted_in[node]][node] = edges_to[node]
        opener: list[int] = tables.opener.tolist()
        self._crossing: list[list[int]] = [[] for _ in nodes]
        """By fan-out, the nodes that close it, once for each edge to them from its rows."""
        self.joins = [count > 1 for count in edges_to]
        """Nodes with several edges, or with those of a fan-out's rows."""
        self.gathers = [False for _ in nodes]
        """Nodes with edges of a fan-out's rows."""
        for source in nodes:
            for edge in self.edges(source):
                if self._crosses[edge]:
                    self._crossing[opener[source]].append(self._to[edge])
                    self.joins[self._to[edge]] = self.gathers[self._to[edge]] = True

    def edges(self, node: int) -> range:
        return range(self._begin[node], self._begin[node + 1])

    def outermost(self, flow: Flow) -> Scope:
        return Scope(flow, None, NO_SCOPE, 0, self._open_edges[NO_SCOPE])

    def turn(self, scope: Scope, edge: int, live: bool) -> None:
        """Turn an edge from a node of `scope` live or dead."""
        counted_in = scope
        if self._crosses[edge]:
            assert scope.around is not None
            counted_in = scope.around
        self._count(counted_in, self._to[edge], -1, live)

    def skip(self, scope: Scope, node: int) -> None:
        """Turn all edges from a node dead; those from within a fan-out's rows, too."""
        if self.fans_out[node]:
            for closer in self._crossing[node]:
                self._count(scope, closer, -1, False)
            return
        for edge in self.edges(node):
            self.turn(scope, edge, False)

    def fan_out(self, scope: Scope, node: int, rows: int) -> None:
        """Begin a fan-out: nodes that gather its rows wait for all of them, which `open_row` opens."""
        for closer in self._crossing[node]:
            self._count(scope, closer, rows - 1, True)
        scope.rows[node] = []

    def open_row(self, scope: Scope, node: int) -> Scope:
        """Open a scope for the next row of a fan-out."""
        opened = scope.rows[node]
        opened.append(Scope(scope.flow, scope, node, len(opened), self._open_edges[node]))
        return opened[-1]

    def next_touched(self, flow: Flow) -> tuple[int, Scope, int] | None:
        """The first touched node in topological order that does not wait: whether it begins or is skipped."""
        while flow.touched:
            node, scope = flow.touched.pop(min(flow.touched))
            verdict = node_begins(
                scope.open_edges[node], scope.live_edges[node], self._joins_first[node], node in scope.begun
            )
            if verdict != WAIT:
                scope.begun.add(node)
                return node, scope, verdict
        return None

    def _count(self, scope: Scope, node: int, more: int, live: bool) -> None:
        scope.open_edges[node] += more
        scope.live_edges[node] += live
        scope.flow.touched[self._place[node]] = node, scope
