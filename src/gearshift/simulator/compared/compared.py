"""Simulate the scalers `replicas`, `fa2` and `vpa`, for a plan of one model on one worker."""

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.plans.plan_tables import PlanTables
from gearshift.plans.workers import scaled_workers, shared_pool
from gearshift.policies.cores.demand import Scaling
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import exits_of, scaled_times_ns
from gearshift.simulator.compared.scalers import Fa2Scaler, ReplicasScaler, VpaScaler
from gearshift.simulator.compared.vertical import Scaler, Setting, VerticalRun, simulate_vertical
from gearshift.workload import Workload

COMPARED = "replicas", "fa2", "vpa"
PLAN_ONE = "compare with --scaler exact, or plan for one model on one device"


def simulate_compared(
    plan: GearPlan,
    tables: PlanTables,
    profile: Profile,
    workload: Workload,
    scaling: Scaling,
    cores: int | None = None,
) -> VerticalRun:
    """Serve `workload`, whose requests all have deadlines, within `cores` (default: the plan's).

    Batches are the largest that the plan has and deadlines allow, and start without waiting; a
    request that would make them small gives way, as in the router. Raises `InvalidInput` for a
    plan of several models or workers, one whose cores change with its gears, a model that stops
    early, and requests of several rows.
    """
    one = len(tables.models) == len(tables.replica_ids) == 1
    require(one, f"{scaling.scaler} knows one model on one worker, the plan has more", remedy=PLAN_ONE)
    require(plan.hardware.pool_cores is None, f"{scaling.scaler} knows no gears with cores of their own")
    require(
        exits_of(plan, tables, profile) is None, f"{scaling.scaler} knows no model that stops early", remedy=PLAN_ONE
    )
    require(workload.continues is None, f"{scaling.scaler} knows requests of one row only")
    workers = scaled_workers(plan, tables, printed=False)
    pool = shared_pool(workers, tables, cores)
    table_ns = scaled_times_ns(workers, plan, tables, profile, most_cores=pool, margin=0.0)[0][0]
    largest, first = table_ns.shape[1] - 1, workers[0][0].cores
    scaler: Scaler
    if scaling.scaler == "fa2":
        scaler = Fa2Scaler(table_ns, most_workers=pool, period_s=scaling.period_s)
        begins_with = Setting(1, largest, first)
    elif scaling.scaler == "replicas":
        scaler = ReplicasScaler(table_ns, margin=scaling.margin, period_s=scaling.period_s, effect_s=scaling.effect_s)
        begins_with = Setting(first, largest)
    else:
        scaler, begins_with = VpaScaler(table_ns), Setting(first, largest)
    return simulate_vertical(
        workload,
        table_ns.tolist(),
        scaler,
        first=begins_with,
        period_s=scaling.period_s,
        effect_s=scaling.effect_s,
        gives_way=True,
    )
