"""The request for a plan of several pipelines."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.objective import Objective, Policy
from gearshift.planner.space.beside import busy_qps
from gearshift.planner.space.request import Kind, PlanRequest, Shape
from gearshift.profiles.profile import Profile
from gearshift.profiles.several import as_one
from gearshift.workload import Trace


@dataclass(frozen=True, kw_only=True, eq=False)
class SeveralRequest:
    """A request for each pipeline, by name, all for the same hardware, budget and seed.

    The pipelines of `fixed` are among them, and stay as they are. Where operators refine, an accuracy
    point of one counts times its `worth`, 1 where none is given.
    """

    planned_by: ClassVar[tuple[Kind, Shape]] = "rows", "several"
    takes_long: ClassVar[bool] = False

    requests: Mapping[str, PlanRequest]
    fixed: GearPlan | None = None
    worth: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require(len(self.requests) >= 2, "one operator is given where several are planned together")
        require(
            self.fixed is None or not any(pipeline.refines for pipeline in self.fixed.pipelines.values()),
            "the plan to add to refines rows while there is time, and operators are added to plans of gears",
            remedy="plan all operators together",
        )
        for name, request in self.requests.items():
            where = f"operator {name!r}"
            require(request.hardware.pool_cores is None, "several operators cannot share cores that move", where=where)
            require(
                request.objective.latency_s is not None,
                "no latency is given",
                where=where,
                remedy="give each operator one, as in --p95-ms NAME=100",
            )
            require(
                0 < self.worth_of(name) < math.inf,
                f"the worth is {self.worth_of(name)}",
                where=where,
                remedy="give a positive number",
            )
            require(
                request.objective.confidence is None,
                "a confidence is given, which is for one operator",
                where=where,
                remedy="leave it out",
            )

    @property
    def first(self) -> PlanRequest:
        return next(iter(self.requests.values()))

    @property
    def hardware(self) -> Hardware:
        return self.first.hardware

    @property
    def objective(self) -> Objective:
        """That of the first pipeline."""
        return self.first.objective

    @property
    def budget_s(self) -> float | None:
        return self.first.budget_s

    @property
    def latency_s(self) -> float:
        """The longest latency objective of the pipelines."""
        return max(request.latency_s for request in self.requests.values())

    @property
    def percentile(self) -> float:
        return self.first.percentile

    @property
    def policy(self) -> Policy:
        return self.first.policy

    def worth_of(self, name: str) -> float:
        return self.worth.get(name, 1.0)

    @property
    def free(self) -> tuple[str, ...]:
        """The names of the pipelines that are to be planned."""
        return tuple(name for name in self.requests if self.fixed is None or name not in self.fixed.pipelines)

    @cached_property
    def together(self) -> Profile:
        """The profile of all operators; raises `InvalidInput` where two have a model of one name."""
        return as_one({name: request.profile for name, request in self.requests.items()})

    @cached_property
    def trace(self) -> Trace:
        """The arrivals at all pipelines."""
        return trace_of(request.trace for request in self.requests.values())

    @cached_property
    def share_of_requests(self) -> dict[str, float]:
        return {name: len(request.trace) / len(self.trace) for name, request in self.requests.items()}

    @cached_property
    def busy_qps(self) -> dict[str, float]:
        """The load of each pipeline at the 95th percentile of its trace."""
        return {name: busy_qps(request.trace) for name, request in self.requests.items()}


def trace_of(traces: Iterable[Trace]) -> Trace:
    """The arrivals of several traces on one clock."""
    each = list(traces)
    arrivals_ns = np.sort(np.concatenate([trace.arrivals_ns for trace in each]))
    return Trace(arrivals_ns=arrivals_ns, duration_s=max(trace.duration_s for trace in each))
