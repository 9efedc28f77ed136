"""Two real tasks on the same devices: planned together, apart on devices of their own, and one after the other.

Answers and certainties are FrugalML's yelp and command, run times BERT's on a V100. Each trace is a slice of Twitter,
of other hours for each; its busiest second is `--load` times what the largest model of its task alone carries within
its latency on one device. All plans have the same devices, latencies, scope and margin, and are judged by one replay
of both traces at once: part B, five arrival seeds. `yelp first` plans yelp alone on all devices and adds the other
with `--with`; it is infeasible where nothing is left. `coordinate` and `frontier` plan one task at a time, with the
other fixed.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence

import msgspec

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.imported import DEVICE_KIND, frugalml
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_table
from benchmarks.shared.worlds import twitter
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.several.plan import finished
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.beside import part_of
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import Profile
from gearshift.simulator.compared.cocktail import capacity_within

LATENCIES_S = {"yelp": 0.1, "command": 0.2}
STARTS_S = {"yelp": 140_760, "command": 226_000}
SECONDS = 60
MEMORY_BYTES = 16 << 30


def named(profile: Profile) -> Profile:
    """The profile with the operator's name before its models'."""
    models = {model: f"{profile.operator}-{model}" for model in profile.models}
    return dataclasses.replace(
        profile,
        curves=tuple(msgspec.structs.replace(curve, model=models[curve.model]) for curve in profile.curves),
        predictions=dataclasses.replace(profile.predictions, models=tuple(models.values())),
    )


def main() -> None:
    """Print accuracy, p95 and lateness of each way to plan."""
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--load", type=float, default=1.5)
    parser.add_argument("--ranges", type=int, default=8)
    parser.add_argument("--candidates", type=int, default=24)
    arguments = parser.parse_args()
    data = data_of(arguments)
    hardware = identical_devices(arguments.devices, kind=DEVICE_KIND, memory_bytes=MEMORY_BYTES)
    requests = {}
    for name, latency_s in LATENCIES_S.items():
        profile = named(frugalml(data, name))
        alone = capacity_within(profile.whole_curves[-1], latency_s, 0.95, seed=0)
        peak_qps = arguments.load * alone.qps
        trace = twitter(data, start=STARTS_S[name], seconds=SECONDS, peak_qps=peak_qps)
        requests[name] = PlanRequest(
            profile=profile,
            trace=trace,
            hardware=hardware,
            objective=Objective(latency_s=latency_s),
            ranges=arguments.ranges,
            most_candidates=arguments.candidates,
        )
        print(f"{name}: {len(trace)} requests, busiest second {trace.peak_qps:.0f}, mean {trace.mean_qps:.0f}/s")
    several = SeveralRequest(requests=requests)
    ways: dict[str, Callable[[], GearPlan]] = {
        "together": lambda: planners.plan("optimal", several),
        "apart": lambda: planners.plan("apart", several),
        "yelp first": lambda: plan_in_turn(several, ["yelp", "command"]),
        "command first": lambda: plan_in_turn(several, ["command", "yelp"]),
        "coordinate": lambda: planners.plan("coordinate", several),
        "frontier": lambda: planners.plan("frontier", several),
    }
    rows = [row(way, several, find) for way, find in ways.items()]
    print_table(
        ("way", "mean accuracy", *(f"{n} {f}" for n in requests for f in ("accuracy", "p95", "late")), "s"), rows
    )
    print(describe())


def plan_in_turn(several: SeveralRequest, order: Sequence[str]) -> GearPlan:
    """The first operator planned alone on all devices, and each of the others with what is left."""
    first, *others = order
    made, planned = planners.named("optimal").plan(several.requests[first]), [first]
    for name in others:
        planned.append(name)
        part = SeveralRequest(requests={each: several.requests[each] for each in planned}, fixed=made)
        made = planners.plan("optimal", part)
    return finished(several, {name: part_of(made, [name]) for name in several.requests})


def row(way: str, several: SeveralRequest, find: Callable[[], GearPlan]) -> tuple[str, ...]:
    """Figures of one way, and the processor time that it took."""
    began_s = time.process_time()
    try:
        made = find()
    except Infeasible as error:
        return (
            way,
            "infeasible",
            *[""] * (3 * len(several.requests)),
            f"{time.process_time() - began_s:.0f} ({error.load_range})",
        )
    mean = sum(several.share_of_requests[name] * made.predictions[name].accuracy for name in several.requests)
    figures = [
        text
        for result in (made.predictions[name] for name in several.requests)
        for text in (
            f"{100 * result.accuracy:.2f}",
            f"{1e3 * result.latency_s.p95:.0f} ms",
            f"{100 * result.share_late:.2f}",
        )
    ]
    return way, f"{100 * mean:.2f}", *figures, f"{time.process_time() - began_s:.0f}"


if __name__ == "__main__":
    main()
