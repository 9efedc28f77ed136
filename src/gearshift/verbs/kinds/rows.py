"""Models that take rows: one operator, several that share devices, or a pipeline of several nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.planner.space.beside import part_of
from gearshift.plans.plan_diff import PlanDiff, diff
from gearshift.plans.plan_file import read_plan
from gearshift.plans.plan_tables import plan_tables
from gearshift.plans.served import require_served
from gearshift.profiles.backlog import backlog_of
from gearshift.profiles.pipelines.profile_folder import Profiles, holds_profiles
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile
from gearshift.profiles.tuples import JointRecords
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Progress, plan_and_profiles, plan_and_records, workload_of
from gearshift.verbs.kinds.kind import PROFILE_FIRST, Inputs, Kind, Traces
from gearshift.verbs.rows.profile import has_several
from gearshift.workload import merge_workloads

if TYPE_CHECKING:
    from gearshift.load_generator.replay_result import Replay
    from gearshift.planner.explain import Explanation
    from gearshift.planner.explain_together import TogetherExplanation
    from gearshift.policies.cores.demand import Scaling
    from gearshift.simulator.simulate import Simulation
    from gearshift.traces.network import Uplink
    from gearshift.verbs.rows.validate import Validation

ONE, SEVERAL, GRAPH = "one operator", "several operators", "a graph"

OF_ONE = {
    "explain": {"profile": "", "devices_too": ""},
    "simulate": dict.fromkeys(
        ("profile", "network", "request_kb", "slo_ms", "uplink", "scaler", "scaling", "scaler_cores"), ""
    ),
}
"""What plans of one operator alone have."""

ALONE = "leave it out, or serve a plan of one pipeline"
OPENAI = "leave it out: KServe's protocol is spoken, see docs/guides/clients.md"
OF_ALL = {"replay": {"objective": "give slo_s"}, "validate": {"url": ""}, "serve": {"openai": OPENAI}}


class RowRecords(NamedTuple):
    """Profiles by operator, and the joint records of graphs by pipeline."""

    profiles: Mapping[str, Profile]
    joint: Mapping[str, JointRecords]

    @property
    def only(self) -> Profile:
        return next(iter(self.profiles.values()))


class Rows(Kind):
    name = "models of rows"
    shapes: ClassVar = {
        ONE: "plans of one operator",
        SEVERAL: "plans of several operators",
        GRAPH: "plans of a pipeline of several nodes",
    }
    lacks: ClassVar = {
        "": {"profile_from_records": {"certainty": "write certainty into the project file"}},
        ONE: OF_ALL,
        SEVERAL: OF_ALL
        | OF_ONE
        | {"replay": OF_ALL["replay"] | dict.fromkeys(("network", "request_kb", "uplink", "log"), ALONE)},
        GRAPH: OF_ALL | OF_ONE,
    }

    def has_plan(self, plan: GearPlan) -> bool:
        return True

    def has_profile(self, profile: object) -> bool:
        return True

    def has_project(self, project: Path) -> bool:
        return True

    def has_records(self, folder: Path) -> bool:
        return True

    def shape_of(self, of: object) -> str:
        if isinstance(of, GearPlan):
            return ONE if of.is_plain else SEVERAL if len(of.pipelines) > 1 else GRAPH
        if isinstance(of, Sequence) and not isinstance(of, str):
            return SEVERAL if len(of) > 1 else self.shape_of(of[0])
        is_graph = isinstance(of, Profiles) or (isinstance(of, (str, Path)) and holds_profiles(of))
        return GRAPH if is_graph else ONE

    def inputs(
        self,
        plan: GearPlan | PathLike,
        *,
        profile: Any = None,
        profiles: Mapping[str, Profile | PathLike] | None = None,
        joint: Mapping[str, JointRecords] | None = None,
        **_: Any,
    ) -> Inputs:
        if profile is not None:
            named = (plan if isinstance(plan, GearPlan) else read_plan(Path(plan))).profiles
            profiles = dict.fromkeys(named, profile)
        made, measured, recorded = plan_and_records(plan, profiles, joint)
        return Inputs(plan, made, RowRecords(measured, recorded))

    def simulate(
        self,
        inputs: Inputs,
        traces: Traces,
        *,
        seed: int | None = None,
        uplink: "Uplink | None" = None,
        scaling: "Scaling | None" = None,
        scaler_cores: int | None = None,
        most_waiting: int | None = None,
        **_: Any,
    ) -> "Simulation":
        from gearshift.simulator.compared.scalers import COMPARED
        from gearshift.simulator.simulate import simulate as run

        made = inputs.plan
        if not made.is_plain:
            return _all_at_once(made, inputs.records, traces, seed=seed, most_waiting=most_waiting)
        measured, trace = inputs.records.only, traces[made.name]
        workload = workload_of(measured, trace, seed=seed)
        how: Any = {"scaling": scaling, "scaler_cores": scaler_cores}
        if scaling is None or scaling.scaler not in COMPARED:
            how["most_waiting"] = most_waiting or _most_waiting(made, measured, scaling, scaler_cores)
        if uplink is None:
            return run(made, measured, workload, **how)
        arrived = uplink.carry(workload)
        simulation = run(made, measured, arrived.workload, **how)
        return replace(simulation, communication_s=arrived.communication_s)

    def explain(
        self, inputs: Inputs, traces: Traces, *, progress: Progress, devices_too: bool = False, **_: Any
    ) -> "Explanation | TogetherExplanation":
        from gearshift.planner.explain import explain
        from gearshift.planner.explain_together import explain_together

        made, records = inputs.plan, inputs.records
        if made.is_plain:
            return explain(made, records.only, traces[made.name], devices_too=devices_too, progress=progress)
        return explain_together(made, records.profiles, records.joint, traces, progress=progress)

    def inspect(self, path: Path) -> GearPlan | Profile:
        if path.is_dir():
            return read_profile(path)
        made = read_plan(path)
        require_served(made)
        if all((path.parent / source.path).is_dir() for source in made.profiles.values()):
            plan_and_profiles(path)
        return made

    def diff(self, a: GearPlan, b: GearPlan) -> PlanDiff | dict[str, PlanDiff | str]:
        if len(a.pipelines) == len(b.pipelines) == 1:
            return _diff(a, b)
        found: dict[str, PlanDiff | str] = {}
        for name in {**a.pipelines, **b.pipelines}:
            parts = [part_of(plan, [name]) for plan in (a, b) if name in plan.pipelines]
            found[name] = _diff(*parts) if len(parts) == 2 else "a" if name in a.pipelines else "b"
        return found

    def profile(self, project: Path, **how: Any) -> Profile | Profiles:
        from gearshift.verbs.rows.profile import profile

        return profile(project, **how)

    def profile_from_records(self, folder: Path, **how: Any) -> Profile:
        from gearshift.verbs.rows.profile import profile_from_records

        return profile_from_records(folder, **how)

    def require_light(self, project: Path) -> None:
        require(
            not has_several(project), "has several operators, or pipelines", where=str(project), remedy=PROFILE_FIRST
        )

    def replay(
        self, target: PathLike, traces: Mapping[str, Any], *, objective: None = None, **how: Any
    ) -> "dict[str, Replay]":
        from gearshift.verbs.rows.replay import replay

        return replay(target, traces, **how)

    def validate(
        self, plan: PathLike, traces: Mapping[str, Any], *, url: None = None, **how: Any
    ) -> "dict[str, Validation]":
        from gearshift.verbs.rows.validate import validate

        return validate(plan, traces, **how)


def _diff(a: GearPlan, b: GearPlan) -> PlanDiff:
    for plan in (a, b):
        require_served(plan)
    return diff(a, b)


def _all_at_once(
    plan: GearPlan, records: RowRecords, traces: Traces, *, seed: int | None, most_waiting: int | None
) -> "Simulation":
    from gearshift.simulator.simulate import simulate as run

    tables, (profiles, joint) = plan_tables(plan), records
    drawn_from = {
        name: joint[name] if name in joint else profiles[pipeline.nodes[pipeline.output].operator]
        for name, pipeline in plan.pipelines.items()
    }
    workload = merge_workloads([workload_of(drawn_from[name], traces[name], seed=seed) for name in plan.pipelines])
    bounds = [
        most_waiting or backlog_of(plan, tables, profiles, joint=joint, pipeline=name).most_waiting
        for name in plan.pipelines
    ]
    return run(plan, profiles, workload, joint=joint, most_waiting=bounds)


def _most_waiting(plan: GearPlan, profile: Profile, scaling: "Scaling | None", scaler_cores: int | None) -> int:
    cores = scaler_cores
    if scaling is not None and scaling.scaler != "static":
        cores = scaler_cores or sum(replica.cores for replica in plan.placement.replicas)
    return backlog_of(plan, plan_tables(plan), profile, scaler_cores=cores).most_waiting
