"""Compare planners, numbers of devices and latency objectives."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from gearshift.errors import require
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile
from gearshift.support.files import PathLike
from gearshift.traces.read import read_trace
from gearshift.verbs.inputs import Progress, silent
from gearshift.verbs.language.inputs import language_profile
from gearshift.verbs.language.plan import language_request
from gearshift.verbs.options import Option
from gearshift.verbs.plan_request import SearchOptions, hardware_of, plan_request
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.compare import Comparison
    from gearshift.planner.language.compared.compare import LanguageComparison


def compare(
    profile: Profile | PathLike,
    trace: Trace | PathLike,
    *,
    planners: Sequence[str],
    devices: Sequence[int | Hardware | PathLike],
    latencies_s: Sequence[float],
    accuracies: Sequence[float] | None = None,
    baselines: Annotated[
        Sequence[str] | None,
        Option("Planners that savings are counted against [default: the simple].", metavar="NAMES"),
    ] = None,
    processes: Annotated[
        int | None, Option("How many plan at a time [default: one per core].", "--jobs", least=1)
    ] = None,
    progress: Progress = silent,
    **asked: Unpack[SearchOptions],
) -> "Comparison":
    """Run every planner for every number of devices and latency objective, in parallel processes.

    `devices` are as in `plan_request`, each with a different count. `accuracies` are the rows of
    the grid of fewest devices, `baselines` the planners that savings are compared with,
    `processes` how many plan at a time (default: one per core). Other options are those of
    `plan_request`. A run that fails is a row with its `error`, and at Ctrl-C so is one that has not
    ended, as long as another has. `planners` may include `cocktail+`,
    which needs recorded predictions and is simulated for each cell of the grid.
    """
    from gearshift.planner.compare import COCKTAIL, require_comparable
    from gearshift.planner.side_by_side import compare_planners

    measured = profile if isinstance(profile, Profile) else read_profile(Path(profile))
    require_comparable([*planners, *(baselines or ())], measured)
    for accuracy in accuracies or ():
        Objective(accuracy=accuracy)  # refuses bad ones at once
    planned = bool(set(planners) - {COCKTAIL})
    require(planned and bool(devices and latencies_s), "nothing to compare", remedy="name planners, devices and SLOs")
    arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    hardware = by_count(devices, measured, asked.pop("memory_bytes", None), asked.pop("price_per_hour", None))

    def request(count: int, latency_s: float) -> PlanRequest:
        return plan_request(measured, arrivals, devices=hardware[count], latency_s=latency_s, **asked)

    return compare_planners(
        planners,
        [request(count, slo_s) for count in sorted(hardware) for slo_s in sorted(set(latencies_s))],
        baselines=baselines,
        accuracies=accuracies,
        processes=processes,
        progress=progress,
    )


def compare_language(
    profile: LanguageProfile | PathLike,
    trace: Trace | PathLike,
    *,
    planners: Sequence[str],
    devices: Sequence[int | Hardware | PathLike | None],
    limits_s: Sequence[float],
    metric: Literal["ttft_s", "per_token_s", "total_s"] = "ttft_s",
    progress: Progress = silent,
    **asked: Any,
) -> "LanguageComparison":
    """Run planners of language models, and the control `permuted`, for every number of devices and limit.

    Other options are those of `plan` for language models. A run that fails is a row with its `error`.
    """
    from gearshift.planner.language.compared.compare import compare_language as run

    measured = language_profile(profile)
    arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    requests = [
        language_request(measured, arrivals, devices=each, **{metric: limit_s}, **asked)
        for each in devices
        for limit_s in sorted(set(limits_s))
    ]
    return run(requests, planners, progress=progress)


def by_count(
    devices: Sequence[int | Hardware | PathLike],
    profile: Profile,
    memory_bytes: int | None,
    price: str | float | None = None,
) -> dict[int, Hardware]:
    """The hardwares by their number of devices; raises `InvalidInput` where two have the same."""
    hardware: dict[int, Hardware] = {}
    for each in devices:
        on = hardware_of(each, profile, memory_bytes=memory_bytes, price=price)
        count = len(on.devices)
        require(hardware.setdefault(count, on) == on, f"two hardwares of {count} devices", remedy="compare them apart")
    return hardware
