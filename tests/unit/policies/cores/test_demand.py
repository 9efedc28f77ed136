"""What a scaler gives replicas that share cores, and what one of them wishes for."""

import numpy as np
import pytest

from gearshift.clock import NS_PER_S as S
from gearshift.errors import InvalidInput
from gearshift.policies.cores.demand import MOST_REMEMBERED, Demand, Scaling, SharedCores, share
from gearshift.profiles.performance_model import planned_ns
from gearshift.simulator.compared.scalers import ExactScaler
from gearshift.simulator.compared.vertical import Seen, Setting, simulate_vertical
from gearshift.workload import Workload

MOST, LARGEST = 4, 2
RUN_NS = [0] * (LARGEST + 1) + [S // 10 * b // c for c in range(1, MOST + 1) for b in range(LARGEST + 1)]
NOBODY = (), 0


def demands(**how: object) -> list[Demand]:
    return SharedCores(Scaling(**how), 8, [RUN_NS, RUN_NS], [MOST, MOST], LARGEST).demands()  # type: ignore[arg-type]


def test_where_nothing_has_come_cores_are_those_of_the_idle() -> None:
    assert share(demands(), [NOBODY] * 2, S, 8, asked=[3, 2]) == [3, 2]


def test_no_replica_has_fewer_cores_than_the_least_whatever_it_needs() -> None:
    both = demands()
    for one in both:
        one.arrived(S, 5 * S)
    assert share(both, [NOBODY] * 2, S, 8, asked=[4, 4]) == [1, 1]
    assert share(both, [NOBODY] * 2, S, 8, in_gear=[3, 2], asked=[4, 4]) == [3, 2]


def test_short_of_cores_the_least_are_kept_and_the_rest_goes_to_who_misses_fewer_with_it() -> None:
    busy, idle = demands()
    busy.arrived(S, 2 * S)
    idle.arrived(S, 9 * S)
    crowd = [(S, S + S // 4)] * 12, S
    assert share([busy, idle], [crowd, NOBODY], S, 8, asked=[1, 1])[0] == MOST
    assert share([busy, idle], [crowd, NOBODY], S, 5, in_gear=[1, 2], asked=[1, 1]) == [3, 2]
    with pytest.raises(InvalidInput, match="2 replicas cannot share 2 cores"):
        share([busy, idle], [crowd, NOBODY], S, 2, in_gear=[1, 2], asked=[1, 1])


def test_a_static_scaler_gives_the_idle_cores() -> None:
    both = demands(scaler="static")
    both[0].arrived(S, S + 1)
    assert share(both, [([(S, S + 1)], S), NOBODY], S, 8, in_gear=[2, 3], asked=[1, 1]) == [2, 3]


# One replica's wishes ------------------------------------------------------------------------------------------------

LARGER = 4
TABLE = np.array([[0] + [S] * LARGER] + [[0] + [S // 20 * (b + 1) // c for b in range(1, 5)] for c in range(1, 9)])
"""Of up to 8 cores; 7 bear 100 requests a second, 1 a tenth of it."""


def one_replica(**how: object) -> Demand:
    scaling = Scaling(**how)  # type: ignore[arg-type]
    return Demand(planned_ns(TABLE, scaling.margin), 8, LARGER, scaling)


class Wrapped:
    """The server's demand where the simulator asks its scaler."""

    start_up_ns = 0

    def __init__(self) -> None:
        self._demand, self._cores, self._told = one_replica(), 8, 0

    def setting(self, seen: Seen) -> Setting:
        came = zip(seen.arrivals_ns[self._told :], seen.deadlines_ns[self._told :], strict=True)
        for arrived_ns, deadline_ns in came:
            self._demand.arrived(int(arrived_ns), int(deadline_ns))
        self._told = len(seen.arrivals_ns)
        waiting = [(0, deadline_ns) for deadline_ns in seen.waiting_ns]
        self._cores = self._demand.wanted(seen.now_ns, waiting, seen.free_ns, self._cores)
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


def hundred_come(demand: Demand, from_ns: int) -> None:
    """In a second."""
    for i in range(100):
        at_ns = from_ns + (i + 1) * S // 100
        demand.arrived(at_ns, at_ns + 60 * S)


@pytest.mark.parametrize("begun_s", [0, 100])
def test_the_rate_counts_from_when_requests_are_let_in_however_long_models_took_to_load(begun_s: int) -> None:
    demand = one_replica()
    demand.let_in(begun_s * S)
    hundred_come(demand, begun_s * S)
    assert demand.wanted((begun_s + 1) * S, [], 0, 8) == 7


def test_what_was_asked_of_a_shadow_says_nothing_of_the_rate_once_it_takes_over() -> None:
    demand = one_replica()
    for tenths in range(1, 90):
        demand.arrived(tenths * S // 10, tenths * S // 10 + 60 * S)
    demand.let_in(9 * S)
    hundred_come(demand, 9 * S)
    assert demand.wanted(10 * S, [], 0, 8) == 7


def test_a_request_just_before_the_first_period_ends_is_no_rate() -> None:
    demand, at_ns = one_replica(), 100 * S - S // 1000
    demand.let_in(at_ns)
    demand.arrived(at_ns, at_ns + 60 * S)
    assert demand.wanted(100 * S, [], 0, 8) == 1


def test_before_anything_came_and_when_static_cores_stay() -> None:
    assert one_replica().wanted(0, [(0, 1)], 0, 3) == 3
    static = one_replica(scaler="static")
    static.arrived(0, 1)
    assert static.wanted(0, [(0, 1)], 0, 3) == 3


def test_the_printed_algorithm_looks_at_who_waits_alone() -> None:
    printed = one_replica(scaler="paper", slo_s=1.0, margin=0.0)
    printed.arrived(0, S)
    assert printed.wanted(0, [], 0, 8) == 1
    assert printed.wanted(0, [(0, S // 5)] * 4, 0, 8) == 2
    with pytest.raises(InvalidInput, match="needs one SLO"):
        Scaling(scaler="paper")


def test_what_came_long_ago_is_forgotten_and_high_rates_are_bounded() -> None:
    demand = one_replica()
    demand.arrived(0, S // 20)
    assert demand.wanted(11 * S, [], 11 * S, 5) == 5
    for i in range(MOST_REMEMBERED + 10):
        now_ns = 11 * S + i * 10_000
        demand.arrived(now_ns, 20 * S)
    assert demand.wanted(now_ns, [], now_ns, 5) == 8
