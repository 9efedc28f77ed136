"""Compare planners of a pipeline of several nodes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from gearshift.errors import require
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.planner import planners as registry
from gearshift.profiles.several import as_one
from gearshift.support.files import PathLike
from gearshift.verbs.compare import by_count
from gearshift.verbs.inputs import Progress, silent
from gearshift.verbs.plan_pipeline import pipeline_request
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.compare import Comparison
    from gearshift.planner.joint.request import PipelineRequest


def compare_graph(
    profiles: PathLike,
    trace: Trace | PathLike,
    *,
    devices: Sequence[int | Hardware | PathLike],
    latencies_s: Sequence[float],
    planners: Sequence[str] = tuple(registry.for_("rows", "graph")),
    pipeline: str | None = None,
    percentile: float = 0.95,
    memory_bytes: int | None = None,
    accuracies: Sequence[float] | None = None,
    baselines: Sequence[str] | None = None,
    processes: int | None = None,
    progress: Progress = silent,
    **asked: Any,
) -> "Comparison":
    """As `compare`, for a pipeline that `profile` recorded: its planners are `planners.for_("rows", "graph")`.

    `profiles`, `pipeline` and what else is `asked` are as in `plan_pipeline`. Latencies and
    accuracies are of the whole graph, from one end to the other.
    """
    from gearshift.planner.side_by_side import compare_planners

    for name in (*planners, *(baselines or ())):
        registry.require_planner(name, "rows", "graph")
    for accuracy in accuracies or ():
        Objective(accuracy=accuracy)  # refuses bad ones at once
    require(bool(planners and devices and latencies_s), "nothing to compare", remedy="name planners, devices and SLOs")
    slos_s = sorted(set(latencies_s))
    objective = Objective(percentile=percentile, latency_s=slos_s[0])
    price = asked.pop("price_per_hour", None)
    base = pipeline_request(profiles, trace, objective=objective, pipeline=pipeline, devices=1, **asked)
    hardware = by_count(devices, as_one(base.profiles), memory_bytes, price)

    def request(count: int, latency_s: float) -> "PipelineRequest":
        return replace(
            base,
            hardware=hardware[count],
            objective=msgspec.structs.replace(objective, latency_s=latency_s),
        )

    return compare_planners(
        planners,
        [request(count, slo_s) for count in sorted(hardware) for slo_s in slos_s],
        baselines=baselines,
        accuracies=accuracies,
        processes=processes,
        progress=progress,
    )
