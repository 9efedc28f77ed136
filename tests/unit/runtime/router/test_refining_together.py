"""Two pipelines that refine on one device, worked out by hand; times are milliseconds."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import UNSET

from gearshift.decisions import Decision
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.run_times import most_refined
from gearshift.workload import merge_workloads
from tests.conformance.plans import MS
from tests.conformance.small import refining, small_gear, small_plan_of, small_workload
from tests.conformance.virtual import run_virtually

FALLING = {0.0: 0.4, 0.5: 0.2, 0.9: 0.0}
PLACED = {"a0": "d0", "b0": "d0", "x0": "d0", "y0": "d0"}
RUN_MS = {"a": 1, "b": 10, "x": 1, "y": 10}


def together(*, largest: int | Mapping[str, int] = 1, **refinement: Any) -> GearPlan:
    """Pipelines p, of models a and b, and q, of x and y."""
    cascades = {"p": "a b", "q": "x y"}
    gears = {
        name: [small_gear(PLACED, models, (0.9,), largest=largest, node=name)] for name, models in cascades.items()
    }
    return refining(small_plan_of(PLACED, gears), FALLING, **refinement)


def started(
    plan: GearPlan, arrivals_ms: Sequence[Sequence[float]], certainty: Sequence[Sequence[float]], **columns: Any
) -> list[tuple[float, str]]:
    """When each batch starts, and its replica; `certainty` is of the first models, by request."""
    tables = plan_tables(plan)
    run_ns = [np.full(50, int(RUN_MS[replica[0]] * MS)) for replica in tables.replica_ids]
    sure = np.ones((len(tables.models), max(map(len, certainty))))
    for model, rows in zip("ax", certainty, strict=True):
        sure[tables.models.index(model), : len(rows)] = rows
    workload = merge_workloads([small_workload(each, **columns) for each in arrivals_ms])
    log = run_virtually(tables, run_ns, sure, workload).log
    return [(now_ns / MS, tables.replica_ids[a]) for now_ns, kind, a, _, _ in log if kind == Decision.START]


def refined(rows: Sequence[tuple[float, str]]) -> list[str]:
    return [replica for _, replica in rows if replica in ("b0", "y0")]


def test_the_row_that_gains_most_is_refined_first_whichever_pipeline_it_is_of() -> None:
    assert refined(started(together(), [[0], [0]], [[0.6], [0.1]])) == ["y0", "b0"]
    assert refined(started(together(), [[0], [0]], [[0.1], [0.6]])) == ["b0", "y0"]


def test_a_gain_counts_times_the_worth_of_its_pipeline() -> None:
    rows: Any = [[0], [0]], [[0.6], [0.1]]
    assert refined(started(together(worth={"p": 3.0}), *rows)) == ["b0", "y0"]
    assert refined(started(together(worth={"p": 3.0, "q": 3.0}), *rows)) == ["y0", "b0"]


def test_each_row_has_the_time_of_its_own_objective() -> None:
    rows = started(together(latency_ms={"p": 12, "q": 100}), [[0], [0]], [[0.6], [0.1]])
    assert refined(rows) == ["y0"], "b would end at 22 of 12 ms"


def test_what_has_waited_longest_is_screened_first_unless_only_the_other_row_would_be_late_then() -> None:
    rows: Any = [[0, 0.2], [0.4]], [[1.0, 1.0], [1.0]]
    by_age, urgent = ["a0", "a0", "x0"], ["a0", "x0", "a0"]
    for latency_ms, expected in ((100, by_age), (2.6, by_age), (2.5, urgent), (1.5, by_age)):
        plan = together(latency_ms={"p": 100, "q": latency_ms})
        assert [replica for _, replica in started(plan, *rows)] == expected, "behind a0, x0 ends after 2.6 ms"


def test_a_full_batch_of_another_pipeline_is_screened_before_rows_are_refined() -> None:
    plan = together(latency_ms={"p": 90, "q": 100}, largest={"a0": 4, "x0": 2, "b0": 1, "y0": 1})
    rows = started(plan, [[0, 0.5], [0.5, 0.5]], [[0.0, 1.0], [1.0, 1.0]])
    assert [replica for _, replica in rows] == ["a0", "a0", "x0", "b0"]


@pytest.mark.parametrize("places", ["d0", "d1"])
def test_levels_compare_gains_only_of_pipelines_that_share_devices(places: str) -> None:
    placed = {"a0": "d0", "b0": "d0", "x0": places, "y0": places}
    gears = {name: [small_gear(placed, models, (0.9,), node=name)] for name, models in {"p": "a b", "q": "x y"}.items()}
    plan = refining(small_plan_of(placed, gears), FALLING, worth={"q": 5.0})
    greatest = plan_tables(plan).refine.greatest.tolist()
    assert greatest == pytest.approx([2.0, 2.0] if places == "d0" else [0.4, 2.0])


def test_a_replica_that_a_gear_does_not_use_shares_its_queue_and_so_its_device() -> None:
    placed = {"a0": "d0", "b0": "d0", "b1": "d1", "x0": "d1", "y0": "d1"}
    gears = {name: [small_gear(placed, models, (0.9,), node=name)] for name, models in {"p": "a b", "q": "x y"}.items()}
    unused = tuple(
        msgspec.structs.replace(each, load_share={"b0": 1.0, "b1": 0.0}.get(each.replica, each.load_share))
        for each in gears["p"][0].replicas
    )
    gears["p"] = [msgspec.structs.replace(gears["p"][0], replicas=unused)]
    plan = refining(small_plan_of(placed, gears), FALLING, worth={"q": 5.0})
    assert plan_tables(plan).refine.greatest.tolist() == pytest.approx([2.0, 2.0])


def test_a_pipeline_that_orders_by_arrival_is_refused_beside_one_that_refines() -> None:
    plan = together()
    by_arrival = msgspec.structs.replace(
        plan.pipelines["q"],
        gears=tuple(msgspec.structs.replace(gear, order=UNSET) for gear in plan.pipelines["q"].gears),
    )
    mixed = msgspec.structs.replace(plan, pipelines=plan.pipelines | {"q": by_arrival})
    with pytest.raises(InvalidInput, match="order by gain in pipeline 'p' and by arrival in 'q': by gain, alike"):
        plan_tables(mixed)


def test_as_many_rows_may_wait_as_the_pipelines_own_latency_leaves_time_for() -> None:
    tables = plan_tables(together(latency_ms={"p": 50, "q": 200}))
    run_ns = np.array([[0, RUN_MS[replica[0]] * MS] for replica in tables.replica_ids])
    assert dict(zip(tables.replica_ids, most_refined(tables, run_ns).tolist(), strict=True)) == {
        "a0": 50,
        "b0": 5,
        "x0": 200,
        "y0": 20,
    }


def test_no_row_waits_by_gain_in_a_plan_that_does_not_refine() -> None:
    tables = plan_tables(small_plan_of(PLACED, {"p": [small_gear(PLACED, "a b", (0.9,), node="p")]}))
    run_ns = np.full((len(tables.replica_ids), 2), MS)
    assert most_refined(tables, run_ns).tolist() == [0, 0, 0, 0]
