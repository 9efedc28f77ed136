"""Pipelines of several nodes: worked out by hand, and beside the composed query replayed on the same records."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gearshift.decisions import Decision, Ending
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.pipeline import Edge, FanOut, Node, When
from gearshift.planner.joint.composed import answers, composed_query
from gearshift.planner.joint.replay import replay
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.curves import performance_models
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.tuples import Items, JointRecords
from gearshift.simulator.kernel.recorded_rows import resolved
from gearshift.simulator.simulate import UNBOUNDED, Simulation, simulate, simulate_tables
from gearshift.workload import Workload
from tests.conformance.graphs import graph_cases
from tests.conformance.plans import MS, Case
from tests.conformance.small import small_graph, small_graph_gear, small_workload
from tests.often import often

PLACED = {"a0": "d0", "b0": "d1", "c0": "d2"}
ROWS = FanOut(per_row="a.rows", most=3)
GATHERED = {"b": {"fan_out": ROWS}, "c": {"fan_in": True}}
THREE_ROWS = [("a", 0, -1), ("b", 0, -1), ("b", 1, -1), ("b", 2, -1), ("c", 0, -1)]
RANDOM = settings(max_examples=often(60), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def graph_of(
    placed: Mapping[str, str],
    cascades: Mapping[str, str],
    edges: Sequence[str],
    *,
    nodes: Mapping[str, Mapping[str, Any]] = {},
    **gear: Any,
) -> GearPlan:
    """Nodes with these cascades, whose operators are named after their first models; the last is the output.

    An edge is "a b", or "a b if" under a condition.
    """
    made = {name: Node(operator=each.split()[0], **nodes.get(name, {})) for name, each in cascades.items()}
    ends = [edge.split() for edge in edges]
    sometimes = When(output="certainty", at_least=0.5)
    return small_graph(
        placed,
        made,
        [Edge(from_=a, to=b, when=sometimes if condition else None) for a, b, *condition in ends],
        small_graph_gear(placed, cascades, **gear),
    )


def small_joint(plan: GearPlan, tuples: Sequence[Sequence[tuple[str, int, int]]]) -> dict[str, JointRecords]:
    """Joint records: per tuple its items as node, sample, and place of the item around (-1: none)."""
    pipeline = plan.pipelines["graph"]
    number = {name: i for i, name in enumerate(pipeline.nodes)}
    items: list[tuple[int, int, int, int]] = []
    for t, each in enumerate(tuples):
        begin = len(items)
        items += [(t, number[node], sample, around if around < 0 else begin + around) for node, sample, around in each]
    records = Items(*np.array(items, dtype=np.int64).T).joint_records(
        pipeline.nodes,
        pipeline.edges,
        names=[f"t{t}" for t in range(len(tuples))],
        part=(np.arange(len(tuples)) % 2).astype(np.int8),
    )
    return {"graph": records}


def run(
    plan: GearPlan,
    joint: Mapping[str, JointRecords],
    workload: Workload,
    run_ms: Mapping[str, int] = {"a": 10, "b": 10, "c": 10},
    *,
    certainty: Mapping[str, Sequence[float]] = {},
    unmet: Sequence[int] = (),
    most_waiting: int = UNBOUNDED,
    **how: Any,
) -> Simulation:
    """`run_ms` is how long a model's batch takes, whatever its size; the conditions of edges `unmet` never hold."""
    tables = plan_tables(plan)
    run_ns = np.array([[0] + [run_ms[r[0]] * MS] * 8 for r in tables.replica_ids], dtype=np.int64)
    sure = np.ones((len(tables.models), 20))
    for model, values in certainty.items():
        sure[tables.models.index(model), : len(values)] = values
    held = np.ones((len(tables.graph.edge_to), *sure.shape), dtype=np.bool_)
    held[[*unmet]] = False
    recorded = resolved(plan, tables, joint, held)
    return simulate_tables(
        tables, run_ns, sure, workload, recorded=recorded, most_waiting=most_waiting, log_rows=5000, **how
    )


def rows_of(run: Simulation, *kinds: Decision) -> list[tuple[int, ...]]:
    return [(at_ns // MS, *row) for at_ns, kind, *row in run.log if kind in kinds]


# Worked out by hand ---------------------------------------------------------------------------------------------------


def test_a_row_goes_from_node_to_node_and_is_answered_by_the_output() -> None:
    plan = graph_of(PLACED, {"a": "a", "b": "b"}, ["a b"])
    got = run(plan, small_joint(plan, [[("a", 0, -1), ("b", 0, -1)]] * 2), small_workload([0, 15]))
    assert rows_of(got, Decision.SPAWN) == [(0, 2, 0, 0), (10, 3, 1, 0), (15, 4, 0, 1), (25, 5, 1, 1)]
    assert rows_of(got, Decision.ANSWER) == [(10, 2, 0, 0), (20, 3, 1, 0), (25, 4, 0, 0), (35, 5, 1, 0)]
    assert (got.finished_ns // MS).tolist() == [20, 35]
    assert got.model.tolist() == [1, 1]


def test_run_times_vary_by_the_factors_of_batches_in_the_order_in_which_they_start() -> None:
    plan = graph_of(PLACED, {"a": "a", "b": "b"}, ["a b"])
    workload = replace(small_workload([0, 15]), run_factors=np.array([1.0, 2.0, 0.5]))
    got = run(plan, small_joint(plan, [[("a", 0, -1), ("b", 0, -1)]] * 2), workload)
    assert rows_of(got, Decision.ANSWER) == [(10, 2, 0, 0), (20, 4, 0, 0), (30, 3, 1, 0), (40, 5, 1, 0)]
    assert (got.busy_s[:2] * 1e3).round(6).tolist() == [15.0, 30.0]


def test_a_fan_out_runs_for_each_row_and_a_fan_in_once_for_all() -> None:
    plan = graph_of(PLACED, {"a": "a", "b": "b", "c": "c"}, ["a b", "b c"], nodes=GATHERED, largest=2)
    got = run(plan, small_joint(plan, [THREE_ROWS] * 2), small_workload([0]))
    # a until 10; b takes two rows until 20, and the third until 30; then c
    assert rows_of(got, Decision.SPAWN) == [(0, 1, 0, 0), (10, 2, 1, 0), (10, 3, 1, 0), (10, 4, 1, 0), (30, 5, 2, 0)]
    assert rows_of(got, Decision.JOIN) == [(30, 0, 2, 4)]
    assert (got.finished_ns // MS).tolist() == [40]


def test_a_fan_out_without_rows_begins_what_gathers_them() -> None:
    plan = graph_of(PLACED, {"a": "a", "b": "b", "c": "c"}, ["a b", "b c"], nodes=GATHERED)
    got = run(plan, small_joint(plan, [[("a", 0, -1), ("c", 0, -1)]] * 2), small_workload([0]))
    assert rows_of(got, Decision.JOIN) == [(10, 0, 2, 1)]
    assert (got.finished_ns // MS).tolist() == [20]


def test_more_rows_than_a_fan_out_may_have_are_refused_or_cut() -> None:
    for beyond, answered, items in (("refuse", False, 1), ("cut", True, 4)):
        nodes = GATHERED | {"b": {"fan_out": FanOut(per_row="a.rows", most=2, beyond=beyond)}}  # type: ignore[arg-type]
        plan = graph_of(PLACED, {"a": "a", "b": "b", "c": "c"}, ["a b", "b c"], nodes=nodes)
        got = run(plan, small_joint(plan, [THREE_ROWS] * 2), small_workload([0]))
        assert (bool(got.finished_ns[0] >= 0), len(got.items or ())) == (answered, items)


def test_rows_of_rows_are_gathered_scope_by_scope() -> None:
    placed = {f"{model}0": f"d{i}" for i, model in enumerate("abcde")}
    nodes = {
        "b": {"fan_out": FanOut(per_row="a.rows", most=3)},
        "c": {"fan_out": FanOut(per_row="b.rows", most=3)},
        "d": {"fan_in": True},
        "e": {"fan_in": True},
    }
    plan = graph_of(placed, {n: n for n in "abcde"}, ["a b", "b c", "c d", "d e"], nodes=nodes, largest=8)
    items = [("a", 0, -1), ("b", 0, -1), ("b", 1, -1)]
    items += [("c", 0, 1), ("c", 1, 1), ("c", 2, 2), ("d", 0, 1), ("d", 1, 2), ("e", 0, -1)]
    got = run(plan, small_joint(plan, [items] * 2), small_workload([0]), dict.fromkeys("abcde", 10))
    assert [row[2:] for row in rows_of(got, Decision.JOIN)] == [(3, 3), (3, 2), (4, 3)]
    assert (got.finished_ns // MS).tolist() == [50]


def test_an_edge_whose_condition_does_not_hold_is_dead_and_so_are_those_behind_it() -> None:
    placed = PLACED | {"d0": "d3"}
    plan = graph_of(placed, {n: n for n in "abcd"}, ["a b if", "b c", "a d", "c d"])
    tuples = [[(n, 0, -1) for n in "abcd"]] * 2
    for unmet, joined_ms, live, items in (([], 30, 2, 4), ([0], 10, 1, 2)):
        got = run(plan, small_joint(plan, tuples), small_workload([0]), dict.fromkeys("abcd", 10), unmet=unmet)
        assert rows_of(got, Decision.JOIN) == [(joined_ms, 0, 3, live)]
        assert len(got.items or ()) == items


def test_an_output_that_is_skipped_ends_the_row_without_a_result() -> None:
    plan = graph_of(PLACED, {"a": "a", "b": "b"}, ["a b if"])
    got = run(plan, small_joint(plan, [[("a", 0, -1), ("b", 0, -1)]] * 2), small_workload([0]), unmet=[0])
    assert rows_of(got, Decision.JOIN) == [(10, 0, 1, 0)]
    assert (got.finished_ns // MS).tolist() == [10]
    assert (got.model.tolist(), got.ended.tolist()) == ([-1], [Ending.ANSWERED])


def test_a_first_join_begins_with_the_first_branch_and_what_waits_of_the_other_leaves_its_queue() -> None:
    placed = {"a0": "d0", "b0": "d1", "c0": "d2"}
    plan = graph_of(placed, {"a": "a", "b": "b", "c": "c"}, ["a c", "b c"], nodes={"c": {"join": "first"}}, largest=1)
    joint = small_joint(plan, [[("a", 0, -1), ("b", 0, -1), ("c", 0, -1)]] * 3)
    got = run(plan, joint, small_workload([0, 0, 0]), {"a": 5, "b": 100, "c": 5})
    # b runs for row 0 until 100, and would have run for the others
    assert (got.finished_ns // MS).tolist() == [10, 15, 20]
    assert rows_of(got, Decision.JOIN) == [(5, 0, 2, 1), (10, 1, 2, 1), (15, 2, 2, 1)]
    assert got.batches.sum(axis=1).tolist() == [3, 1, 3]


def test_the_backlog_counts_a_row_once_however_many_of_its_items_wait() -> None:
    plan = graph_of(PLACED, {"a": "a", "b": "b", "c": "c"}, ["a b", "b c"], nodes=GATHERED, largest=1)
    joint = small_joint(plan, [THREE_ROWS] * 3)
    got = run(plan, joint, small_workload([0, 12, 14]), most_waiting=2)
    # at 12 two rows of the first request wait, as at 14; at 12 the second request's item runs at once
    assert got.most_waiting == 2
    assert (got.finished_ns >= 0).all()
    assert (run(plan, joint, small_workload([0, 12, 14]), most_waiting=1).finished_ns >= 0).tolist() == [
        True,
        False,
        False,
    ]


def test_a_required_node_that_cannot_be_in_time_ends_the_row_and_another_is_left_out() -> None:
    workload = small_workload([0], deadline_ns=[25 * MS])
    for required, finished_ms, ending in ((True, [-1], Ending.INFEASIBLE), (False, [20], Ending.DEGRADED)):
        plan = graph_of(
            PLACED, {"a": "a", "b": "b", "c": "c"}, ["a b", "a c", "b c"], nodes={"b": {"required": required}}
        )
        joint = small_joint(plan, [[("a", 0, -1), ("b", 0, -1), ("c", 0, -1)]] * 2)
        got = run(plan, joint, workload, {"a": 10, "b": 20, "c": 10})
        assert rows_of(got, Decision.REFUSE) == [(10, 0, Ending.INFEASIBLE, 1)]
        assert [ns // MS if ns >= 0 else -1 for ns in got.finished_ns.tolist()] == finished_ms
        assert got.ended.tolist() == [ending]


def test_a_row_is_degraded_where_an_earlier_stage_answered_an_item_of_it() -> None:
    plan = graph_of(PLACED, {"a": "a b", "c": "c"}, ["a c"])
    joint = small_joint(plan, [[("a", 0, -1), ("c", 0, -1)]] * 2)
    got = run(
        plan, joint, small_workload([0], deadline_ns=[25 * MS]), {"a": 10, "b": 20, "c": 10}, certainty={"a": [0]}
    )
    assert rows_of(got, Decision.DEGRADE) == [(10, 1, 0, 0)]
    assert (got.finished_ns.tolist(), got.ended.tolist()) == ([20 * MS], [Ending.DEGRADED])


def test_two_nodes_of_one_operator_share_its_replicas_and_batches() -> None:
    plan = graph_of({"a0": "d0", "c0": "d1"}, {"x": "a", "y": "a", "c": "c"}, ["x c", "y c"])
    got = run(plan, small_joint(plan, [[("x", 0, -1), ("y", 1, -1), ("c", 0, -1)]] * 2), small_workload([0]))
    assert rows_of(got, Decision.START)[0] == (0, 0, 2, 1)
    assert (got.finished_ns // MS).tolist() == [20]


# Records --------------------------------------------------------------------------------------------------------------


def profile_of(models: Sequence[str], *, samples: int, seed: int) -> Profile:
    generator = np.random.default_rng(seed)
    curves = tuple(
        RunTimeCurve(
            model=m, device_kind="cpu", batch_sizes=(1, 2, 4), median_s=(0.001, 0.0015, 0.002), p95_s=(0.002,) * 3
        )
        for m in models
    )
    return Profile(
        operator=models[0],
        curves=curves,
        predictions=PredictionRecords(
            models=tuple(models),
            quality=generator.integers(0, 2, (len(models), samples)).astype(np.float64),
            certainty=generator.integers(0, 5, (len(models), samples)) / 4,
            part=(np.arange(samples) % 2).astype(np.int8),
        ),
        performance=performance_models([]),
    )


def recognised() -> tuple[GearPlan, dict[str, Profile], dict[str, JointRecords]]:
    """Rows of an image are read, doubtful ones checked, and what was read joined."""
    placed = {"a0": "d0", "b0": "d1", "c0": "d2", "d0": "d3", "e0": "d4"}
    plan = graph_of(
        placed,
        {"split": "a", "read": "b c", "check": "d", "join": "e"},
        ["split read", "read check if", "read join", "check join"],
        thresholds=0.6,
        nodes={"read": {"fan_out": FanOut(per_row="split.rows", most=5)}, "join": {"fan_in": True}},
        largest=4,
    )
    profiles = {
        name: profile_of(models, samples=samples, seed=i)
        for i, (name, models, samples) in enumerate([("a", "a", 40), ("b", "bc", 90), ("d", "d", 70), ("e", "e", 40)])
    }
    generator = np.random.default_rng(9)
    tuples = []
    for t in range(40):
        items = [("split", t, -1), ("join", t, -1)]
        for _ in range(int(generator.integers(0, 6))):
            items += [("read", int(generator.integers(90)), -1), ("check", int(generator.integers(70)), len(items))]
        tuples.append(items)
    return plan, profiles, small_joint(plan, tuples)


def test_the_quality_of_a_row_is_that_of_the_composed_query_replayed_on_its_tuple() -> None:
    plan, profiles, joint = recognised()
    workload = small_workload(np.arange(40) * 50.0)
    got = simulate(plan, profiles, workload, joint=joint)
    pipeline = plan.pipelines["graph"]
    predictions = {name: profile.predictions for name, profile in profiles.items()}
    query = composed_query(pipeline.nodes, pipeline.edges, pipeline.output, joint["graph"], predictions)
    cascades = pipeline.gears[0].cascades
    work_s = dict.fromkeys("abcde", 1.0)
    expected = replay(query, {node: answers(query, node, cascades[node], work_s) for node in query.places})
    np.testing.assert_allclose(got.quality(profiles), expected.quality[0])
    visits = (got.batches @ np.arange(got.batches.shape[1])).sum()
    assert visits == expected.work_s[0].sum()


def test_the_figures_of_a_graph_are_of_its_request_rows_and_each_node_says_who_answered() -> None:
    plan, profiles, joint = recognised()
    got = simulate(plan, profiles, small_workload(np.arange(40) * 50.0), joint=joint)
    figures = got.result(profiles, latency_objective_s=0.02)
    assert (figures.requests, figures.share_refused) == (40, 0.0)
    assert figures.accuracy == pytest.approx(got.quality(profiles).mean())
    nodes = got.at_nodes()
    reads = int((joint["graph"].node == 1).sum())
    assert (nodes["split"].items, nodes["join"].items, nodes["read"].items) == (40, 40, reads)
    assert sum(nodes["read"].answered.values()) == reads
    assert set(nodes["read"].answered) == {"b", "c"}


def test_a_graph_without_joint_records_or_with_those_of_other_profiles_is_refused() -> None:
    plan, profiles, joint = recognised()
    workload = small_workload([0])
    with pytest.raises(InvalidInput, match="there are no joint records of pipeline 'graph', which has several nodes"):
        simulate(plan, profiles, workload)
    few = profiles | {"d": profile_of("d", samples=60, seed=2)}
    with pytest.raises(InvalidInput, match=r"name sample \d+ at node 'check', and 60 samples of operator 'd' were"):
        simulate(plan, few, workload, joint=joint)
    with pytest.raises(InvalidInput, match="there is no profile of operator 'd'; profile it"):
        simulate(plan, {name: profile for name, profile in profiles.items() if name != "d"}, workload, joint=joint)
    with pytest.raises(InvalidInput, match="names sample 40 of pipeline 'graph', but there are records of 40"):
        simulate(plan, profiles, replace(workload, record=np.array([40], dtype=np.int32)), joint=joint)


def test_a_tuple_that_lacks_an_item_of_a_node_is_refused() -> None:
    plan = graph_of(PLACED, {"a": "a", "b": "b", "c": "c"}, ["a b", "b c"])
    whole, lacking = [(n, 0, -1) for n in "abc"], [(n, 0, -1) for n in "ac"]
    with pytest.raises(InvalidInput, match="tuple 't1' does not have one item at node 'b' for each run of it"):
        run(plan, small_joint(plan, [whole, lacking]), small_workload([0]))


# Every run ------------------------------------------------------------------------------------------------------------


def run_case(case: Case, *, log_rows: int = 20_000) -> Simulation:
    tables, run_ns = plan_tables(case.plan), np.stack(case.run_ns)
    return simulate_tables(tables, run_ns, case.certainty, case.workload, recorded=case.recorded, log_rows=log_rows)


@RANDOM
@given(graph_cases())
def test_every_row_ends_and_each_recorded_item_is_made_at_most_once(case: Case) -> None:
    got = run_case(case)
    answered = got.ended <= Ending.DEGRADED
    assert (got.finished_ns[~answered] == -1).all()
    assert got.items is not None
    assert len(got.items) <= sum(len(joint.node) for joint in case.joint.values()) * len(case.workload)
    spawned = [row[2] for row in got.log if row[1] == Decision.SPAWN]
    assert spawned == list(range(len(case.workload), len(case.workload) + len(got.items)))
    ends = (Decision.ANSWER, Decision.DEGRADE, Decision.DROP)
    ended = [row[2] for row in got.log if row[1] in ends]
    assert len(set(ended)) == len(ended)
    for pipeline in got.tables.pipelines:
        one = got.of(pipeline.name)
        assert one.arrived_in_gear.sum() == len(one.workload)
        for name, node in one.at_nodes(pipeline.name).items():
            assert sum(node.answered.values()) <= node.items, name


@RANDOM
@given(graph_cases())
def test_a_run_of_graphs_keeps_no_state_and_no_log_changes_it(case: Case) -> None:
    first, again = run_case(case), run_case(case, log_rows=0)
    for column in ("finished_ns", "model", "gear", "ended", "batches", "shifts"):
        np.testing.assert_array_equal(getattr(first, column), getattr(again, column))
