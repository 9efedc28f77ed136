"""Takes request rows through their graphs: makes the items of nodes that begin, and ends rows."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from gearshift.decisions import Decision, Ending
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.graph import BEGIN
from gearshift.request import Sample
from gearshift.runtime.router.by_deadline import TOO_LATE, TOO_LATE_FOR_MORE
from gearshift.runtime.router.cascades import Cascades
from gearshift.runtime.router.decision_log import DecisionLog
from gearshift.runtime.router.dispatch import Dispatch
from gearshift.runtime.router.graph import Flow, Graph, Scope
from gearshift.runtime.router.pipeline import Pipeline

Answered = Callable[[Sample], None]
Route = Callable[[Sample, int, int], None]

WITHDRAWN = "nobody waits for this answer any more"
FIRST_ITEM = 1 << 40
"""Numbers of items, far above those of request rows."""


class CannotPass(Exception):
    """The inputs of a node cannot be made from the outputs before it; the text says why."""


class Passing(Protocol):
    """Passes data along edges. Nodes and edges are numbered as in `GraphTables`.

    The scope of a node is that in which its edges are counted; of an item of a fan-out, the scope
    of its row. All raise `CannotPass`.
    """

    def holds(self, edge: int, item: Sample) -> bool:
        """Whether the condition of an edge holds for the answer of the item that it leaves."""

    def rows(self, node: int, scope: Scope) -> int:
        """The number of rows of a fan-out."""

    def payload(self, node: int, scope: Scope) -> object:
        """The payload of the item of `node` in `scope`."""


class Flows:
    """The request rows of all graphs.

    `route(item, model, now_ns)` puts an item into a queue; `answered(row)` takes each request row
    once, `told(item)` each item that ended while its row was open. Items that end are put on
    `ended`, and `go_on` goes through them.
    """

    def __init__(
        self,
        tables: PlanTables,
        passing: Passing,
        cascades: Cascades,
        dispatch: Dispatch,
        log: DecisionLog,
        *,
        numbers: Iterator[int],
        route: Route,
        answered: Answered,
        told: Answered | None,
    ) -> None:
        self._graph, self._passing = Graph(tables.graph), passing
        self._cascades, self._dispatch, self._log = cascades, dispatch, log
        self._numbers, self._route, self._answered, self._told = numbers, route, answered, told
        self._outputs = [pipeline.output for pipeline in tables.pipelines]
        self.ended: deque[Sample] = deque()

    # Rows.

    def refuses(self, row: Sample, pipeline: Pipeline, now_ns: int) -> bool:
        """Whether a required node that the row begins with could not be in time on any replica."""
        for node in self._graph.entries[pipeline.number]:
            if self._graph.required[node]:
                model = self._cascades.first_model(node, row.request, now_ns)
                if self._dispatch.by_deadline.misses_anyway(row.request, model, now_ns):
                    return True
        return False

    def arrive(self, row: Sample, pipeline: Pipeline, now_ns: int) -> None:
        flow = Flow(row, pipeline)
        row.scope = root = self._graph.outermost(flow)
        for node in self._graph.entries[pipeline.number]:
            if not flow.ended:
                root.begun.add(node)
                self._begin(node, root, None, now_ns)
        self._look(flow, None, now_ns)

    def cancel(self, row: Sample, now_ns: int) -> None:
        root: Scope = row.scope
        self._withdraw(root.flow, now_ns)
        root.clear()
        row.scope = None

    def go_on(self, now_ns: int) -> None:
        while self.ended:
            item = self.ended.popleft()
            scope: Scope = item.scope
            if not scope.flow.ended:
                self._end_item(item, scope, now_ns)

    # Items.

    def _end_item(self, item: Sample, scope: Scope, now_ns: int) -> None:
        flow, asks = scope.flow, self._graph.conditional
        del flow.items[item.sequence]
        if not item.error:
            flow.degraded_by = flow.degraded_by or item.degraded_by
            try:
                live = [not asks[edge] or self._passing.holds(edge, item) for edge in self._graph.edges(item.node)]
            except CannotPass as reason:
                item.error = str(reason)
        if self._told is not None:
            self._told(item)
        if item.error:
            self._fail(item.node, scope, item, item.error, item.ending, now_ns)
        else:
            self._pass_on(item.node, scope, item, live, now_ns)
        self._look(flow, item, now_ns)

    def _pass_on(self, node: int, scope: Scope, item: Sample | None, live: list[bool], now_ns: int) -> None:
        """Turn the edges from a node that has ended, with null where it failed; the output ends the row."""
        scope.results[node] = item
        if node == self._outputs[scope.flow.pipeline.number]:
            self._answer(scope, node, item, now_ns)
            return
        for edge, is_live in zip(self._graph.edges(node), live, strict=True):
            self._graph.turn(scope, edge, is_live)

    def _fail(self, node: int, scope: Scope, item: Sample | None, error: str, ending: Ending, now_ns: int) -> None:
        """End the row with a required node; else pass on null."""
        flow = scope.flow
        if self._graph.required[node]:
            row = flow.row
            row.error, row.ending = error, ending
            if item is not None:
                row.refused, row.poisonous = item.refused, item.poisonous
            self._end(row, now_ns)
            return
        flow.missing.append((node, error))
        flow.degraded_by = flow.degraded_by or (TOO_LATE_FOR_MORE if ending else error)
        if item is None and self._graph.fans_out[node]:
            self._graph.fan_out(scope, node, 0)
        else:
            live = [not self._graph.conditional[edge] for edge in self._graph.edges(node)]
            self._pass_on(node, scope, None, live, now_ns)

    # Nodes.

    def _look(self, flow: Flow, cause: Sample | None, now_ns: int) -> None:
        """Begin or skip the nodes whose edges have changed, in topological order."""
        while not flow.ended:
            touched = self._graph.next_touched(flow)
            if touched is None:
                return
            node, scope, verdict = touched
            if verdict == BEGIN:
                self._begin(node, scope, cause, now_ns)
            elif node == self._outputs[flow.pipeline.number]:
                self._log.write(now_ns, Decision.JOIN, flow.row.sequence, node, 0)
                self._answer(scope, node, None, now_ns)
            else:
                self._graph.skip(scope, node)

    def _begin(self, node: int, scope: Scope, cause: Sample | None, now_ns: int) -> None:
        graph, row = self._graph, scope.flow.row
        scope.causes[node] = cause
        if graph.joins[node]:
            self._log.write(now_ns, Decision.JOIN, row.sequence, node, scope.live_edges[node])
        try:
            rows = self._passing.rows(node, scope) if graph.fans_out[node] else 1
        except CannotPass as reason:
            self._fail(node, scope, None, str(reason), Ending.ANSWERED, now_ns)
            return
        model = self._cascades.first_model(node, row.request, now_ns)
        if rows and not self._dispatch.by_deadline.may_begin(row.request, model, now_ns):
            self._log.write(now_ns, Decision.REFUSE, row.sequence, Ending.INFEASIBLE, node)
            self._fail(node, scope, None, TOO_LATE[Ending.INFEASIBLE], Ending.INFEASIBLE, now_ns)
            return
        for at in graph.fan_out(scope, node, rows) if graph.fans_out[node] else [scope]:
            self._make(node, at, now_ns)

    def _make(self, node: int, scope: Scope, now_ns: int) -> None:
        flow = scope.flow
        row = flow.row
        item = Sample(row.request, row.row, next(self._numbers), node=node, scope=scope, entered_ns=now_ns)
        flow.items[item.sequence] = item
        self._log.write(now_ns, Decision.SPAWN, item.sequence, node, row.sequence)
        try:
            item.payload = self._passing.payload(node, scope)
        except CannotPass as reason:
            item.error = str(reason)
            self.ended.append(item)
            return
        self._route(item, self._cascades.begin(item, now_ns), now_ns)

    # Ends.

    def _answer(self, scope: Scope, node: int, item: Sample | None, now_ns: int) -> None:
        """Give the row the answer of its output, or none where the output failed or was skipped."""
        flow = scope.flow
        row = flow.row
        row.degraded_by = flow.degraded_by
        row.missing = tuple(flow.missing)
        if item is not None:
            row.result, row.model, row.certainty = item.result, item.model, item.certainty
            row.stage, row.exit_segment, row.expected_end_ns = item.stage, item.exit_segment, item.expected_end_ns
        last = item if item is not None else scope.causes.get(node)
        while last is not None:
            row.queue_ns += last.queue_ns
            row.run_ns += last.run_ns
            last = _cause_of(last, self._graph)
        self._end(row, now_ns)

    def _end(self, row: Sample, now_ns: int) -> None:
        root: Scope = row.scope
        self._withdraw(root.flow, now_ns)
        self._answered(row)
        root.clear()
        row.scope = None

    def _withdraw(self, flow: Flow, now_ns: int) -> None:
        """End a row: what waits of it leaves its queues, and what runs is forgotten."""
        flow.ended = True
        flow.touched.clear()
        for item in flow.items.values():
            item.error = item.error or WITHDRAWN
            self._dispatch.withdraw(item, now_ns)
        flow.items.clear()


def _cause_of(item: Sample, graph: Graph) -> Sample | None:
    """The item whose end made the node of `item` begin."""
    scope: Scope = item.scope
    if graph.fans_out[item.node]:
        assert scope.around is not None
        scope = scope.around
    return scope.causes[item.node]
