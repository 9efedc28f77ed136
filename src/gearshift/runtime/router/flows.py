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


STEP_ITEMS = 512
"""Items of fan-outs that one event makes or withdraws: some milliseconds of work."""
MOST_ITEMS = 4 * STEP_ITEMS
"""Items of a row that have not ended, beyond which its fan-outs wait: rows of others stand behind so many in queues."""
NO_BOUND = 1 << 62
ITEM_BYTES = 2 << 10
"""Memory of an item with its scope and inputs, besides its outputs."""
DONE = object()


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


class Memory(Protocol):
    """Counts the bytes of what rows make on their way through graphs."""

    def hold(self, own_bytes: int, more_bytes: int) -> None:
        """Count more for a row that has `own_bytes`; raises `CannotPass` where there is no room."""

    def give_back(self, held_bytes: int) -> None: ...

    def of_result(self, result: object) -> int: ...

    def of_gathered(self, payload: object) -> int:
        """Bytes of the inputs of a node that gathers the rows of a fan-out."""


class Flows:
    """The request rows of all graphs.

    `route(item, model, now_ns)` puts an item into a queue; `answered(row)` takes each request row
    once, `told(item)` each item that ended while its row was open. Items that end are put on
    `ended`, and `go_on` goes through them. An event makes or withdraws at most `STEP_ITEMS` items of
    fan-outs; what is left is done step by step by `more`, so that a large one gives way to others. A row has at most
    `MOST_ITEMS` that have not ended: more are made as those end, so that the items of others are not
    behind all of them.
    `memory` counts what is held between nodes.
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
        memory: Memory | None = None,
    ) -> None:
        self._graph, self._passing = Graph(tables.graph), passing
        self._cascades, self._dispatch, self._log = cascades, dispatch, log
        self._numbers, self._route, self._answered, self._told = numbers, route, answered, told
        self._outputs = [pipeline.output for pipeline in tables.pipelines]
        self.ended: deque[Sample] = deque()
        self._memory = memory
        self._most_items = MOST_ITEMS
        self._left = STEP_ITEMS
        """Items that this event may still make or withdraw."""
        self._unmade: deque[tuple[int, Scope, int]] = deque()
        """Fan-outs of which items are to be made: the node, its scope, and the number of rows."""
        self._leaving: deque[Iterator[None]] = deque()
        """Rows that have ended, of which items and scopes are left."""

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
        self._withdraw(root.flow)
        row.scope = None
        self._take_apart(root, now_ns)

    @property
    def unfinished(self) -> bool:
        """Whether `more` has something to do."""
        return bool(self._unmade or self._leaving)

    def begin_event(self) -> None:
        self._left = STEP_ITEMS

    def more(self, now_ns: int) -> None:
        """Go on with what earlier events have left: a step of the fan-out whose turn it is, and of a row that ended."""
        if self._leaving:
            leaving = self._leaving.popleft()
            if self._is_left(leaving):
                self._leaving.append(leaving)
        self._left = STEP_ITEMS
        if self._unmade:
            node, scope, rows = self._unmade.popleft()
            if not scope.flow.ended:
                self._unfold(node, scope, rows, now_ns)

    def go_on_to_the_end(self, now_ns: int) -> None:
        """As `go_on`, with all that is left for later, where nobody else waits for a turn."""
        self._most_items = NO_BOUND
        self.go_on(now_ns)
        while self.unfinished:
            self.more(now_ns)
            self.go_on(now_ns)

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
        if flow.held_up and len(flow.items) < self._most_items:
            self._unmade.append(flow.held_up.popleft())
        gathered_bytes = flow.gathered_bytes.pop(item.sequence, 0)
        if gathered_bytes:
            item.payload = None  # others are only views of what is held
            self._give_back(flow, gathered_bytes)
        if not item.error:
            flow.degraded_by = flow.degraded_by or item.degraded_by
            try:
                if self._memory is not None:
                    self._hold(flow, self._memory.of_result(item.result))
                live = [not asks[edge] or self._passing.holds(edge, item) for edge in self._graph.edges(item.node)]
            except CannotPass as reason:
                item.error, item.result = str(reason), None
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
            self._hold(scope.flow, rows * ITEM_BYTES)
        except CannotPass as reason:
            self._fail(node, scope, None, str(reason), Ending.ANSWERED, now_ns)
            return
        model = self._cascades.first_model(node, row.request, now_ns)
        if rows and not self._dispatch.by_deadline.may_begin(row.request, model, now_ns):
            self._log.write(now_ns, Decision.REFUSE, row.sequence, Ending.INFEASIBLE, node)
            self._fail(node, scope, None, TOO_LATE[Ending.INFEASIBLE], Ending.INFEASIBLE, now_ns)
            return
        if not graph.fans_out[node]:
            self._make(node, scope, now_ns)
            return
        graph.fan_out(scope, node, rows)
        self._unfold(node, scope, rows, now_ns)

    def _unfold(self, node: int, scope: Scope, rows: int, now_ns: int) -> None:
        """Make the items of a fan-out that are not made yet, as many as this event may."""
        made, most_items = scope.rows[node], self._most_items
        while len(made) < rows and not scope.flow.ended:
            if len(scope.flow.items) >= most_items:
                scope.flow.held_up.append((node, scope, rows))
                return
            if not self._left:
                self._unmade.append((node, scope, rows))
                return
            self._left -= 1
            self._make(node, self._graph.open_row(scope, node), now_ns)

    def _make(self, node: int, scope: Scope, now_ns: int) -> None:
        flow = scope.flow
        row = flow.row
        item = Sample(row.request, row.row, next(self._numbers), node=node, scope=scope, entered_ns=now_ns)
        flow.items[item.sequence] = item
        self._log.write(now_ns, Decision.SPAWN, item.sequence, node, row.sequence)
        try:
            item.payload = self._passing.payload(node, scope)
            if self._memory is not None and self._graph.gathers[node]:
                size_bytes = self._memory.of_gathered(item.payload)
                self._hold(flow, size_bytes)
                flow.gathered_bytes[item.sequence] = size_bytes
        except CannotPass as reason:
            item.payload = None
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
        self._withdraw(root.flow)
        self._answered(row)
        row.scope = None
        self._take_apart(root, now_ns)

    def _withdraw(self, flow: Flow) -> None:
        """End a row: what runs of it is forgotten."""
        flow.ended = True
        flow.touched.clear()
        flow.held_up.clear()

    def _take_apart(self, root: Scope, now_ns: int) -> None:
        """Take what waits of a row that has ended out of its queues, and let go of what it made."""
        steps = self._parts(root, now_ns)
        if self._is_left(steps):
            self._leaving.append(steps)

    def _parts(self, root: Scope, now_ns: int) -> Iterator[None]:
        flow = root.flow
        items = [*reversed(flow.items.values())]
        flow.items.clear()
        while items:
            item = items.pop()
            item.error = item.error or WITHDRAWN
            self._dispatch.withdraw(item, now_ns)
            yield
        yield from root.taken_apart()
        self._give_back(flow, flow.held_bytes)

    def _is_left(self, steps: Iterator[None]) -> bool:
        """Go on with `steps` as far as this event may; True if some are left."""
        while self._left:
            if next(steps, DONE) is DONE:
                return False
            self._left -= 1
        return True

    # Memory.

    def _hold(self, flow: Flow, more_bytes: int) -> None:
        if self._memory is not None:
            self._memory.hold(flow.held_bytes, more_bytes)
            flow.held_bytes += more_bytes

    def _give_back(self, flow: Flow, held_bytes: int) -> None:
        if self._memory is not None and held_bytes:
            self._memory.give_back(held_bytes)
            flow.held_bytes -= held_bytes


def _cause_of(item: Sample, graph: Graph) -> Sample | None:
    """The item whose end made the node of `item` begin."""
    scope: Scope = item.scope
    if graph.fans_out[item.node]:
        assert scope.around is not None
        scope = scope.around
    return scope.causes[item.node]
