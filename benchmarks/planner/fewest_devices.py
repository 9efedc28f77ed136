"""The fewest devices with which each planner reaches an accuracy within a latency (CascadeServe's Figure 7).

Answers and certainties are FrugalML's, run times BERT's on a V100 (as published, which is too fast for large batches).
Traffic is a slice of Twitter whose busiest second is what 20 devices carry of the largest model within 100 ms, so that
it alone needs at least 16 at every latency.  The objective is on
the trace, for all: Cocktail+ knows each period's true peak, too.

A planner reaches a cell with n devices when its plan within the latency has the accuracy on part A; from what would
have to be busy all the time, n is doubled until it does, then bisected.  Cocktail+ has its devices counted on average
over the trace, which is to its advantage, with the best period and margin.  In brackets: accuracy on part B.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.imported import DEVICE_KIND, PAIRINGS, frugalml
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_head
from benchmarks.shared.worlds import twitter
from gearshift.errors import Infeasible
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.contract.ladder import accuracy_on_part_a
from gearshift.planner.space.cascade_search import CandidateCascade, cascade_front, single_models
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A, Profile
from gearshift.simulator.compared.cocktail import capacity_within, fewest_devices_cocktail
from gearshift.workload import Trace

PLANNERS = ("optimal", "single", "model-switching", "static-cascade")
ALONE = ("single", "model-switching")
"""Planners of single models."""
RIVALS = ("single", "model-switching", "cocktail+")
LATENCIES_S = (0.05, 0.1, 0.2)
ACCURACY_SHARES = (0.5, 0.75, 0.95)
"""Of the way from the second best model's accuracy to the best's."""
SLACK = 0.005
"""How much more accurate than on average over part A a plan may be in a replay of it."""
LARGEST_ALONE = 20
MOST_DEVICES = 64
MEMORY_BYTES = 16 << 30
START_S, SECONDS = 140_760, 60
BAR = 2.0
LEAST_RIVAL = 3.0


@dataclass(frozen=True, slots=True)
class Reached:
    """Devices, and the accuracy on part B."""

    devices: float
    accuracy: float


@dataclass(slots=True)
class Growing:
    """A planner with more and more devices at one latency: accuracies on part A and part B, None where infeasible."""

    plan_with: Callable[[int], tuple[float, float] | None]
    known: dict[int, tuple[float, float] | None] = field(default_factory=dict)

    def fewest(self, accuracy: float, *, least: int = 1, most: int = MOST_DEVICES) -> Reached | None:
        """The fewest devices, from `least`, that reach the accuracy on part A; if more devices never give less."""
        low, high = least - 1, least
        while not self._reaches(high, accuracy):
            if high >= most:
                return None
            low, high = high, min(2 * high, most)
        while high > low + 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._reaches(middle, accuracy) else (middle, high)
        found = self.known[high]
        return None if found is None else Reached(high, found[1])

    def _reaches(self, count: int, accuracy: float) -> bool:
        if count not in self.known:
            self.known[count] = self.plan_with(count)
        found = self.known[count]
        return found is not None and found[0] >= accuracy


def least_devices(choices: Sequence[CandidateCascade], accuracy: float, qps: float) -> int:
    """How many devices are busy at least, all the time, where requests get these choices and so much accuracy.

    The work of an accuracy between two choices' is that of sending some requests to one and the rest to the other.
    """
    works = [c.work_s for c in choices if c.accuracy >= accuracy]
    for low in (c for c in choices if c.accuracy < accuracy):
        for high in (c for c in choices if c.accuracy >= accuracy):
            share = (accuracy - low.accuracy) / (high.accuracy - low.accuracy)
            works.append(low.work_s + share * (high.work_s - low.work_s))
    return max(1, math.floor(min(works, default=0.0) * qps))


def planning(name: str, request: PlanRequest) -> Growing:
    """Planner `name` on more and more devices."""

    def plan_with(count: int) -> tuple[float, float] | None:
        hardware = identical_devices(count, kind=DEVICE_KIND, memory_bytes=MEMORY_BYTES)
        asked = replace(request, hardware=hardware)
        try:
            made = planners.plan(name, asked)
        except Infeasible:
            return None
        return accuracy_on_part_a(made, asked), made.predictions[request.profile.operator].accuracy

    return Growing(plan_with)


def cocktail(profile: Profile, trace: Trace, latency_s: float, accuracy: float) -> Reached | None:
    """Cocktail+ at its best."""
    objective = Objective(latency_s=latency_s, accuracy=accuracy)
    try:
        run = fewest_devices_cocktail(profile, trace, objective)
    except Infeasible:
        return None
    return Reached(run.mean_devices, run.result.accuracy)


def wanted_accuracies(profile: Profile, shares: Iterable[float]) -> list[float]:
    """Between the best and the second best model on part A."""
    records = profile.predictions
    ranked = np.sort(records.quality[:, records.indices(PART_A)].mean(axis=1))
    return [float(ranked[-2] + share * (ranked[-1] - ranked[-2])) for share in shares]


def saving(cell: dict[str, Reached | None]) -> float | None:
    """How many times as many the best rival needs; None where it needs few, or where it or our planner fails."""
    rivals = [found.devices for name in RIVALS if (found := cell.get(name)) is not None]
    ours = cell["optimal"]
    if ours is None or not rivals or min(rivals) < LEAST_RIVAL:
        return None
    return min(rivals) / ours.devices


def busiest_qps(profile: Profile) -> float:
    """What so many devices carry of the most accurate model."""
    records = profile.predictions
    best = profile.models[int(records.quality.mean(axis=1).argmax())]
    curve = profile.curve(best, device_kind=DEVICE_KIND)
    return LARGEST_ALONE * capacity_within(curve, LATENCIES_S[1], 0.95, seed=0).qps


def in_words(found: Reached | None) -> str:
    return "-" if found is None else f"{found.devices:.3g} ({found.accuracy:.3f})"


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="yelp, 10 s, two cells, no static cascade")
    parser.add_argument("--datasets", nargs="*", default=list(PAIRINGS))
    parser.add_argument("--latencies-ms", nargs="*", type=float, default=[latency_s * 1e3 for latency_s in LATENCIES_S])
    parser.add_argument("--seconds", type=int, default=SECONDS)
    arguments = parser.parse_args()
    data = data_of(arguments)
    asked_s = tuple(latency_ms / 1e3 for latency_ms in arguments.latencies_ms)
    datasets, seconds, latencies_s, shares, names = (
        (["yelp"], 10, LATENCIES_S[1:2], ACCURACY_SHARES[::2], PLANNERS[:3])
        if arguments.quick
        else (arguments.datasets, arguments.seconds, asked_s, ACCURACY_SHARES, PLANNERS)
    )
    print(describe())
    columns = ("data", "peak/s", "p95 within", "accuracy", *names, "cocktail+", "saving")
    print_head(f"| {' | '.join(columns)} |")
    savings, began = [], time.perf_counter()
    for dataset in datasets:
        profile = frugalml(data, dataset)
        trace = twitter(data, peak_qps=busiest_qps(profile), start=START_S, seconds=seconds)
        for latency_s in latencies_s:
            objective = Objective(latency_s=latency_s, scope="trace")
            hardware = identical_devices(1, kind=DEVICE_KIND, memory_bytes=MEMORY_BYTES)
            request = PlanRequest(profile=profile, trace=trace, hardware=hardware, objective=objective)
            growing = {name: planning(name, request) for name in names}
            choices = cascade_front(request), single_models(request)
            for accuracy in wanted_accuracies(profile, shares):
                cell = {
                    name: growing[name].fewest(
                        accuracy, least=least_devices(choices[name in ALONE], accuracy - SLACK, trace.mean_qps)
                    )
                    for name in names
                }
                cell["cocktail+"] = cocktail(profile, trace, latency_s, accuracy)
                saved = saving(cell)
                savings += [saved] if saved is not None else []
                row = (
                    dataset,
                    f"{trace.peak_qps:.0f}",
                    f"{latency_s * 1e3:.0f} ms",
                    f"{accuracy:.3f}",
                    *(in_words(found) for found in cell.values()),
                    "-" if saved is None else f"{saved:.2f}x",
                )
                print(f"| {' | '.join(row)} |", flush=True)
    print()
    print(f"{seconds} s of traffic; {time.perf_counter() - began:.0f} s to plan")
    middle = float(np.median(savings)) if savings else math.nan
    print_bar(
        bool(savings) and middle >= BAR,
        f"in the median cell at least {BAR:g}x fewer devices than the best of {', '.join(RIVALS)}, of {len(savings)} "
        f"cells where that needs {LEAST_RIVAL:g} or more (median {middle:.2f}x)",
    )


if __name__ == "__main__":
    main()
