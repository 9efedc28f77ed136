"""Plans that no planner made."""

from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from gearshift.cascade import ExpectedGain
from gearshift.gear import Gear, GearPlan, PipelinePlan, SourceFile
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.workload import PlannedLoad


def plan_by_hand(
    name: str,
    gears: Iterable[Gear],
    replicas: Iterable[Replica],
    hardware: Hardware,
    *,
    latency_s: float | None = None,
    profile_sha256: str | None = None,
    planned_load: PlannedLoad | None = None,
    gains: tuple[ExpectedGain, ...] | UnsetType = UNSET,
) -> GearPlan:
    """A plan of one pipeline of one operator; its profile, if it has one, is in the folder `profile` beside it."""
    nowhere = SourceFile(path="", sha256="")
    pipeline = PipelinePlan(
        nodes={name: Node(operator=name)},
        output=name,
        objective=Objective(latency_s=latency_s),
        gears=tuple(gears),
        planned_load=planned_load,
        gains=gains,
    )
    return GearPlan(
        planner="by hand",
        hardware=hardware,
        placement=Placement(replicas=tuple(replicas)),
        pipelines={name: pipeline},
        profiles={name: nowhere if profile_sha256 is None else SourceFile(path="profile", sha256=profile_sha256)},
        traces={name: nowhere},
    )
