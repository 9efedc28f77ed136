import msgspec

from gearshift.cli.common.operating import moved
from gearshift.hardware import Device, Hardware
from gearshift.runtime.router.status import ServedPlan, status_of
from tests.conformance.small import small_gear, small_plan
from tests.unit.runtime.driven import Driven


def test_status_tells_how_slow_the_slowest_replica_of_a_model_is_and_nothing_of_small_slowdowns() -> None:
    placed = {"a0": "d0", "b0": "d0", "b1": "d1"}
    devices = Hardware(devices=(Device(id="d0"), Device(id="d1", kind="other")))
    plan = msgspec.structs.replace(small_plan(placed, small_gear(placed, "a b", (0.5,))), hardware=devices)
    driven = Driven(plan)
    driven.router.slowdown.ratios = [1.1, 1.8, 1.3]
    status = status_of(
        ServedPlan(path="", sha256=""),
        driven.tables,
        driven.router,
        state="serving",
        uptime_s=1.0,
        ready={0, 1, 2},
        degraded=[],
        held_bytes=0,
        most_held_bytes=1,
        pipelines=[],
    )
    assert [one.slowdown for one in status.replicas] == [1.1, 1.8, 1.3]
    assert [*moved(status)] == ["model 'b' takes 1.80 times the profiled time, and gears are chosen by that"]
