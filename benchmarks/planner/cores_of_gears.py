"""Cascades and cores per gear beside what one of them alone saves: core-seconds of each plan on one host of 16 cores.

    python -m benchmarks.planner.cores_of_gears --data DIR [--seconds 600] [--quick]

Run times by batch size and cores are those that Sponge measured, six times as long, for the largest model, and the
shares of them that smaller BERTs take of BERT base for the others; predictions and certainties are FrugalML's speech
commands.  Traffic is Twitter, whose busiest second is seven tenths of what the largest model bears on all cores.  All
are planned by the same programme for the same accuracy (0.2, 1 and 2 points less than the largest model's) and p95:

- one gear: the best cascade, on fixed cores;
- the largest model, whose cores change with the gear: vertical scaling alone;
- cascades and cores per gear: the joint plan; and with the exact scaler moving cores between gears on top.

All plans are simulated on samples of part B.  Nothing is timed but planning, so the machine matters to that alone.
"""

import time
from dataclasses import replace
from pathlib import Path

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.imported import bert_curves, frugalml, sponge_latency
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table
from benchmarks.shared.worlds import twitter
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner.cores import cores
from gearshift.planner.space.request import PlanRequest
from gearshift.policies.cores.demand import Scaling
from gearshift.profiles.curves import performance_models
from gearshift.profiles.performance_model import fit_performance_model
from gearshift.profiles.profile import PART_A, PART_B, PredictionRecords, Profile, RunTimeCurve
from gearshift.simulator.simulate import simulate
from gearshift.verbs.planning.hardware import host_of
from gearshift.workload import draw_workload

CORES, COUNTS, SIZES, SLOWER = 16, (1, 2, 4, 8, 16), (1, 2, 4, 8, 16), 6.0
SLO_S, BUSY, LESS = 1.0, 0.7, (0.002, 0.01, 0.02)
LARGEST = "base"


def recorded(data: Path) -> Profile:
    """The profile of `speech commands`, on 1 to 16 cores."""
    predictions = frugalml(data, "command")
    fitted = fit_performance_model(*sponge_latency(data), model=LARGEST)
    largest_s = SLOWER * fitted.table_ns(most_cores=CORES, largest_batch_size=SIZES[-1]) / 1e9
    measured = bert_curves(data)
    curves = []
    for model in predictions.models:
        share = measured[model].median_s[0] / measured[LARGEST].median_s[0]
        for count in COUNTS:
            seconds = tuple(float(share * largest_s[count, size]) for size in SIZES)
            curves.append(RunTimeCurve(model=model, cores=count, batch_sizes=SIZES, median_s=seconds, p95_s=seconds))
    return replace(predictions, curves=tuple(curves), performance=performance_models(curves))


def only(profile: Profile, model: str) -> Profile:
    """A profile of one of the models."""
    records, row = profile.predictions, profile.predictions.rows((model,))
    assert records.prediction is not None
    curves = tuple(curve for curve in profile.curves if curve.model == model)
    kept = PredictionRecords(
        models=(model,),
        quality=records.quality[row],
        certainty=records.certainty[row],
        part=records.part,
        label=records.label,
        prediction=records.prediction[row],
    )
    return replace(profile, curves=curves, predictions=kept, performance=performance_models(curves))


def row(name: str, made: GearPlan, request: PlanRequest, took_s: float, scaling: Scaling | None = None) -> list[object]:
    """A plan's figures on part B."""
    workload = draw_workload(request.trace, request.profile.predictions.indices(PART_B), seed=request.seed)
    if scaling is not None:
        workload = replace(workload, deadline_ns=workload.arrivals_ns + round(SLO_S * 1e9))
    run = simulate(made, request.profile, workload, scaling=scaling)
    result = run.result(request.profile, latency_objective_s=SLO_S)
    core_s = CORES * run.duration_s if run.core_s is None else run.core_s
    figures = f"{core_s:.0f}", f"{core_s / run.duration_s:.2f}", f"{result.latency_s.p95:.3f}"
    gears = len(made.pipelines[request.profile.operator].gears)
    return [name, gears, *figures, f"{result.share_late:.2%}", f"{result.accuracy:.2%}", f"{took_s:.1f}"]


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="60 s, 4 ranges, 12 cascades")
    parser.add_argument("--seconds", type=int, default=600)
    arguments = parser.parse_args()
    data = data_of(arguments)
    print(describe())
    profile = recorded(data)
    records = profile.predictions
    largest = records.models.index(LARGEST)
    most = float(records.quality[largest, records.indices(PART_A)].mean())
    slowest = next(curve for curve in profile.curves if curve.model == LARGEST and curve.cores == CORES)
    peak_qps = BUSY * SIZES[-1] / slowest.median_s[-1]
    request = PlanRequest(
        profile=profile,
        trace=twitter(data, peak_qps=peak_qps, seconds=60 if arguments.quick else arguments.seconds),
        hardware=host_of(profile, CORES),
        objective=Objective(latency_s=SLO_S, scope="trace"),
        ranges=4 if arguments.quick else 10,
        most_candidates=12 if arguments.quick else 60,
    )
    print(f"{len(request.trace)} requests, up to {peak_qps:.0f}/s, p95 {SLO_S:g} s\n")
    met = True
    for less in LESS:
        objective = Objective(latency_s=SLO_S, accuracy=most - less, scope="trace")
        met &= compare(replace(request, objective=objective))
    print_bar(met, "the joint plan has the fewest core-seconds at each accuracy")


def compare(request: PlanRequest) -> bool:
    """The table for one accuracy; whether the joint plan has the fewest core-seconds."""
    asked = {
        "one gear": replace(request, ranges=1),
        "largest model, cores per gear": replace(request, profile=only(request.profile, LARGEST)),
        "cascades and cores per gear": request,
    }
    rows, core_s = [], {}
    for name, one in asked.items():
        began = time.perf_counter()
        try:
            made = cores.plan(one)
        except Infeasible as error:
            rows.append([name, "-", "-", "-", "-", "-", "-", f"{error}"])
            continue
        rows.append(row(name, made, one, time.perf_counter() - began))
        core_s[name] = float(str(rows[-1][2]))
        if one is request:
            scaling = Scaling(scaler="exact", period_s=1.0, slo_s=SLO_S)
            rows.append(row("... and the exact scaler", made, one, 0.0, scaling))
    print(f"accuracy {request.objective.accuracy:.2%}")
    print_table(("plan", "gears", "core-seconds", "mean cores", "p95, s", "late", "accuracy", "planning, s"), rows)
    joint = core_s.get("cascades and cores per gear")
    return joint is not None and joint <= min(core_s.values())


if __name__ == "__main__":
    main()
