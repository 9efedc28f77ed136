"""A plan that no search made: the graph of strips, and a pipeline of one node beside it, on two devices."""

import dataclasses
from pathlib import Path

import msgspec

from gearshift.cascade import Cascade
from gearshift.gear import GearPlan, LoadRange, SourceFile
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner.joint.candidates import candidate_with
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import SteadyTuples, place
from gearshift.planner.space.beside import joined
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.pipelines.profile_folder import Profiles, RecordedPipeline, write_profiles
from gearshift.profiles.tuples import samples_alone
from gearshift.traces.read import read_trace, write_trace
from tests.unit.planner.joint.strips import EDGES, NODES, strips
from tests.unit.planner.several.worlds import CATS

SMALL, LARGE = Cascade(models=("small",)), Cascade(models=("large",))
BOTH = Cascade(models=("small", "large"), thresholds=(0.05,))
ENDS = 30.0
"""Where the load range of the more accurate gear ends."""


def made_by_hand(request: PipelineRequest, first: dict[str, Cascade], second: dict[str, Cascade]) -> GearPlan:
    """Gears of two tuples, the first up to `ENDS`."""
    candidates = [candidate_with(request, each) for each in (first, second)]
    visits = {model: 1.0 for each in candidates for model in each.models}
    steady = SteadyTuples(request, place(request.profiles.values(), request.hardware, visits))
    ranges = LoadRange(from_=0.0, to=ENDS), LoadRange(from_=ENDS)
    gears = [
        request.gear(load_range, each.cascades, steady.settings(each, 4))
        for load_range, each in zip(ranges, candidates, strict=True)
    ]
    return request.plan(steady.placement, gears)


def graph_of_strips(*, latency_s: float = 0.1) -> tuple[PipelineRequest, GearPlan]:
    request = strips(latency_s=latency_s)
    around = {"split": Cascade(models=("cut",)), "join": Cascade(models=("add",))}
    return request, made_by_hand(request, {**around, "read": BOTH}, {**around, "read": SMALL})


def cats_beside(*, latency_s: float = 0.1) -> tuple[PipelineRequest, GearPlan]:
    request, _ = graph_of_strips()
    alone = dataclasses.replace(
        request,
        name="cats",
        nodes={"cats": msgspec.structs.replace(NODES["split"], operator="cats")},
        edges=(),
        output="cats",
        profiles={"cats": CATS},
        records=samples_alone("cats", CATS.predictions.part),
        hardware=identical_devices(2),
        objective=Objective(latency_s=latency_s),
    )
    cheap, dear = (Cascade(models=(CATS.predictions.models[i],)) for i in (0, 1))
    return alone, made_by_hand(alone, {"cats": dear}, {"cats": cheap})


def write_mixed(folder: Path, *, both: bool) -> Path:
    """Profiles, joint records, traces and the plan of the graph, with or without the other pipeline."""
    (graph, plan), (cats, beside) = graph_of_strips(), cats_beside()
    profiles = Profiles(
        operators={**graph.profiles, **cats.profiles},
        pipelines={"strips": RecordedPipeline(nodes=NODES, edges=EDGES, output="join", requests=len(graph.records))},
        tuples={"strips": graph.records},
    )
    written = write_profiles(profiles, folder / "profile").operators
    sources, traces = {}, {}
    for name, request in (("strips", graph), ("cats", cats)):
        write_trace(request.trace, folder / f"{name}.csv")
        traces[name] = SourceFile(path=f"{name}.csv", sha256=read_trace(folder / f"{name}.csv").sha256)
    for name, profile in written.items():
        sources[name] = SourceFile(path=f"profile/{name}", sha256=profile.sha256)
    whole = joined(plan, beside) if both else plan
    whole = msgspec.structs.replace(
        whole,
        profiles={name: sources[name] for name in whole.profiles},
        traces={name: traces[name] for name in whole.traces},
    )
    write_plan(whole, folder / "plan.json")
    return folder / "plan.json"
