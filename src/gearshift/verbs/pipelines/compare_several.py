"""Compare planners of several operators on the same devices."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gearshift.errors import require
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.planner import planners as registry
from gearshift.profiles.profile import Profile
from gearshift.profiles.several import as_one
from gearshift.support.files import PathLike
from gearshift.verbs.compare import by_count
from gearshift.verbs.inputs import Progress, silent
from gearshift.verbs.plan_request import named_profiles, several_request
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.compare import Comparison


def compare_together(
    profiles: Sequence[Profile | PathLike],
    traces: Mapping[str, Trace | PathLike],
    *,
    devices: Sequence[int | Hardware | PathLike],
    latencies_s: Mapping[str, Sequence[float]],
    planners: Sequence[str] = tuple(registry.for_("rows", "several")),
    memory_bytes: int | None = None,
    accuracies: Sequence[float] | None = None,
    baselines: Sequence[str] | None = None,
    processes: int | None = None,
    progress: Progress = silent,
    **asked: Any,
) -> "Comparison":
    """As `compare`, for several operators that share devices: its planners are `planners.for_("rows", "several")`.

    `latencies_s` has for each operator as many objectives: the first of all make the first run, and
    so on. In the comparison the longest of a run stands for them, so that these must differ.
    Accuracies are means over all requests. What else is `asked` is as in `plan_together`.
    """
    from gearshift.planner.side_by_side import compare_planners

    for name in (*planners, *(baselines or ())):
        registry.require_planner(name, "rows", "several")
    for accuracy in accuracies or ():
        Objective(accuracy=accuracy)  # refuses bad ones at once
    measured = named_profiles(profiles)
    slos_s = _together(latencies_s)
    require(bool(planners and devices and slos_s), "nothing to compare", remedy="name planners, devices and SLOs")
    hardware = by_count(devices, as_one(measured), memory_bytes)
    requests = {
        (count, k): several_request(
            list(measured.values()),
            traces,
            slo_s,
            {},
            devices=hardware[count],
            beside=None,
            beside_profiles=None,
            beside_traces=None,
            out=None,
            profile_sources={},
            trace_sources={},
            **asked,
        )
        for count in sorted(hardware)
        for k, slo_s in enumerate(slos_s)
    }
    return compare_planners(
        planners,
        list(requests.values()),
        baselines=baselines,
        accuracies=accuracies,
        processes=processes,
        progress=progress,
    )


def _together(latencies_s: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """The objectives of each run, by operator, by the longest of them."""
    counts = {name: len(each) for name, each in latencies_s.items()}
    require(
        len(set(counts.values())) <= 1,
        f"operators have different numbers of latencies: {counts}",
        remedy="give each as many: the first of all belong together, and so on",
    )
    together = [dict(zip(latencies_s, each, strict=True)) for each in zip(*latencies_s.values(), strict=True)]
    longest = [max(each.values()) for each in together]
    require(
        len(set(longest)) == len(longest),
        f"the longest latencies of the runs are {[s * 1e3 for s in longest]} ms, and two are the same",
        remedy="compare these apart",
    )
    return sorted(together, key=lambda each: max(each.values()))
