"""Request rows on their way through graphs, worked out by hand; times are milliseconds."""

import gc
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.decisions import Decision, Ending
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.pipeline import Edge, FanOut, Node, When
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import Sample
from gearshift.runtime.faults.retries import Retries
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.flows import ITEM_BYTES, MOST_ITEMS, STEP_ITEMS, CannotPass
from gearshift.runtime.router.graph import Scope
from tests.conformance.plans import MS
from tests.conformance.small import small_graph, small_graph_gear
from tests.often import often
from tests.unit.runtime.driven import Driven

SURE = When(output="certainty", at_least=0.5)


class Script:
    """Passes on `rows` of each fan-out; conditions are on certainty. Nodes in `broken` get nothing."""

    def __init__(self, plan: GearPlan, rows: Mapping[str, int] = {}, broken: Sequence[str] = ()) -> None:
        self.names = [name for pipeline in plan.pipelines.values() for name in pipeline.nodes]
        self.given, self.broken = rows, broken
        self.unusable: set[int] = set()

    def holds(self, edge: int, item: Sample) -> bool:
        if item.sequence in self.unusable:
            raise CannotPass("the output has no certainty")
        return item.certainty >= 0.5

    def rows(self, node: int, scope: Scope) -> int:
        if self.given[self.names[node]] < 0:
            raise CannotPass("there are too many rows")
        return self.given[self.names[node]]

    def payload(self, node: int, scope: Scope) -> object:
        if self.names[node] in self.broken:
            raise CannotPass(f"{self.names[node]} has no input")
        return (self.names[node], scope.row)


def node(**fields: Any) -> Node:
    return Node(operator="operator", **fields)


def each(**fields: Any) -> Node:
    return node(fan_out=FanOut(per_row="parts", most=9), **fields)


def edges(*ends: str, conditional: Sequence[str] = ()) -> list[Edge]:
    made = [Edge(from_=end.split(">")[0], to=end.split(">")[1]) for end in ends]
    return made + [Edge(from_=end.split(">")[0], to=end.split(">")[1], when=SURE) for end in conditional]


class Graphs(Driven):
    """A graph in which each node has a model of its own on a device of its own, named by its letter."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        edges: Sequence[Edge],
        *,
        rows: Mapping[str, int] = {},
        broken: Sequence[str] = (),
        cascades: Mapping[str, str] = {},
        replicas: Sequence[str] = (),
        deadlines: Mapping[str, int] | None = None,
        retries: Retries | None = None,
        **settings: Any,
    ) -> None:
        letters = dict(zip(nodes, "abcdefgh", strict=False))
        cascades = {**letters, **cascades}
        models = sorted({model for cascade in cascades.values() for model in cascade.split()})
        placed = {replica: f"d{replica}" for replica in [*(f"{model}0" for model in models), *replicas]}
        plan = small_graph(placed, nodes, edges, small_graph_gear(placed, cascades, **settings))
        rules = None
        if deadlines is not None:
            run_ns = [[0] + [deadlines.get(replica[0], 1) * MS] * 50 for replica in sorted(placed)]
            rules = DeadlineRules(plan_tables(plan), run_ns)
        self.script = Script(plan, rows, broken)
        super().__init__(plan, retries, rules, self.script)

    def spawned(self) -> list[tuple[int, str, int]]:
        return [(a, self.name(b), c) for _, kind, a, b, c in self.log if kind == Decision.SPAWN]

    def joined(self) -> list[tuple[int, str, int]]:
        return [(a, self.name(b), c) for _, kind, a, b, c in self.log if kind == Decision.JOIN]


FORK = {"first": node(), "left": node(), "right": node(), "last": node()}
FORK_EDGES = ("first>left", "first>right", "left>last", "right>last")


def test_a_node_with_several_edges_waits_for_all_of_them() -> None:
    bench = Graphs(FORK, edges(*FORK_EDGES))
    (row,) = bench.arrive(0)
    bench.finish("a0", 5)
    assert bench.started[1:] == [("b0", [101]), ("c0", [102])]
    bench.finish("c0", 7)
    assert bench.joined() == []
    bench.finish("b0", 9)
    assert bench.joined() == [(0, "last", 2)]
    assert bench.answered == []
    bench.finish("d0", 12)
    assert bench.answered == [0]
    assert bench.spawned() == [(100, "first", 0), (101, "left", 0), (102, "right", 0), (103, "last", 0)]
    assert bench.ended == [("first", 100), ("right", 102), ("left", 101), ("last", 103)]
    assert (row.run_ns, row.queue_ns) == (12 * MS, 0)
    assert bench.tables.models[row.model] == "d"


def test_the_times_of_a_row_are_those_of_the_branches_that_joins_waited_for() -> None:
    bench = Graphs(FORK, edges(*FORK_EDGES), largest=1)
    bench.arrive(0)
    (row,) = bench.arrive(1)
    bench.finish("a0", 5)
    bench.finish("a0", 10)  # row 1 waited 5
    bench.finish("b0", 11)
    bench.finish("c0", 21)
    bench.finish("b0", 20)
    bench.finish("d0", 22)
    bench.finish("c0", 30)  # it waited for c from 10 to 21
    bench.finish("d0", 33)
    assert bench.answered == [0, 1]
    assert (row.queue_ns, row.run_ns) == (16 * MS, (5 + 9 + 3) * MS)


def test_a_condition_that_does_not_hold_skips_the_node_and_the_join_goes_without() -> None:
    bench = Graphs(FORK, edges(*FORK_EDGES[1:], conditional=["first>left"]))
    bench.arrive(0)
    bench.finish("a0", 5, certainty=0.1)
    bench.finish("c0", 7)
    assert bench.joined() == [(0, "last", 1)]
    bench.finish("d0", 8)
    assert (bench.answered, len(bench.spawned())) == ([0], 3)


def test_a_row_whose_output_is_skipped_is_answered_without_a_result() -> None:
    bench = Graphs({"first": node(), "then": node()}, edges(conditional=["first>then"]))
    (row,) = bench.arrive(0)
    bench.finish("a0", 5, certainty=0.1)
    assert (bench.answered, row.error, row.model, row.result, row.run_ns) == ([0], "", -1, None, 0)
    assert bench.joined() == [(0, "then", 0)]


def test_a_join_of_the_first_begins_once_with_the_first_live_edge() -> None:
    nodes = FORK | {"last": node(join="first")}
    bench = Graphs(nodes, edges(*FORK_EDGES))
    bench.arrive(0)
    bench.finish("a0", 5)
    bench.finish("c0", 7)
    assert bench.joined() == [(0, "last", 1)]
    bench.finish("b0", 8)
    bench.finish("d0", 9)
    assert (bench.answered, len(bench.spawned())) == ([0], 4)


def test_a_branch_that_still_waits_when_the_row_ends_leaves_its_queue_and_one_that_runs_is_forgotten() -> None:
    nodes = FORK | {"last": node(join="first")}
    bench = Graphs(nodes, edges(*FORK_EDGES), largest=1)
    bench.arrive(0)
    bench.finish("a0", 5)
    bench.arrive(1, ms=5)
    bench.finish("a0", 6)  # row 1 waits for b and c, which run row 0
    bench.finish("c0", 7)
    bench.finish("c0", 8)
    bench.finish("d0", 9)
    bench.finish("d0", 10)
    assert bench.answered == [0, 1]
    assert bench.router.queue_lengths() == [0] * 4
    assert bench.router.waiting == 0
    bench.finish("b0", 11)
    assert (bench.answered, bench.running) == ([0, 1], {})
    assert [row for row in bench.log if row[1] == Decision.ANSWER and row[0] == 11 * MS] == []


ROWS = {"first": node(), "part": each(), "check": node(), "join": node(fan_in=True)}
ROWS_EDGES = ("first>part", "part>check", "check>join")


def test_nodes_after_a_fan_out_run_for_each_row_and_the_node_that_closes_it_once() -> None:
    bench = Graphs(ROWS, edges(*ROWS_EDGES), rows={"part": 3})
    bench.arrive(0)
    bench.finish("a0", 1)
    assert [row[1] for row in bench.spawned()] == ["first", "part", "part", "part"]
    bench.finish("b0", 2)
    assert [sample.payload for sample in bench.running["c0"]] == [("check", 0), ("check", 1), ("check", 2)]
    bench.finish("c0", 3)
    assert bench.joined() == [(0, "join", 4)], "one for the rows that are known, and one for each"
    bench.finish("d0", 4)
    assert bench.answered == [0]


def test_a_fan_out_without_rows_begins_the_node_that_closes_it() -> None:
    bench = Graphs(ROWS, edges(*ROWS_EDGES), rows={"part": 0})
    bench.arrive(0)
    bench.finish("a0", 1)
    assert bench.joined() == [(0, "join", 1)]
    bench.finish("d0", 4)
    assert bench.answered == [0]


def test_rows_whose_condition_does_not_hold_are_left_out_of_what_closes_them() -> None:
    bench = Graphs(ROWS, edges("first>part", "check>join", conditional=["part>check"]), rows={"part": 3})
    bench.arrive(0)
    bench.finish("a0", 1)
    for sample, certainty in zip(bench.running["b0"], (0.9, 0.1, 0.9), strict=True):
        sample.certainty = certainty
    samples = bench.running.pop("b0")
    bench.router.stage_ended(bench.index("b0"), samples, 2 * MS)
    bench.router.executor_free(bench.index("b0"), 2 * MS)
    assert [sample.payload for sample in bench.running["c0"]] == [("check", 0), ("check", 2)]
    bench.finish("c0", 3)
    assert bench.joined() == [(0, "join", 3)]


def test_a_skipped_fan_out_skips_what_would_close_it() -> None:
    nodes = {"first": node(), "part": each(), "join": node(fan_in=True), "last": node()}
    bench = Graphs(nodes, edges("part>join", "join>last", "first>last", conditional=["first>part"]), rows={"part": 2})
    bench.arrive(0)
    bench.finish("a0", 1, certainty=0.1)
    assert bench.joined() == [(0, "last", 1)]
    bench.finish("d0", 2)
    assert bench.answered == [0]


def test_fan_outs_within_rows_of_fan_outs_are_closed_one_after_another() -> None:
    nodes = {"page": each(), "line": each(), "lines": node(fan_in=True), "pages": node(fan_in=True)}
    bench = Graphs(nodes, edges("page>line", "line>lines", "lines>pages"), rows={"page": 2, "line": 3})
    bench.arrive(0)
    bench.finish("a0", 1)
    assert len(bench.running["b0"]) == 4
    bench.finish("b0", 2)
    bench.finish("b0", 3)
    assert [(name, live) for _, name, live in bench.joined()] == [("lines", 4), ("lines", 4)]
    for ms, replica in enumerate(("c0", "c0", "d0"), 4):
        bench.finish(replica, ms)
    assert (bench.answered, len(bench.spawned())) == ([0], 2 + 6 + 2 + 1)


def test_the_backlog_counts_request_rows_of_which_something_waits() -> None:
    bench = Graphs(ROWS, edges(*ROWS_EDGES), rows={"part": 6}, largest=2)
    bench.arrive(0, 1)
    assert bench.router.waiting == 0
    bench.finish("a0", 1)
    assert (bench.router.queue_lengths()[1], bench.router.waiting) == (10, 2)
    bench.finish("b0", 2)
    bench.finish("b0", 3)
    bench.finish("b0", 4)
    assert bench.router.pipelines[0].waiting == 2, "row 0 waits for check, row 1 for part"


# Failures -------------------------------------------------------------------------------------------------------------


def fail(bench: Graphs, replica: str, ms: float, error: str = "it is broken") -> None:
    for sample in bench.running[replica]:
        sample.error = error
    bench.finish(replica, ms)


def test_a_required_node_that_fails_ends_the_row_once() -> None:
    bench = Graphs(FORK, edges(*FORK_EDGES), largest=1)
    (row,) = bench.arrive(0)
    bench.finish("a0", 1)
    fail(bench, "b0", 2)
    assert (bench.answered, row.error) == ([0], "it is broken")
    fail(bench, "c0", 3, "it is broken, too")
    assert (bench.answered, row.error, bench.router.waiting) == ([0], "it is broken", 0)


def test_a_node_that_is_not_required_passes_on_null_and_the_row_says_so() -> None:
    nodes = FORK | {"left": node(required=False)}
    bench = Graphs(nodes, edges(*FORK_EDGES))
    (row,) = bench.arrive(0)
    bench.finish("a0", 1)
    fail(bench, "b0", 2)
    bench.finish("c0", 3)
    assert bench.joined() == [(0, "last", 2)]
    bench.finish("d0", 4)
    assert (bench.answered, row.error, row.missing) == ([0], "", ((1, "it is broken"),))
    assert row.degraded_by == "it is broken"


def test_the_conditions_of_a_node_that_failed_do_not_hold() -> None:
    nodes = {"first": node(required=False), "then": node(), "last": node()}
    bench = Graphs(nodes, edges("first>last", "then>last", conditional=["first>then"]))
    bench.arrive(0)
    fail(bench, "a0", 1)
    assert bench.joined() == [(0, "last", 1)]


@pytest.mark.parametrize("required", [True, False])
def test_a_fan_out_of_too_many_rows_fails_before_it_has_any(required: bool) -> None:
    nodes = ROWS | {"part": each(required=required)}
    bench = Graphs(nodes, edges(*ROWS_EDGES), rows={"part": -1})
    (row,) = bench.arrive(0)
    bench.finish("a0", 1)
    if required:
        assert (bench.answered, row.error) == ([0], "there are too many rows")
    else:
        assert bench.joined() == [(0, "join", 1)]
        bench.finish("d0", 2)
        assert (bench.answered, row.missing) == ([0], ((1, "there are too many rows"),))


def test_an_item_that_gets_no_input_fails_like_any_other() -> None:
    nodes = FORK | {"left": node(required=False)}
    bench = Graphs(nodes, edges(*FORK_EDGES), broken=["left"])
    (row,) = bench.arrive(0)
    bench.finish("a0", 1)
    bench.finish("c0", 2)
    bench.finish("d0", 3)
    assert (bench.answered, row.missing) == ([0], ((1, "left has no input"),))


def test_an_answer_on_which_a_condition_cannot_be_tested_is_a_failure_of_its_node() -> None:
    bench = Graphs({"first": node(), "then": node()}, edges(conditional=["first>then"]))
    bench.script.unusable.add(100)
    (row,) = bench.arrive(0)
    bench.finish("a0", 1)
    assert (bench.answered, row.error) == ([0], "the output has no certainty")


def test_an_output_that_fails_and_is_not_required_leaves_the_row_without_a_result() -> None:
    bench = Graphs({"first": node(), "then": node(required=False)}, edges("first>then"))
    (row,) = bench.arrive(0)
    bench.finish("a0", 1)
    fail(bench, "b0", 2)
    assert (bench.answered, row.error, row.result, row.missing) == ([0], "", None, ((1, "it is broken"),))


# Deadlines ------------------------------------------------------------------------------------------------------------


def test_a_request_that_its_first_node_would_miss_is_refused_at_arrival() -> None:
    bench = Graphs(FORK, edges(*FORK_EDGES), deadlines={"a": 5})
    (row,) = bench.arrive(0, deadline_ns=4 * MS)
    assert (bench.answered, row.ending) == ([0], Ending.INFEASIBLE)
    assert [(kind, a, b, c) for _, kind, a, b, c in bench.log] == [(Decision.REFUSE, 0, Ending.INFEASIBLE, 0)]


def test_a_row_is_refused_where_a_required_node_would_begin_too_late() -> None:
    bench = Graphs(FORK, edges(*FORK_EDGES), deadlines={"c": 8})
    (row,) = bench.arrive(0, deadline_ns=10 * MS)
    bench.finish("a0", 3)
    assert (bench.answered, row.ending) == ([0], Ending.INFEASIBLE)
    assert bench.log[-1] == (3 * MS, Decision.REFUSE, 0, Ending.INFEASIBLE, 2)
    assert (bench.router.queue_lengths(), bench.router.waiting, [*bench.running]) == ([0] * 4, 0, [])


def test_a_row_goes_on_without_a_node_that_would_begin_too_late_and_is_degraded() -> None:
    nodes = FORK | {"right": node(required=False)}
    bench = Graphs(nodes, edges(*FORK_EDGES), deadlines={"c": 8})
    (row,) = bench.arrive(0, deadline_ns=10 * MS)
    bench.finish("a0", 3)
    bench.finish("b0", 4)
    bench.finish("d0", 5)
    assert (bench.answered, row.error, row.degraded_by) == ([0], "", "deadline")
    assert [node for node, _ in row.missing] == [2]


def test_an_item_that_has_no_time_for_its_next_model_goes_on_with_the_answer_it_has() -> None:
    bench = Graphs(
        {"first": node(), "then": node()}, edges("first>then"), cascades={"first": "a c"}, deadlines={"c": 9}
    )
    (row,) = bench.arrive(0, deadline_ns=10 * MS)
    bench.finish("a0", 3, certainty=0.1)
    assert bench.started[-1][0] == "b0"
    bench.finish("b0", 5)
    assert (bench.answered, row.degraded_by, bench.tables.models[row.model]) == ([0], "deadline", "b")


def test_what_is_dropped_while_devices_start_ends_its_row_and_withdraws_the_others_before_they_start() -> None:
    bench = Graphs(FORK, edges(*FORK_EDGES), deadlines={"b": 3, "c": 1}, largest=1)
    bench.arrive(0)
    bench.finish("a0", 1)
    (row,) = bench.arrive(1, ms=1, deadline_ns=10 * MS)
    bench.finish("a0", 2)  # row 1 waits behind row 0 for b and c
    bench.finish("b0", 9)  # too late for row 1 at b
    assert (bench.answered, row.ending) == ([1], Ending.INFEASIBLE)
    assert bench.router.queue_lengths() == [0] * 4
    bench.finish("c0", 10)
    assert bench.started[-1] == ("d0", [106])


# Withdrawn requests and lost workers ----------------------------------------------------------------------------------


def test_a_request_that_is_withdrawn_leaves_nothing_in_queues_and_is_never_answered() -> None:
    bench = Graphs(ROWS, edges(*ROWS_EDGES), rows={"part": 3}, largest=1)
    samples = bench.arrive(0, 1)
    bench.finish("a0", 1)
    bench.router.cancel(samples, 2 * MS)
    assert (bench.router.queue_lengths(), bench.router.waiting) == ([0] * 4, 0)
    bench.finish("a0", 3)
    bench.finish("b0", 3)
    assert (bench.answered, bench.running) == ([], {})


def test_items_of_a_lost_worker_run_again_in_their_branch_alone() -> None:
    bench = Graphs(FORK, edges(*FORK_EDGES), replicas=["b1"])
    bench.arrive(0)
    bench.finish("a0", 1)
    bench.lose("b0", ms=2)
    assert bench.started[-1] == ("b1", [101])
    bench.finish("b1", 3)
    bench.finish("c0", 4)
    bench.finish("d0", 5)
    assert bench.answered == [0]


def test_a_required_branch_without_workers_ends_the_row_when_its_time_to_run_is_over() -> None:
    bench = Graphs(FORK, edges(*FORK_EDGES), retries=Retries("abcd", longest_retry_ns=20 * MS))
    (row,) = bench.arrive(0)
    bench.finish("a0", 1)
    bench.lose("b0", ms=2)
    assert bench.router.waiting == 1
    bench.finish("c0", 4)
    bench.router.timer(bench.router.next_timer_ns())
    assert (bench.answered, bench.router.waiting) == ([0], 0)
    assert row.error == "the worker that held this request ended, and no other was free in time; try again later"


def test_an_optional_branch_without_workers_leaves_the_row_to_go_on() -> None:
    nodes = FORK | {"left": node(required=False)}
    bench = Graphs(nodes, edges(*FORK_EDGES), retries=Retries("abcd", longest_retry_ns=20 * MS))
    (row,) = bench.arrive(0)
    bench.finish("a0", 1)
    bench.lose("b0", ms=2)
    bench.finish("c0", 4)
    bench.router.timer(bench.router.next_timer_ns())
    assert bench.started[-1][0] == "d0", "the timer starts what follows"
    bench.finish("d0", 30)
    assert (bench.answered, [node for node, _ in row.missing]) == ([0], [1])


def test_a_row_that_has_ended_leaves_no_circle_of_references() -> None:
    bench = Graphs(ROWS, edges(*ROWS_EDGES), rows={"part": 3})
    gc.collect()
    gc.disable()
    try:
        bench.arrive(0)
        for ms, replica in enumerate(("a0", "b0", "c0", "d0"), 1):
            bench.finish(replica, ms)
        assert bench.answered == [0]
        bench.log.clear()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_graph_without_anything_to_pass_data_along_its_edges_is_refused() -> None:
    placed = {"a0": "d0"}
    nodes = {"first": node(), "then": node()}
    plan = small_graph(placed, nodes, edges("first>then"), small_graph_gear(placed, dict.fromkeys(nodes, "a")))
    with pytest.raises(InvalidInput, match="pass data"):
        Driven(plan)


# Whatever happens -----------------------------------------------------------------------------------------------------

SHAPES: dict[str, tuple[dict[str, Node], list[Edge]]] = {
    "fork": (FORK | {"left": node(required=False)}, edges(*FORK_EDGES[1:], conditional=["first>left"])),
    "first of two": (FORK | {"last": node(join="first")}, edges(*FORK_EDGES)),
    "rows": (ROWS, edges("first>part", "check>join", "part>join", conditional=["part>check"])),
    "rows of rows": (
        {"page": each(), "line": each(required=False), "lines": node(fan_in=True), "pages": node(fan_in=True)},
        edges("page>line", "line>lines", "lines>pages"),
    ),
    "two entries": (
        {"a": node(), "b": node(required=False), "c": node(), "d": node(required=False)},
        edges("a>c", "b>d", "c>d", conditional=["a>d"]),
    ),
}
EVENTS = [
    "arrive",
    "arrive",
    "arrive",
    "finish",
    "finish",
    "finish",
    "finish",
    "leave",
    "fail",
    "lose",
    "come",
    "cancel",
]


class Random(Graphs):
    """Runs a shape with two replicas of each model, and counts the answers of its request rows."""

    def __init__(self, shape: str, draw: random.Random) -> None:
        nodes, ends = SHAPES[shape]
        letters = "abcd"[: len(nodes)]
        super().__init__(
            nodes,
            ends,
            rows={name: draw.randrange(3) for name in nodes},
            cascades={next(iter(nodes)): "a d"},
            replicas=[f"{letter}1" for letter in letters],
            deadlines=dict.fromkeys(letters, 2),
            retries=Retries("abcd", longest_retry_ns=30 * MS),
            largest=draw.randrange(1, 4),
        )
        self.draw, self.now_ms, self.numbers = draw, 0.0, itertools.count()
        self.lost: set[str] = set()
        self.open: dict[int, list[Sample]] = {}
        self.cancelled: set[int] = set()

    def _start(self, replica: int, samples: list[Sample], reason: int) -> None:
        assert not any(sample.scope.flow.ended for sample in samples), "a row that has ended still waited"
        super()._start(replica, samples, reason)

    def event(self, kind: str) -> None:
        self.now_ms += self.draw.choice([0, 0, 1, 3])
        running = sorted(self.running)
        if kind == "arrive":
            numbers = [next(self.numbers) for _ in range(self.draw.randrange(1, 3))]
            limit_ms = self.draw.choice([None, None, 4, 8, 20])
            request = {} if limit_ms is None else {"deadline_ns": int((self.now_ms + limit_ms) * MS)}
            self.open[numbers[0]] = self.arrive(*numbers, ms=self.now_ms, **request)
        elif kind == "lose" and len(self.lost) < len(self.tables.replica_ids):
            replica = self.draw.choice(sorted(set(self.tables.replica_ids) - self.lost))
            self.lost.add(replica)
            self.lose(replica, ms=self.now_ms)
        elif kind == "come" and self.lost:
            replica = self.draw.choice(sorted(self.lost))
            self.lost.remove(replica)
            self.ready(replica, ms=self.now_ms)
        elif kind == "cancel" and self.open:
            first = self.draw.choice(sorted(self.open))
            samples = [sample for sample in self.open.pop(first) if sample.sequence not in self.answered]
            self.cancelled |= {sample.sequence for sample in samples}
            self.router.cancel(samples, int(self.now_ms * MS))
        elif kind == "fail" and running:
            fail(self, self.draw.choice(running), self.now_ms)
        elif kind == "finish" and running:
            self.finish(self.draw.choice(running), self.now_ms, self.draw.choice([0.1, 0.9]))
        elif kind == "leave" and running:
            replica = self.draw.choice(running)
            leaving = self.running[replica][:1]
            if len(self.running[replica]) > 1:
                self.running[replica] = self.running[replica][1:]
                leaving[0].certainty = 0.9
                self.router.stage_ended(self.index(replica), leaving, int(self.now_ms * MS))
        if self.router.next_timer_ns() <= self.now_ms * MS:
            self.router.timer(int(self.now_ms * MS))

    def come_to_an_end(self) -> None:
        while self.lost:
            self.event("come")
        while self.running or self.router.waiting:
            self.event("finish")


@given(st.sampled_from(sorted(SHAPES)), st.integers(0, 2**32 - 1), st.lists(st.sampled_from(EVENTS), max_size=60))
@settings(max_examples=often(200), deadline=None)
def test_every_request_row_is_answered_once_whatever_happens_to_its_items(
    shape: str, seed: int, events: list[str]
) -> None:
    bench = Random(shape, random.Random(seed))
    for kind in events:
        bench.event(kind)
    bench.come_to_an_end()
    arrived = range(next(bench.numbers))
    assert sorted(bench.answered) == [number for number in arrived if number not in bench.cancelled]
    assert (bench.router.waiting, sum(bench.router.queue_lengths())) == (0, 0)
    assert len({number for _, number in bench.ended}) == len(bench.ended), "each item ends once"


# Large fan-outs, and what is held between nodes ----------------------------------------------------------------------


class Held:
    """Memory of `most` bytes, where an answer is one of 100 bytes, and gathered inputs are of 10."""

    def __init__(self, most: int) -> None:
        self.most, self.held, self.steps = most, 0, list[int]()

    def hold(self, own_bytes: int, more_bytes: int) -> None:
        if self.held + more_bytes > self.most:
            raise CannotPass(f"no_room: {own_bytes + more_bytes}")
        self.held += more_bytes

    def give_back(self, held_bytes: int) -> None:
        self.held -= held_bytes

    def of_result(self, result: object) -> int:
        return 100

    def of_gathered(self, payload: object) -> int:
        return 10


def remember(bench: Graphs, most: int = 1 << 40) -> Held:
    memory = Held(most)
    assert bench.router._flows is not None
    bench.router._flows._memory = memory
    return memory


def wide(rows: int) -> Graphs:
    return Graphs(ROWS, edges(*ROWS_EDGES), rows={"part": rows}, largest=10_000)


def steps_of(bench: Graphs, longest: int = 1000) -> list[int]:
    """The items that each step makes."""
    made = [len(bench.spawned())]
    while bench.router.unfinished and len(made) < longest:
        bench.router.more(MS)
        made.append(len(bench.spawned()))
    return [after - before for before, after in itertools.pairwise(made)]


def test_a_large_fan_out_is_made_in_steps() -> None:
    bench = wide(2 * STEP_ITEMS + 7)
    bench.arrive(0)
    bench.finish("a0", 1)
    assert len(bench.spawned()) == 1 + STEP_ITEMS
    assert steps_of(bench) == [STEP_ITEMS, 7]
    assert bench.answered == []


def test_a_large_fan_out_has_so_many_items_at_once_and_goes_on_as_they_end() -> None:
    bench = wide(2 * MOST_ITEMS)
    bench.arrive(0)
    bench.finish("a0", 1)
    assert sum(steps_of(bench)) + STEP_ITEMS == MOST_ITEMS
    for _ in range(100):
        for replica in [*bench.running]:
            bench.finish(replica, 2)
        steps_of(bench)
    made = [name for _, name, _ in bench.spawned()].count("part")
    assert (made, bench.answered, bench.router.waiting) == (2 * MOST_ITEMS, [0], 0)


def test_a_large_fan_out_that_waits_for_its_items_is_withdrawn_with_them() -> None:
    bench = wide(2 * MOST_ITEMS)
    memory = remember(bench)
    (row,) = bench.arrive(0)
    bench.finish("a0", 1)
    steps_of(bench)
    bench.router.cancel([row], MS)
    steps_of(bench)
    assert (memory.held, bench.router.waiting, bench.router.unfinished) == (0, 0, False)


def test_large_fan_outs_take_turns() -> None:
    bench = wide(3 * STEP_ITEMS)
    bench.arrive(0)
    bench.arrive(1)
    bench.finish("a0", 1)
    bench.router.executor_free(bench.index("a0"), MS)
    while "a0" in bench.running:
        bench.finish("a0", 1)
    steps_of(bench)
    first_of = [row for _, name, row in bench.spawned() if name == "part"][::STEP_ITEMS]
    assert sorted(first_of) == [0, 0, 0, 1, 1, 1]
    assert first_of != sorted(first_of)


def test_rows_of_a_large_fan_out_are_gathered_only_once_all_were_made() -> None:
    bench = wide(STEP_ITEMS + 1)
    bench.arrive(0)
    bench.finish("a0", 1)
    started = len(bench.running)
    for _ in range(20):
        for replica in [*bench.running]:
            if replica != "d0":
                bench.finish(replica, 2)
    assert bench.joined() == []
    assert steps_of(bench) == [1]
    for _ in range(20):
        for replica in [*bench.running]:
            bench.finish(replica, 3)
    assert (started > 0, bench.answered) == (True, [0])


def test_what_waits_of_a_withdrawn_large_fan_out_leaves_in_steps() -> None:
    bench = wide(4 * STEP_ITEMS)
    memory = remember(bench)
    (row,) = bench.arrive(0)
    bench.finish("a0", 1)
    steps_of(bench)
    waited = sum(bench.router.queue_lengths())
    bench.router.cancel([row], MS)
    left = [sum(bench.router.queue_lengths())]
    while bench.router.unfinished:
        bench.router.more(MS)
        left.append(sum(bench.router.queue_lengths()))
    assert waited - left[0] <= STEP_ITEMS
    assert max(before - after for before, after in itertools.pairwise(left)) <= STEP_ITEMS
    assert (left[-1], memory.held, bench.router.waiting, bench.answered) == (0, 0, 0, [])


def test_items_and_their_outputs_are_held_until_their_row_ends() -> None:
    bench = Graphs(FORK, edges(*FORK_EDGES))
    memory = remember(bench)
    bench.arrive(0)
    assert memory.held == ITEM_BYTES
    bench.finish("a0", 5)
    assert memory.held == 3 * ITEM_BYTES + 100
    bench.finish("b0", 7)
    bench.finish("c0", 9)
    assert memory.held == 4 * ITEM_BYTES + 300
    bench.finish("d0", 12)
    assert (memory.held, bench.answered) == (0, [0])


@pytest.mark.parametrize("most", [3 * ITEM_BYTES - 1, ITEM_BYTES + 99])
def test_a_row_whose_items_or_outputs_do_not_fit_fails_and_gives_back_all(most: int) -> None:
    bench = Graphs(FORK, edges(*FORK_EDGES))
    memory = remember(bench, most)
    (row,) = bench.arrive(0)
    bench.finish("a0", 5)
    assert row.error.startswith("no_room: ")
    assert (memory.held, bench.answered, bench.router.waiting) == (0, [0], 0)


def test_a_fan_out_of_which_the_items_do_not_fit_makes_none() -> None:
    bench = wide(1_000_000)
    memory = remember(bench, 1000 * ITEM_BYTES)
    (row,) = bench.arrive(0)
    bench.finish("a0", 1)
    assert row.error == f"no_room: {1_000_001 * ITEM_BYTES + 100}"
    assert (len(bench.spawned()), memory.held, bench.router.unfinished) == (1, 0, False)


def test_gathered_inputs_are_held_while_their_node_runs() -> None:
    bench = wide(2)
    memory = remember(bench)
    bench.arrive(0)
    bench.finish("a0", 1)
    held = list[int]()
    for _ in range(20):
        for replica in [*bench.running]:
            bench.finish(replica, 2)
            held.append(memory.held % 100 if ITEM_BYTES % 100 == 0 else memory.held)
    assert bench.answered == [0]
    assert (10 in {(amount % ITEM_BYTES) % 100 for amount in held}, held[-1]) == (True, 0)
