"""Two operators on the same devices: what is gained where both refine, beside gears, and beside devices of their own.

Answers and certainties are FrugalML's, run times BERT's on a V100.  Each operator has another slice of Twitter, with
a busiest second of its part of `--peak` requests per device.  Plans are made on part A, and all are replayed alike on
part B.  `own devices` has each operator planned alone by `refine` on its part of the devices, where there are as many.
"""

import argparse
import dataclasses
import time

import msgspec

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.imported import DEVICE_KIND, LARGEST_BATCH, PAIRINGS, frugalml
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_table
from benchmarks.shared.worlds import twitter
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware, identical_devices
from gearshift.objective import Objective
from gearshift.planner.planners import plan
from gearshift.planner.several.coordinate import together_in_order
from gearshift.planner.several.refined import mean_accuracy, run_of
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_B, Profile

MEMORY_BYTES = 16 << 30
STARTS_S = 140_400, 86_400
SEEDS = 3
OWN_DEVICES = "own devices"


def named(profile: Profile) -> Profile:
    """The profile with models that have the operator's name before theirs."""
    name, records = profile.operator, profile.predictions
    return dataclasses.replace(
        profile,
        curves=tuple(msgspec.structs.replace(curve, model=f"{name}-{curve.model}") for curve in profile.curves),
        predictions=dataclasses.replace(records, models=tuple(f"{name}-{model}" for model in records.models)),
    )


def request_of(asked: argparse.Namespace, latencies_ms: tuple[float, float], devices: int) -> SeveralRequest:
    """The request of one cell."""
    data, hardware = data_of(asked), identical_devices(devices, kind=DEVICE_KIND, memory_bytes=MEMORY_BYTES)
    peak = asked.peak * devices / 2
    requests = {
        name: PlanRequest(
            profile=named(frugalml(data, name, sizes=tuple(range(1, LARGEST_BATCH + 1)))),
            trace=twitter(data, peak_qps=peak, start=start, seconds=asked.seconds),
            hardware=hardware,
            objective=Objective(latency_s=ms / 1e3),
            ranges=asked.ranges,
            budget_s=asked.budget_s,
        )
        for name, ms, start in zip(asked.datasets, latencies_ms, STARTS_S, strict=True)
    }
    worth = {} if asked.worth is None else {asked.datasets[0]: asked.worth}
    return SeveralRequest(requests=requests, worth=worth)


def on_own_devices(several: SeveralRequest) -> GearPlan:
    """Each operator alone on half of the devices, by `refine`; as many are its own, and the rest the first's."""
    devices, made, begin = several.hardware.devices, {}, 0
    for left, (name, request) in zip((2, 1), several.requests.items(), strict=True):
        count = (len(devices) - begin + left - 1) // left
        own = dataclasses.replace(request, hardware=Hardware(devices=devices[begin : begin + count]))
        made[name] = msgspec.structs.replace(plan("refine", own), hardware=several.hardware)
        begin += count
    return together_in_order(made)


def row_of(name: str, several: SeveralRequest) -> list[str]:
    """The planner, and what its plan gives on part B: means of the arrival seeds."""
    began = time.process_time()
    try:
        made = on_own_devices(several) if name == OWN_DEVICES else plan(name, several)
    except Infeasible as error:
        return [name, f"no plan: {error.reason}"]
    took_s, each = time.process_time() - began, []
    for seed in range(SEEDS):
        run = run_of(several, made, part=PART_B, seed=seed)
        each.append(
            {
                one: run.result(several.together, latency_objective_s=request.latency_s, pipeline=one)
                for one, request in several.requests.items()
            }
        )

    def mean(of: str, what: str) -> float:
        results = [msgspec.to_builtins(found[of]) for found in each]
        return float(sum(r[what] if what in r else r["latency_s"][what] for r in results)) / SEEDS

    accuracies = {one: mean(one, "accuracy") for one in several.requests}
    return [
        name,
        f"{mean_accuracy(several, accuracies):.2%}",
        *(
            f"{accuracies[one]:.2%}, {mean(one, 'share_late'):.2%}, {1e3 * mean(one, 'p50'):.1f} ms"
            for one in several.requests
        ),
        f"{took_s:.0f}" + (", unfinished" if made.unfinished else ""),
    ]


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="one cell of 5 s, by one planner")
    parser.add_argument("--datasets", nargs=2, default=["yelp", "imdb"], choices=list(PAIRINGS))
    parser.add_argument("--latencies-ms", nargs="*", default=["50,50", "25,100"], help="of both, as in 25,100")
    parser.add_argument("--devices", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--planners", nargs="*", default=["refine", "optimal", OWN_DEVICES])
    parser.add_argument("--peak", type=float, default=2500.0, help="requests in the busiest second, per device")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--ranges", type=int, default=20)
    parser.add_argument("--budget-s", type=float, help="of each plan")
    parser.add_argument("--worth", type=float, help="of the first operator")
    asked = parser.parse_args()
    if asked.quick:
        asked.latencies_ms, asked.devices, asked.seconds, asked.planners = ["50,50"], [1], 5, ["refine"]
        asked.ranges = 3
    print(describe(), flush=True)
    for both in asked.latencies_ms:
        first, second = (float(ms) for ms in both.split(","))
        for devices in asked.devices:
            several = request_of(asked, (first, second), devices)
            fits = [name for name in asked.planners if name != OWN_DEVICES or devices >= len(several.requests)]
            rows = [row_of(name, several) for name in fits]
            header = (f"{first:g} and {second:g} ms, {devices}", "mean accuracy")
            each = (f"{name}: accuracy, late, p50" for name in several.requests)
            print_table((*header, *each, "processor, s"), [row + [""] * (5 - len(row)) for row in rows])


if __name__ == "__main__":
    main()
