"""What a scaler gives replicas that share cores, and what one of them wishes for."""

import numpy as np
import pytest

from gearshift.clock import NS_PER_S as S
from gearshift.errors import InvalidInput
from gearshift.policies.cores.demand import MOST_REMEMBERED, MachineDemand, Scaling, SharedCores, WorkerDemand
from gearshift.profiles.performance_model import planned_ns
from gearshift.simulator.compared.scalers import ExactScaler
from gearshift.simulator.compared.vertical import Seen, Setting, simulate_vertical
from gearshift.workload import Workload

MOST, LARGEST = 4, 2
RUN_NS = [0] * (LARGEST + 1) + [S // 10 * b // c for c in range(1, MOST + 1) for b in range(LARGEST + 1)]
NOBODY = (), 0


def machine(cores: int = 8, **how: object) -> MachineDemand:
    return MachineDemand(SharedCores(Scaling(**how), cores, [RUN_NS, RUN_NS], [MOST, MOST], LARGEST))  # type: ignore[arg-type]


def test_where_nothing_has_come_cores_are_those_of_the_idle() -> None:
    assert machine().shares([NOBODY] * 2, S, asked=[3, 2]) == [3, 2]


def test_no_replica_has_fewer_cores_than_the_least_whatever_it_needs() -> None:
    both = machine()
    for replica in range(2):
        both.arrived(replica, S, 5 * S)
    assert both.shares([NOBODY] * 2, S, asked=[4, 4]) == [1, 1]
    assert both.shares([NOBODY] * 2, S, in_gear=[3, 2], asked=[4, 4]) == [3, 2]


def crowded(cores: int) -> MachineDemand:
    """The first is busy, the second idle."""
    both = machine(cores)
    both.arrived(0, S, 2 * S)
    both.arrived(1, S, 9 * S)
    return both


def test_short_of_cores_the_least_are_kept_and_the_rest_goes_to_who_misses_fewer_with_it() -> None:
    crowd = [(S, S + S // 4)] * 12, S
    assert crowded(8).shares([crowd, NOBODY], S, asked=[1, 1])[0] == MOST
    assert crowded(5).shares([crowd, NOBODY], S, in_gear=[1, 2], asked=[1, 1]) == [3, 2]
    with pytest.raises(InvalidInput, match="2 replicas cannot share 2 cores"):
        crowded(2).shares([crowd, NOBODY], S, in_gear=[1, 2], asked=[1, 1])


def test_a_static_scaler_gives_the_idle_cores() -> None:
    both = machine(scaler="static")
    both.arrived(0, S, S + 1)
    assert both.shares([([(S, S + 1)], S), NOBODY], S, in_gear=[2, 3], asked=[1, 1]) == [2, 3]


# One replica's wishes ------------------------------------------------------------------------------------------------

LARGER = 4
TABLE = np.array([[0] + [S] * LARGER] + [[0] + [S // 20 * (b + 1) // c for b in range(1, 5)] for c in range(1, 9)])
"""Of up to 8 cores; 7 bear 100 requests a second, 1 a tenth of it."""


def one_replica(**how: object) -> WorkerDemand:
    scaling = Scaling(**how)  # type: ignore[arg-type]
    return WorkerDemand(SharedCores(scaling, 8, [planned_ns(TABLE, scaling.margin)], [8], LARGER), [0])


class Wrapped:
    """The server's demand where the simulator asks its scaler."""

    start_up_ns = 0

    def __init__(self) -> None:
        self._demand, self._cores, self._told = one_replica(), 8, 0

    def setting(self, seen: Seen) -> Setting:
        came = zip(seen.arrivals_ns[self._told :], seen.deadlines_ns[self._told :], strict=True)
        for arrived_ns, deadline_ns in came:
            self._demand.arrived(0, int(arrived_ns), int(deadline_ns))
        self._told = len(seen.arrivals_ns)
        waiting = [(0, deadline_ns) for deadline_ns in seen.waiting_ns]
        self._cores = self._demand.wanted(seen.now_ns, [waiting], seen.free_ns, self._cores)
        return Setting(self._cores, LARGER)


def test_the_demand_is_what_the_simulator_of_one_model_predicts() -> None:
    generator = np.random.default_rng(1)
    arrivals = np.sort(generator.integers(0, 20 * S, 900))
    left = np.where(arrivals // (4 * S) % 2 == 0, 9 * S // 10, S // 4) + generator.integers(0, S // 20, 900)
    workload = Workload(
        arrivals_ns=arrivals, record=np.zeros(900, dtype=np.int32), duration_s=20.0, deadline_ns=arrivals + left
    )
    runs = [
        simulate_vertical(workload, TABLE.tolist(), one, first=Setting(8, LARGER), effect_s=0.01)
        for one in (ExactScaler(TABLE, effect_s=0.01), Wrapped())
    ]
    assert len(runs[0].cores) > 3
    assert runs[0].cores.tolist() == runs[1].cores.tolist()


def hundred_come(demand: WorkerDemand, from_ns: int) -> None:
    """In a second."""
    for i in range(100):
        at_ns = from_ns + (i + 1) * S // 100
        demand.arrived(0, at_ns, at_ns + 60 * S)


@pytest.mark.parametrize("begun_s", [0, 100])
def test_the_rate_counts_from_when_requests_are_let_in_however_long_models_took_to_load(begun_s: int) -> None:
    demand = one_replica()
    demand.let_in(begun_s * S)
    hundred_come(demand, begun_s * S)
    assert demand.wanted((begun_s + 1) * S, [[]], 0, 8) == 7


def test_what_was_asked_of_a_shadow_says_nothing_of_the_rate_once_it_takes_over() -> None:
    demand = one_replica()
    for tenths in range(1, 90):
        demand.arrived(0, tenths * S // 10, tenths * S // 10 + 60 * S)
    demand.let_in(9 * S)
    hundred_come(demand, 9 * S)
    assert demand.wanted(10 * S, [[]], 0, 8) == 7


def test_a_request_just_before_the_first_period_ends_is_no_rate() -> None:
    demand, at_ns = one_replica(), 100 * S - S // 1000
    demand.let_in(at_ns)
    demand.arrived(0, at_ns, at_ns + 60 * S)
    assert demand.wanted(100 * S, [[]], 0, 8) == 1


def test_before_anything_came_and_when_static_cores_stay() -> None:
    assert one_replica().wanted(0, [[(0, 1)]], 0, 3) == 3
    static = one_replica(scaler="static")
    static.arrived(0, 0, 1)
    assert static.wanted(0, [[(0, 1)]], 0, 3) == 3


def test_the_printed_algorithm_looks_at_who_waits_alone() -> None:
    printed = one_replica(scaler="paper", slo_s=1.0, margin=0.0)
    printed.arrived(0, 0, S)
    assert printed.wanted(0, [[]], 0, 8) == 1
    assert printed.wanted(0, [[(0, S // 5)] * 4], 0, 8) == 2
    with pytest.raises(InvalidInput, match="needs one SLO"):
        Scaling(scaler="paper")


def test_what_came_long_ago_is_forgotten_and_high_rates_are_bounded() -> None:
    demand = one_replica()
    demand.arrived(0, 0, S // 20)
    assert demand.wanted(11 * S, [[]], 11 * S, 5) == 5
    for i in range(MOST_REMEMBERED + 10):
        now_ns = 11 * S + i * 10_000
        demand.arrived(0, now_ns, 20 * S)
    assert demand.wanted(now_ns, [[]], now_ns, 5) == 8


# Replicas that take turns ------------------------------------------------------------------------------------------

STEADY_NS = [0] * (LARGEST + 1) + [size and S // cores for cores in range(1, MOST + 1) for size in (0, 1, 2)]
"""c cores bear 2 c requests a second."""


def turns(cores: int) -> MachineDemand:
    """Replicas 0 and 2 take turns on a worker, 1 has one of its own."""
    return MachineDemand(
        SharedCores(Scaling(), cores, [STEADY_NS] * 3, [MOST] * 3, LARGEST, workers=[[0, 2], [1]], first=[1, 1, 1])
    )


def wanted_of_each(demand: MachineDemand, *, in_gear: list[int], asked: list[int]) -> list[int]:
    """After a second, when nobody waits."""
    return demand.wanted([([], S)] * 3, S, in_gear=in_gear, asked=asked)


def come(demand: MachineDemand, replica: int, count: int) -> None:
    for i in range(count):
        demand.arrived(replica, (i + 1) * S // count, 60 * S)


def test_replicas_of_a_worker_have_together_what_all_of_them_need() -> None:
    demand = turns(8)
    come(demand, 0, 3)
    come(demand, 2, 2)
    come(demand, 1, 3)
    assert wanted_of_each(demand, in_gear=[], asked=[1, 1, 1]) == [3, 2, 3]


def test_where_nothing_has_come_cores_stay_as_they_were_asked_for_or_are_those_of_the_gear() -> None:
    assert wanted_of_each(turns(8), in_gear=[], asked=[3, 2, 3]) == [3, 2, 3]
    assert wanted_of_each(turns(8), in_gear=[1, 4, 1], asked=[3, 2, 3]) == [1, 4, 1]


def test_none_has_fewer_than_its_gear_gives_it_and_all_together_no_more_than_there_are() -> None:
    demand = turns(4)
    come(demand, 0, 7)
    come(demand, 1, 3)
    assert wanted_of_each(demand, in_gear=[1, 3, 1], asked=[1, 1, 1]) == [1, 3, 1]
    shares = wanted_of_each(demand, in_gear=[], asked=[1, 1, 1])
    assert sum(shares[:2]) == 4
    assert shares[2] == shares[0] > 1
