"""What workers of one machine get; `tests/unit/runtime` has what a scaler then does."""

from gearshift.clock import NS_PER_S
from gearshift.policies.cores.demand import Scaling, SharedCores
from gearshift.policies.cores.worker_demand import MachineDemand

MOST, LARGEST = 4, 2
RUN_NS = [0] * (LARGEST + 1) + [size and NS_PER_S // cores for cores in range(1, MOST + 1) for size in (0, 1, 2)]
"""c cores bear 2 c requests a second."""


def machine(cores: int) -> MachineDemand:
    """Replicas 0 and 2 take turns on a worker, 1 has one of its own."""
    return MachineDemand(
        SharedCores(Scaling(), cores, [RUN_NS] * 3, [MOST] * 3, LARGEST, workers=[[0, 2], [1]], first=[1, 1, 1])
    )


def wanted(demand: MachineDemand, *, in_gear: list[int], asked: list[int]) -> list[int]:
    """After a second, when nobody waits."""
    return demand.wanted([([], NS_PER_S)] * 3, NS_PER_S, in_gear=in_gear, asked=asked)


def come(demand: MachineDemand, replica: int, count: int) -> None:
    for i in range(count):
        demand.arrived(replica, (i + 1) * NS_PER_S // count, 60 * NS_PER_S)


def test_replicas_of_a_worker_have_together_what_all_of_them_need() -> None:
    demand = machine(8)
    come(demand, 0, 3)
    come(demand, 2, 2)
    come(demand, 1, 3)
    assert wanted(demand, in_gear=[], asked=[1, 1, 1]) == [3, 2, 3]


def test_where_nothing_has_come_cores_stay_as_they_were_asked_for_or_are_those_of_the_gear() -> None:
    assert wanted(machine(8), in_gear=[], asked=[3, 2, 3]) == [3, 2, 3]
    assert wanted(machine(8), in_gear=[1, 4, 1], asked=[3, 2, 3]) == [1, 4, 1]


def test_none_has_fewer_than_its_gear_gives_it_and_all_together_no_more_than_there_are() -> None:
    demand = machine(4)
    come(demand, 0, 7)
    come(demand, 1, 3)
    assert wanted(demand, in_gear=[1, 3, 1], asked=[1, 1, 1]) == [1, 3, 1]
    shares = wanted(demand, in_gear=[], asked=[1, 1, 1])
    assert sum(shares[:2]) == 4
    assert shares[2] == shares[0] > 1
