import math
from typing import Any

import pytest

from gearshift.errors import InvalidInput
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from tests.conformance.small import small_gear, small_plan

PLACED = {"a0": "d0", "b0": "d0", "b1": "d1"}


@pytest.mark.parametrize(
    ("from_", "to", "sentence"),
    [
        (-1.0, None, "load range begins at -1.0; give a finite number from 0"),
        (math.nan, None, "load range begins at nan; give a finite number from 0"),
        (math.inf, None, "load range begins at inf; give a finite number from 0"),
        (5.0, 5.0, "load range [5.0, 5.0) is empty or not finite; give an upper end above the lower one"),
        (5.0, math.inf, "load range [5.0, inf) is empty or not finite; give an upper end above the lower one"),
    ],
)
def test_a_load_range_that_cannot_be_names_its_ends_and_the_remedy(
    from_: float, to: float | None, sentence: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        LoadRange(from_=from_, to=to)
    assert str(caught.value) == sentence


def test_a_load_range_reads_as_half_open() -> None:
    assert (str(LoadRange(from_=0, to=12.5)), str(LoadRange(from_=12.5))) == ("[0, 12.5)", "[12.5, inf)")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"load_share": 1.5}, "load_share is 1.5, needs 0 to 1"),
        ({"load_share": math.nan}, "load_share is nan, needs 0 to 1"),
        ({"minimum_queue_length": 0}, "minimum_queue_length is 0, needs at least 1"),
        ({"largest_batch_size": 0}, "largest_batch_size is 0, needs 1 to 65536"),
        ({"largest_batch_size": 1 << 62}, f"largest_batch_size is {1 << 62}, needs 1 to 65536"),
        ({"longest_wait_s": -0.1}, "longest_wait_s is -0.1, needs 0 to 3600"),
        ({"longest_wait_s": math.nan}, "longest_wait_s is nan, needs 0 to 3600"),
        ({"cores": 0}, "cores is 0, needs at least 1"),
    ],
)
def test_a_replicas_settings_name_the_replica_and_the_value(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ReplicaSettings(**({"replica": "r", "load_share": 1.0} | fields))
    assert str(caught.value) == f"settings of replica 'r': {sentence}"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"gears": ()}, "a pipeline has no gears, needs at least one"),
        ({"alpha": -1.0}, "alpha is -1.0, needs a finite number from 0"),
        ({"alpha": math.nan}, "alpha is nan, needs a finite number from 0"),
        ({"upshift_margin": -0.1}, "upshift_margin is -0.1, needs 0 to 1"),
        ({"upshift_margin": math.nan}, "upshift_margin is nan, needs 0 to 1"),
        ({"starvation_s": 0.0}, "starvation_s is 0.0, needs a positive number of seconds"),
        ({"default_priority": 0}, "default_priority is 0, needs 1 to 1000"),
        ({"default_priority": 1001}, "default_priority is 1001, needs 1 to 1000"),
    ],
)
def test_an_operator_that_cannot_be_names_the_value(fields: dict[str, Any], sentence: str) -> None:
    good: dict[str, Any] = {"objective": Objective(), "gears": (small_gear(PLACED, "a"),)}
    with pytest.raises(InvalidInput) as caught:
        PipelinePlan(nodes={"task": Node(operator="task")}, output="task", **(good | fields))
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("loads", "sentence"),
    [
        ([(1.0, None)], "the first gear's load range must begin at 0"),
        ([(0.0, 10.0), (11.0, None)], "load ranges [0, 10) and [11, inf) do not meet"),
        ([(0.0, 10.0), (9.0, None)], "load ranges [0, 10) and [9, inf) do not meet"),
        ([(0.0, None), (10.0, None)], "load ranges [0, inf) and [10, inf) do not meet"),
        ([(0.0, 10.0)], "the last gear's load range must have no upper end; set to null"),
    ],
)
def test_the_ranges_of_an_operators_gears_cover_every_load_once(
    loads: list[tuple[float, float | None]], sentence: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        PipelinePlan(
            nodes={"task": Node(operator="task")},
            output="task",
            objective=Objective(),
            gears=tuple(small_gear(PLACED, "a", load=load) for load in loads),
        )
    assert str(caught.value) == sentence


def test_load_shares_of_a_model_in_the_cascade_add_up_to_one() -> None:
    gear = small_gear(PLACED, "a b", (0.5,), shares={"b0": 0.5, "b1": 0.25})
    with pytest.raises(
        InvalidInput, match=r"gear for load \[0, inf\): load shares of model 'b' add up to 0.75, need 1"
    ):
        small_plan(PLACED, gear)


def test_a_cascades_model_that_is_placed_nowhere_is_refused() -> None:
    with pytest.raises(InvalidInput, match="load shares of model 'c' add up to 0, need 1"):
        small_plan(PLACED, small_gear(PLACED, "a c", (0.5,)))


def test_a_replica_whose_model_is_not_in_the_cascade_has_no_load_share() -> None:
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades=alone("task", small_gear(PLACED, "a").cascade),
        replicas=tuple(ReplicaSettings(replica=r, load_share=float(r != "b1")) for r in PLACED),
    )
    with pytest.raises(InvalidInput, match="replica 'b0' has a load share, but its model 'b' is not in the cascade"):
        small_plan(PLACED, gear)


@pytest.mark.parametrize("named", [("a0", "b0"), ("a0", "b0", "b1", "b1"), ("a0", "b0", "x")])
def test_a_gear_names_each_replica_of_the_placement_once(named: tuple[str, ...]) -> None:
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades=alone("task", small_gear(PLACED, "a").cascade),
        replicas=tuple(ReplicaSettings(replica=r, load_share=float(r == "a0")) for r in named),
    )
    with pytest.raises(InvalidInput, match="settings must name each replica of the placement once"):
        small_plan(PLACED, gear)


def a_plan(devices: tuple[Device, ...], **changed: Any) -> GearPlan:
    placed = {"a0": "d0 d1"}
    source = SourceFile(path="", sha256="")
    operator = PipelinePlan(
        nodes={"task": Node(operator="task")}, output="task", objective=Objective(), gears=(small_gear(placed, "a"),)
    )
    fields: dict[str, Any] = {
        "planner": "test",
        "hardware": Hardware(devices=devices),
        "placement": Placement(replicas=(Replica(id="a0", model="a", device_ids=("d0", "d1")),)),
        "pipelines": {"task": operator},
        "profiles": {"task": source},
        "traces": {"task": source},
    }
    return GearPlan(**(fields | changed))


def test_a_replica_on_an_unknown_device_is_refused() -> None:
    with pytest.raises(InvalidInput, match="replica 'a0' is on device 'd1', which the hardware does not have"):
        a_plan((Device(id="d0"),))


def test_a_replica_that_spans_nodes_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"replica 'a0' spans nodes \['n', 'o'\], needs devices of one node"):
        a_plan((Device(id="d0", node="n"), Device(id="d1", node="o")))


def test_a_plan_of_no_pipelines_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a plan has no pipelines, needs at least one"):
        a_plan((Device(id="d0"), Device(id="d1")), pipelines={})


def test_a_plan_of_another_schema_version_names_the_remedy() -> None:
    with pytest.raises(InvalidInput, match=r"schema_version is 7, .* has 2; make the plan anew"):
        a_plan((Device(id="d0"), Device(id="d1")), schema_version=7)


def test_a_plan_of_more_gears_than_anybody_needs_is_refused() -> None:
    gear = small_gear(PLACED, "a")
    with pytest.raises(InvalidInput, match="has 10001 gears, at most 10000 are taken"):
        PipelinePlan(
            nodes={"x": Node(operator="x")}, output="x", objective=Objective(latency_s=1.0), gears=(gear,) * 10_001
        )
