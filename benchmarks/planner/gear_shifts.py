"""How often plans shift, by the margin of an upshift, and what that does to accuracy and latency.

Plans for five synthetic models, made once, are simulated on part B with other arrivals than they were chosen on.
Deterministic: no time is measured.
"""

import msgspec

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.tables import print_table
from benchmarks.shared.worlds import devices, five_models, twitter
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner.evaluate.confirm import workload_of
from gearshift.planner.search.optimal import PLANNER
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_B
from gearshift.simulator.simulate import simulate
from gearshift.traces.generate import bursty, steady
from gearshift.workload import Trace

plan = PLANNER.plan

MARGINS = (0.0, 0.05, 0.1, 0.2, 1.0)
OTHER_SEED = 3


def with_margin(made: GearPlan, margin: float) -> GearPlan:
    pipelines = {
        name: msgspec.structs.replace(operator, upshift_margin=margin) for name, operator in made.pipelines.items()
    }
    return msgspec.structs.replace(made, pipelines=pipelines)


def rows(name: str, trace: Trace, count: int, *, latency_s: float, fastest_s: float = 0.0004) -> list[tuple[str, ...]]:
    profile = five_models(fastest_s=fastest_s)
    request = PlanRequest(
        profile=profile, trace=trace, hardware=devices(count), objective=Objective(latency_s=latency_s)
    )
    made = plan(request)
    workload = workload_of(trace, profile, part=PART_B, seed=OTHER_SEED)
    found = []
    for margin in MARGINS:
        run = simulate(with_margin(made, margin), profile, workload)
        result = run.result(profile, latency_objective_s=latency_s)
        found.append(
            (
                name,
                f"{margin:g}",
                f"{len(run.shifts) / trace.duration_s:.2f}",
                f"{result.accuracy:.2%}",
                f"{result.share_late:.3%}",
                f"{result.latency_s.p95 * 1e3:.1f}",
            )
        )
    return found


def main() -> None:
    data = data_of(parser_of(__doc__, data=True).parse_args())
    table = [
        *rows("demo-like, 12 s", bursty(84, 448, 12, bursts=2, seed=1), 1, latency_s=0.15),
        *rows("bursty, 60 s", bursty(200, 1100, 60, bursts=4, seed=1), 1, latency_s=0.2),
        *rows("steady 300/s", steady(300, 120, seed=2), 1, latency_s=0.2),
        *rows("Twitter to 150/s", twitter(data, peak_qps=150, seconds=600), 1, latency_s=0.5, fastest_s=0.002),
        *rows("Twitter to 2000/s", twitter(data, peak_qps=2000, seconds=300), 4, latency_s=0.2),
    ]
    print_table(("trace", "margin", "shifts/s", "accuracy", "late", "p95, ms"), table)


if __name__ == "__main__":
    main()
