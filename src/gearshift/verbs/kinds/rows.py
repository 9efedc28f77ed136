"""Models that take rows: one operator, several that share devices, or a pipeline of several nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.space.request import Shape
from gearshift.plans.plan_file import read_plan
from gearshift.plans.plan_tables import plan_tables
from gearshift.plans.served import require_served
from gearshift.profiles.pipelines.profile_folder import Profiles, holds_profiles, read_profiles
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice, Progress, plan_and_profiles, plan_and_records, silent, workload_of
from gearshift.verbs.kinds.kind import PROFILE_FIRST, Apart, Inputs, Kind, Need, Traces
from gearshift.verbs.planning.options import OF_GRAPHS, OF_SEVERAL, OF_TOKENS, TIMES
from gearshift.workload import merge_workloads

if TYPE_CHECKING:
    from gearshift.load_generator.replay_result import Replay
    from gearshift.planner.compare import Comparison
    from gearshift.planner.explain import Explanation
    from gearshift.planner.explain_together import TogetherExplanation
    from gearshift.plans.plan_diff import PlanDiff
    from gearshift.policies.cores.demand import Scaling
    from gearshift.profiles.tuples import JointRecords
    from gearshift.serving.rows.served import ServedRows
    from gearshift.simulator.simulate import Simulation
    from gearshift.traces.network import Uplink
    from gearshift.verbs.rows.validate import Validation

ONE: Shape = "one"
SEVERAL: Shape = "several"
GRAPH: Shape = "graph"

NO_MEASURED_RUN = "use `gearshift validate`, which shows what is predicted beside what is measured"
NAME_SOME = "name planners, devices and SLOs"
GRAPH_ALONE = "give its profile alone"
PROMISED = "accuracy", "confidence", "recall", "precision", "positive"
GIVE_ONE = "give each operator one, as in --p95-ms NAME=100"
OF_ONE = {
    "explain": {"profile": "", "devices_too": ""},
    "report": {"profile": "", "replay": NO_MEASURED_RUN},
    "simulate": dict.fromkeys(
        (
            *("profile", "network", "request_kb", "slo_ms", "uplink", "scaler", "scaling", "scaler_cores"),
            *("scaler_period_s", "scaler_margin"),
        ),
        "",
    ),
}
"""What plans of one operator alone have."""

ALONE = "leave it out, or serve a plan of one pipeline"
OPENAI = "leave it out: KServe's protocol is spoken, see docs/guides/clients.md"
OF_ALL = {
    "profile_from_records": {"certainty": "write certainty into the project file"},
    "replay": {"objective": "give slo_s"},
    "validate": {"url": ""},
    "serve": {"openai": OPENAI},
    "compare": dict.fromkeys(TIMES, "give --p95-ms") | {"pipeline": ""},
}
PLANNED_ALONE = "frontier", "fewest", "cores", "confidence", "median_s", "what_if"
"""Options of `plan` that are for one operator."""
NOT_OF_GRAPHS = "frontier", "fewest", "cores", "median_s", "policy", "load", "budget_s", "scope"


class RowRecords(NamedTuple):
    """Profiles by operator, and the joint records of graphs by pipeline."""

    profiles: Mapping[str, Profile]
    joint: "Mapping[str, JointRecords]"

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
        ONE: OF_ALL | {"plan": dict.fromkeys((*OF_TOKENS, *OF_SEVERAL, *OF_GRAPHS), "")},
        SEVERAL: OF_ALL
        | OF_ONE
        | {
            "plan": dict.fromkeys((*OF_TOKENS, *OF_GRAPHS, *PLANNED_ALONE), ""),
            "replay": OF_ALL["replay"] | dict.fromkeys(("network", "request_kb", "uplink", "log"), ALONE),
        },
        GRAPH: OF_ALL
        | OF_ONE
        | {
            "plan": dict.fromkeys((*OF_TOKENS, *OF_SEVERAL, *NOT_OF_GRAPHS), ""),
            "compare": dict.fromkeys(TIMES, "give --p95-ms") | dict.fromkeys(("load", "budget_s", "scope"), ""),
        },
    }
    needs: ClassVar = {
        ONE: Need(("latency_s", "accuracy"), "no objective is given", "give --p95-ms, --accuracy or --frontier"),
        SEVERAL: Need(("latency_s",), "no latency is given", GIVE_ONE),
        GRAPH: Need(("latency_s",), "no latency is given", "give --p95-ms"),
    }
    fewest_for = (ONE,)
    what_if_on_files = (ONE,)
    apart: ClassVar = {
        ONE: {
            "cores": Apart(
                (
                    *("devices", "memory_bytes", "price_per_hour", "frontier", "planner", "policy", "median_s"),
                    "what_if",
                )
            ),
            "frontier": Apart(
                ("p95_ms", "latency_ms", "accuracy", "confidence"),
                ", but a frontier has plans for every latency and accuracy",
                "leave {1} out, or {0} to plan for it",
            ),
            "what_if": Apart(("frontier",)),
        }
    }

    def has_plan(self, plan: GearPlan) -> bool:
        return True

    def has_profile(self, profile: object) -> bool:
        return True

    def has_project(self, project: Path) -> bool:
        return True

    def has_records(self, folder: Path) -> bool:
        return True

    def shape_of(self, of: object, *, beside: object = None) -> Shape:
        if isinstance(of, GearPlan):
            return ONE if of.is_plain else SEVERAL if len(of.pipelines) > 1 else GRAPH
        if beside is not None or isinstance(of, Mapping | list | tuple):
            return SEVERAL
        is_graph = isinstance(of, Profiles) or (isinstance(of, (str, Path)) and holds_profiles(of))
        return GRAPH if is_graph else ONE

    def read_profile(self, shape: Shape, profiles: Sequence[Path]) -> Profile | Profiles | dict[str, Profile]:
        if shape == SEVERAL:
            from gearshift.verbs.planning.several import named_profiles

            require(not any(map(holds_profiles, profiles)), "a pipeline is planned alone", remedy=GRAPH_ALONE)
            return named_profiles(profiles)
        return read_profiles(profiles[0]) if shape == GRAPH else read_profile(profiles[0])

    def plan(
        self, shape: Shape, profile: Any, trace: Any, *, planner: str, progress: Progress, **asked: Any
    ) -> GearPlan | list[GearPlan]:
        if shape == SEVERAL:
            from gearshift.verbs.planning import several

            given = list(profile.values()) if isinstance(profile, Mapping) else profile
            given = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
            return several.plan(given, trace, planner=planner, progress=progress, **asked)
        if shape == GRAPH:
            from gearshift.verbs.planning import graph

            return graph.plan(profile, trace, planner=planner, progress=progress, **asked)
        from gearshift.verbs.planning import operator

        return operator.plan(profile, trace, planner=planner, progress=progress, **asked)

    def compare(
        self, shape: Shape, profile: Any, trace: Any, *, progress: Progress, asked: dict[str, Any]
    ) -> "Comparison":
        from gearshift.planner.compare import comparable, require_comparable
        from gearshift.planner.side_by_side import compare_planners
        from gearshift.verbs.kinds.comparing import requests_of_graph, requests_of_one, requests_of_several

        how = {name: asked.pop(name) for name in ("accuracies", "baselines", "processes")}
        names, devices, latencies_s = (asked.pop(name) for name in ("planners", "devices", "latencies_s"))
        for accuracy in how["accuracies"] or ():
            Objective(accuracy=accuracy)  # refuses bad ones at once
        require(names != [] and bool(devices and latencies_s), "nothing to compare", remedy=NAME_SOME)
        if shape == ONE:
            measured = profile if isinstance(profile, Profile) else read_profile(Path(profile))
            names = comparable(measured) if names is None else names
            require_comparable([*names, *(how["baselines"] or ())], measured)
            requests = requests_of_one(measured, trace, devices, latencies_s, **asked)
        else:
            names = self.planners(shape) if names is None else names
            for name in (*names, *(how["baselines"] or ())):
                planners.require_planner(name, self.engine, shape)
            if shape == SEVERAL:
                each = list(profile.values()) if isinstance(profile, Mapping) else profile
                requests = requests_of_several(each, trace, devices, latencies_s, **asked)
            else:
                requests = requests_of_graph(profile, trace, devices, latencies_s, **asked)
        return compare_planners(names, requests, progress=progress, **how)

    def what_if(
        self, shape: Shape, made: GearPlan, profile: Any, trace: Any, *, progress: Progress, **asked: Any
    ) -> GearPlan:
        if shape == ONE:
            from gearshift.planner.what_if import what_if

            return msgspec.structs.replace(made, what_if=what_if(made, profile, trace, progress=progress))
        from gearshift.verbs.common.other_counts import with_other_counts

        for_latency = {name: value for name, value in asked.items() if name not in PROMISED}

        def planned(count: int) -> Any:
            return self.plan(shape, profile, trace, progress=silent, **for_latency | {"devices": count})

        return with_other_counts(made, planned, budget_s=None, progress=progress)

    def inputs(
        self,
        plan: GearPlan | PathLike,
        *,
        profile: Any = None,
        profiles: Mapping[str, Profile | PathLike] | None = None,
        joint: "Mapping[str, JointRecords] | None" = None,
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
        from gearshift.simulator.compared.table import COMPARED
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

    def sections(
        self,
        path: PathLike,
        plan: GearPlan,
        traces: Traces,
        *,
        progress: Progress,
        notice: Notice,
        profile: Any = None,
        replay: PathLike | None = None,
        **_: Any,
    ) -> list[Any]:
        from gearshift.verbs.kinds import rows_page

        if plan.is_plain:
            inputs = self.inputs(path, profile=profile)
            return rows_page.sections_of_operator(self, inputs, traces, replay=replay, progress=progress)
        if not traces:
            return rows_page.sections_of_plan(plan)
        return rows_page.sections_of_pipelines(self, self.inputs(path), traces, progress=progress)

    def inspect(self, path: Path) -> GearPlan | Profile:
        if path.is_dir():
            return read_profile(path)
        made = read_plan(path)
        require_served(made)
        if all((path.parent / source.path).is_dir() for source in made.profiles.values()):
            plan_and_profiles(path)
        return made

    def diff(self, a: GearPlan, b: GearPlan) -> "PlanDiff | dict[str, PlanDiff | str]":
        from gearshift.planner.space.beside import part_of

        if len(a.pipelines) == len(b.pipelines) == 1:
            return _diff(a, b)
        found: dict[str, Any] = {}
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
        from gearshift.verbs.rows.profile import has_several

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

    def served(self) -> "ServedRows":
        from gearshift.serving.rows.served import ROWS

        return ROWS


def _diff(a: GearPlan, b: GearPlan) -> "PlanDiff":
    from gearshift.plans.plan_diff import diff

    for plan in (a, b):
        require_served(plan)
    return diff(a, b)


def _all_at_once(
    plan: GearPlan, records: RowRecords, traces: Traces, *, seed: int | None, most_waiting: int | None
) -> "Simulation":
    from gearshift.profiles.backlog import backlog_of
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
    from gearshift.profiles.backlog import backlog_of

    cores = scaler_cores
    if scaling is not None and scaling.scaler != "static":
        cores = scaler_cores or sum(replica.cores for replica in plan.placement.replicas)
    return backlog_of(plan, plan_tables(plan), profile, scaler_cores=cores).most_waiting
