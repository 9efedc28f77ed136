"""The request for a plan of one pipeline of several nodes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from gearshift.cascade import Cascade
from gearshift.errors import require
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Edge, Node
from gearshift.placement import Placement
from gearshift.planner.space.request import HEADROOM, RANGES, UNKNOWN_SOURCE, Kind, Shape, equal_ranges
from gearshift.profiles.profile import Profile
from gearshift.profiles.tuples import JointRecords
from gearshift.workload import Trace, Workload, varying_run_factors

STARVATION_FACTOR = 10
ALPHA = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRequest:
    """A pipeline's graph, the profiles of its operators, its joint records, and what is wanted.

    `max_qps` is the top of the ranges, `least_margin` the multiple of its load that each range is
    planned for. With `replanning` a gear may allow several implementations, unless confidence is
    asked for: a certificate is of one tuple for each gear. Run times vary by factors whose
    logarithms have the standard deviation `run_deviation`.
    """

    planned_by: ClassVar[tuple[Kind, Shape]] = "rows", "graph"
    takes_long: ClassVar[bool] = False
    budget_s: ClassVar[None] = None

    name: str
    nodes: Mapping[str, Node]
    edges: Sequence[Edge]
    output: str
    profiles: Mapping[str, Profile]
    records: JointRecords
    trace: Trace
    hardware: Hardware
    objective: Objective
    ranges: int = RANGES
    max_qps: float | None = None
    least_margin: float = 1.15
    replanning: bool = True
    run_deviation: float = 0.0
    seed: int = 0
    profile_sources: Mapping[str, SourceFile] = field(default_factory=dict)
    trace_source: SourceFile = UNKNOWN_SOURCE

    def __post_init__(self) -> None:
        require(self.objective.latency_s is not None, "a pipeline is planned for a latency, and none is given")

    @property
    def latency_s(self) -> float:
        return math.inf if self.objective.latency_s is None else self.objective.latency_s

    @property
    def percentile(self) -> float:
        return self.objective.percentile

    @property
    def may_choose(self) -> bool:
        """Whether gears may allow several implementations."""
        return self.replanning and self.objective.confidence is None

    def upper_ends(self) -> list[float]:
        ends: list[float] = equal_ranges(self.max_qps or HEADROOM * self.trace.peak_qps, self.ranges).tolist()
        return ends

    def varying(self, workload: Workload) -> Workload:
        """The workload with run times that vary as they are taken to."""
        if self.run_deviation == 0:
            return workload
        return replace(workload, run_factors=varying_run_factors(self.run_deviation, seed=self.seed))

    def plan(self, placement: Placement, gears: Sequence[Gear]) -> GearPlan:
        pipeline = PipelinePlan(
            nodes=dict(self.nodes),
            edges=tuple(self.edges),
            output=self.output,
            objective=self.objective,
            gears=tuple(gears),
            alpha=ALPHA,
            starvation_s=None if math.isinf(self.latency_s) else STARVATION_FACTOR * self.latency_s,
        )
        operators = {node.operator for node in self.nodes.values()}
        return GearPlan(
            planner="joint",
            seed=self.seed,
            hardware=self.hardware,
            placement=placement,
            pipelines={self.name: pipeline},
            profiles={operator: self.profile_sources.get(operator, UNKNOWN_SOURCE) for operator in sorted(operators)},
            traces={self.name: self.trace_source},
        )

    def gear(self, load_range: LoadRange, cascades: Mapping[str, Cascade], replicas: Sequence[ReplicaSettings]) -> Gear:
        return Gear(
            load_range=load_range,
            cascades={node: (cascade,) for node, cascade in cascades.items()},
            replicas=tuple(replicas),
        )
