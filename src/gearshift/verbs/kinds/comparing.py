"""Plans of rows by every planner, number of devices and latency, side by side: one function for every shape."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gearshift.errors import require
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.planner import planners as registry
from gearshift.profiles.profile import Profile
from gearshift.profiles.several import as_one
from gearshift.profiles.store import read_profile
from gearshift.support.files import PathLike
from gearshift.support.processors import usable_processors
from gearshift.traces.read import read_trace
from gearshift.verbs.common.inputs import Progress
from gearshift.verbs.planning.graph import pipeline_request
from gearshift.verbs.planning.hardware import hardware_of
from gearshift.verbs.planning.operator import plan_request
from gearshift.verbs.planning.several import named_profiles, several_request
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.compare import Comparison

Devices = Sequence[int | Hardware | PathLike]


class Comparing:
    """What is compared: planners, devices and latencies, and with what; the shape makes the requests."""

    def __init__(
        self,
        *,
        planners: Sequence[str] | None,
        devices: Devices,
        accuracies: Sequence[float] | None = None,
        baselines: Sequence[str] | None = None,
        processes: int | None = None,
        progress: Progress,
    ) -> None:
        for accuracy in accuracies or ():
            Objective(accuracy=accuracy)  # refuses bad ones at once
        self.planners, self.devices, self.accuracies, self.baselines = planners, devices, accuracies, baselines
        self.processes, self.progress = processes or usable_processors(), progress

    def one(
        self, profile: Profile | PathLike, trace: Trace | PathLike, latencies_s: Sequence[float], **asked: Any
    ) -> "Comparison":
        """`planners` may include `cocktail+`, which needs recorded predictions and is simulated for each cell."""
        from gearshift.planner import compare

        measured = profile if isinstance(profile, Profile) else read_profile(Path(profile))
        names = list(compare.comparable(measured) if self.planners is None else self.planners)
        compare.require_comparable([*names, *(self.baselines or ())], measured)
        plan_with = [name for name in dict.fromkeys(names) if name != compare.COCKTAIL]
        self._require_some(plan_with, latencies_s)
        arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
        hardware = self._by_count(measured, asked)
        slos_s = sorted(set(latencies_s))
        requests = [
            plan_request(measured, arrivals, devices=hardware[count], latency_s=slo_s, **asked)
            for count in sorted(hardware)
            for slo_s in slos_s
        ]
        runs, worst = self._run(compare.run_planner, plan_with, requests), compare.worst_accuracy(measured)
        if compare.COCKTAIL in names and not compare.count_interrupted(runs):
            cells = compare.cocktail_jobs(requests[0], compare.rows_of_grid(runs, worst, self.accuracies), slos_s)
            with suppress(KeyboardInterrupt):  # then without Cocktail+, of which no cell is finished
                runs += self._side_by_side(compare.run_planner, cells)
        return self._compared(runs, worst, compare.BASELINES)

    def graph(
        self,
        profiles: Any,
        trace: Trace | PathLike,
        latencies_s: Sequence[float],
        *,
        percentile: float = 0.95,
        **asked: Any,
    ) -> "Comparison":
        """Latencies and accuracies are of the whole graph, from one end to the other."""
        from gearshift.planner.comparing.graphs import run_graph_planner, worst_composed

        names = registry.OF_GRAPHS if self.planners is None else self.planners
        for name in (*names, *(self.baselines or ())):
            registry.require_graph_planner(name)
        self._require_some(names, latencies_s)
        objective = Objective(percentile=percentile, latency_s=min(latencies_s))
        of_devices = {name: asked.pop(name, None) for name in ("memory_bytes", "price_per_hour")}
        base = pipeline_request(profiles, trace, objective=objective, devices=1, **asked)
        hardware = self._by_count(as_one(base.profiles), of_devices)
        requests = [
            replace(base, hardware=hardware[count], objective=msgspec.structs.replace(objective, latency_s=latency_s))
            for count in sorted(hardware)
            for latency_s in sorted(set(latencies_s))
        ]
        runs = self._run(run_graph_planner, names, requests, graphs=True)
        return self._compared(runs, worst_composed(base), ("greedy", "apart"))

    def several(
        self,
        profiles: Sequence[Profile | PathLike],
        traces: Mapping[str, Trace | PathLike],
        latencies_s: Mapping[str, Sequence[float]],
        **asked: Any,
    ) -> "Comparison":
        """`latencies_s` has for each operator as many objectives: the first of all make the first run, and so on.

        The longest of a run stands for them, so that these must differ. Accuracies are means over all requests.
        """
        from gearshift.planner.comparing.several import run_planner_of_several, worst_of_several

        names = registry.OF_SEVERAL if self.planners is None else self.planners
        for name in (*names, *(self.baselines or ())):
            registry.require_planner_of_several(name)
        measured, slos_s = named_profiles(profiles), _together(latencies_s)
        self._require_some(names, slos_s)
        hardware = self._by_count(as_one(measured), asked)
        requests = [
            several_request(list(measured.values()), traces, latency_s=slo_s, devices=hardware[count], **asked)
            for count in sorted(hardware)
            for slo_s in slos_s
        ]
        runs = self._run(run_planner_of_several, names, requests)
        return self._compared(runs, worst_of_several(requests[0]), ("apart", "coordinate", "frontier"))

    def _require_some(self, planners: Sequence[str], latencies_s: Sequence[object]) -> None:
        some = bool(planners and self.devices and latencies_s)
        require(some, "nothing to compare", remedy="name planners, devices and SLOs")

    def _by_count(self, profile: Profile, asked: dict[str, Any]) -> dict[int, Hardware]:
        """The hardwares by their number of devices; raises `InvalidInput` where two have the same."""
        memory_bytes, price = asked.pop("memory_bytes", None), asked.pop("price_per_hour", None)
        hardware: dict[int, Hardware] = {}
        for each in self.devices:
            on = hardware_of(each, profile, memory_bytes=memory_bytes, price=price)
            count = len(on.devices)
            require(
                hardware.setdefault(count, on) == on, f"two hardwares of {count} devices", remedy="compare them apart"
            )
        return hardware

    def _run(self, run: Any, planners: Sequence[str], requests: Sequence[Any], **how: Any) -> list[Any]:
        return self._side_by_side(run, [(name, each) for name in dict.fromkeys(planners) for each in requests], **how)

    def _side_by_side(self, run: Any, jobs: Sequence[tuple[str, Any]], **how: Any) -> list[Any]:
        from gearshift.planner.side_by_side import run_side_by_side

        return run_side_by_side(run, jobs, processes=self.processes, progress=self.progress, **how)

    def _compared(self, runs: list[Any], worst: float, baselines: Sequence[str]) -> "Comparison":
        from gearshift.planner.compare import compared

        against = baselines if self.baselines is None else self.baselines
        return compared(runs, worst, baselines=against, accuracies=self.accuracies)


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
