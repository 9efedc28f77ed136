from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, GearPrediction, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.reporting.gear_rows import gear_rows, top_of

NOWHERE = SourceFile(path="", sha256="")
REPLICAS = tuple(Replica(id=f"{m}@cpu-0", model=m, device_ids=("cpu-0",)) for m in ("a", "b"))


def plan(models: str, ends: list[float], predicted_qps: list[float], batches: list[int]) -> GearPlan:
    """One gear for each letter of `models`, up to its end; the last has none."""
    gears = []
    for k, model in enumerate(models):
        gears.append(
            Gear(
                load_range=LoadRange(from_=ends[k - 1] if k else 0.0, to=ends[k] if k < len(ends) else None),
                cascades=alone("task", Cascade(models=(model,))),
                replicas=tuple(
                    ReplicaSettings(replica=r.id, load_share=float(r.model == model), largest_batch_size=batches[k])
                    for r in REPLICAS
                ),
                predicted=GearPrediction(
                    load_qps=predicted_qps[k], accuracy=0.9, latency_p95_s=0.01 * (k + 1), share_late=0, utilisation=0.5
                ),
            )
        )
    operator = PipelinePlan(
        nodes={"task": Node(operator="task")}, output="task", objective=Objective(latency_s=0.1), gears=tuple(gears)
    )
    return GearPlan(
        planner="test",
        hardware=identical_devices(1),
        placement=Placement(replicas=REPLICAS),
        pipelines={"task": operator},
        profiles={"task": NOWHERE},
        traces={"task": NOWHERE},
    )


def test_neighbours_of_the_same_cascade_are_one_row_with_their_numbers() -> None:
    rows = gear_rows(plan("bbaab", [10, 20, 30, 40], [10, 20, 30, 40, 50], [8, 8, 4, 16, 8]), "task")
    assert [row.numbers for row in rows] == ["0-1", "2-3", "4"]
    assert [str(row.load_range) for row in rows] == ["[0, 20)", "[20, 40)", "[40, inf)"]
    assert [row.predicted and row.predicted.latency_p95_s for row in rows] == [0.02, 0.04, 0.05]
    assert [row.largest_batch for row in rows] == ["8", "4-16", "8"]
    assert [row.predicted_elsewhere_qps for row in rows] == [None, None, 50]


def test_gears_beyond_what_was_planned_for_are_a_row_of_their_own() -> None:
    made = plan("bbba", [10, 20, 30], [10, 20, 30, 20], [8] * 4)
    assert top_of(made.pipelines["task"].gears) == 20
    assert [row.numbers for row in gear_rows(made, "task")] == ["0-1", "2", "3"]


def test_a_gear_that_was_predicted_at_a_lower_load_says_at_which() -> None:
    (row,) = gear_rows(plan("b", [], [20], [8]), "task")
    assert (row.numbers, row.predicted_elsewhere_qps) == ("0", 20)
    straddling = plan("bba", [10, 40], [10, 20, 20], [8] * 3)
    assert [row.predicted_elsewhere_qps for row in gear_rows(straddling, "task")] == [20, 20]
