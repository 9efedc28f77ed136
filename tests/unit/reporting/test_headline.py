from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, alone
from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.objective import Objective
from gearshift.pipeline import Edge, Node
from gearshift.placement import Placement, Replica
from gearshift.planner.largest_alone import LargestAlone
from gearshift.reporting.headline import closing_line, cost_in_words, devices_in_words, headline
from tests.unit.planner import fake
from tests.unit.planner.little import little_request


def on(devices: Sequence[Device], replicas: dict[str, tuple[str, ...]]) -> GearPlan:
    """A plan of these models on these devices; what its gears say plays no part."""
    made = fake.made(little_request(), 1, latency_s=0.1)
    placed = tuple(
        Replica(id=f"{model}@{'+'.join(ids)}", model=model, device_ids=ids, tensor_parallel=len(ids))
        for model, ids in replicas.items()
    )
    operator = msgspec.structs.replace(
        made.pipelines["task"],
        gears=(
            Gear(
                load_range=LoadRange(from_=0.0),
                cascades=alone("task", Cascade(models=(placed[0].model,))),
                replicas=tuple(ReplicaSettings(replica=r.id, load_share=float(r is placed[0])) for r in placed),
            ),
        ),
    )
    hardware = Hardware(devices=tuple(devices))
    return msgspec.structs.replace(
        made, hardware=hardware, placement=Placement(replicas=placed), pipelines={"task": operator}
    )


def test_devices_that_hold_alike_are_counted_together_and_prices_are_added() -> None:
    devices = [Device(id=f"d{i}", price_per_hour=0.5) for i in range(3)] + [Device(id="x", price_per_hour=3)]
    made = on(devices, {"big": ("d0", "d1"), "small": ("d2",)})
    assert devices_in_words(made) == "4 devices (2 with big over 2, 1 with small, 1 with nothing)"
    assert cost_in_words(made) == "4.50 an hour (12.50 a million requests)"  # at 100 a second
    kinds = [Device(id="a", kind="cuda"), Device(id="b")]
    without = on(kinds, {"big": ("a",)})
    assert devices_in_words(without) == "2 devices (1 cuda with big, 1 cpu with nothing)"
    assert cost_in_words(without) == ""
    assert cost_in_words(on([Device(id="a", price_per_hour=2), Device(id="b")], {"big": ("a",)})) == ""


def test_the_line_names_devices_placement_cost_accuracy_latency_and_what_the_largest_would_need() -> None:
    made = fake.made(little_request(hardware=identical_devices(2, price_per_hour=1.0)), 1, latency_s=0.1)
    largest = LargestAlone(model="m2", accuracy=0.88, devices=5, like="cpu-0", price_per_hour=5.0)
    assert headline(made, largest) == (
        "p95 100 ms (90 to 110 ms); accuracy 80.0 % (79.0 to 81.0 %); "
        "2 devices, each with m0, m1 and m2, 2.00 an hour at 1.00 each (5.56 a million requests); "
        "m2 alone (88.0 %) would need 5 devices, 5.00 an hour"
    )
    unknown = LargestAlone(model="m2", accuracy=0.88, why="m2 alone is too slow")
    assert headline(made, unknown).endswith("; m2 alone is too slow")
    cheap, dear = (Device(id=name, price_per_hour=price) for name, price in (("a", 0.5), ("b", 3.0)))
    mixed = headline(
        on([cheap, dear], {"m0": ("a",)}),
        LargestAlone(model="m2", accuracy=0.88, devices=5, like="a", price_per_hour=2.5),
    )
    assert mixed.endswith("m2 alone (88.0 %) would need 5 devices like a, 2.50 an hour")


@pytest.mark.parametrize(
    ("percentile", "said"),
    [
        (0.5, "p50 50 ms, p95 100 ms (90 to 110 ms)"),
        (0.95, "p95 100 ms (90 to 110 ms)"),
        (0.99, "p99 200 ms, p95 100 ms (90 to 110 ms)"),
        (0.9, "p90 within 120 ms: 1.0 % late"),
        (0.999, "p99.9 within 120 ms: 1.0 % late"),
    ],
)
def test_the_line_tells_the_percentile_asked_for_or_how_many_are_later_than_its_latency(
    percentile: float, said: str
) -> None:
    objective = Objective(latency_s=0.12, percentile=percentile)
    made = fake.made(little_request(objective=objective), 1, latency_s=0.1)
    assert headline(made).startswith(f"{said}; accuracy 80.0 % (79.0 to 81.0 %); ")


def test_the_line_begins_with_the_devices_where_both_were_asked_for() -> None:
    made = fake.made(little_request(objective=Objective(latency_s=0.1, accuracy=0.8), devices=2), 1, latency_s=0.1)
    assert headline(made).startswith("2 devices, each with m0, m1 and m2; p95 100 ms")
    assert closing_line(made, Path("need.json"), 3.14) == "wrote need.json (2 devices) after 3.1 s"


def test_the_line_ends_with_the_devices_of_a_graph_and_of_several_operators_which_use_all_that_are_given() -> None:
    both = Objective(latency_s=0.1, accuracy=0.8)
    made = fake.made(little_request(objective=both, devices=2), 1, latency_s=0.1)
    gear = msgspec.structs.replace(
        made.pipeline.gears[0], cascades=dict.fromkeys(("task", "next"), made.pipeline.gears[0].cascades["task"])
    )
    nodes = {name: Node(operator="task") for name in ("task", "next")}
    edges = (Edge(from_="task", to="next"),)
    graph = PipelinePlan(nodes=nodes, edges=edges, output="next", objective=both, gears=(gear,))
    traces = dict.fromkeys(("task", "other"), made.traces["task"])
    several = msgspec.structs.replace(made, pipelines={"task": made.pipeline, "other": made.pipeline}, traces=traces)
    for plan in (msgspec.structs.replace(made, pipelines={"task": graph}), several):
        assert headline(plan).endswith("; 2 devices, each with m0, m1 and m2")


def test_the_line_begins_with_the_accuracy_where_that_was_asked_for() -> None:
    made = fake.made(little_request(objective=Objective(accuracy=0.8)), 1, latency_s=0.1)
    assert headline(made).startswith("accuracy 80.0 % (79.0 to 81.0 %); p95 100 ms")
