"""What a scaler gives replicas that share cores; `tests/unit/runtime/test_scaler.py` has one replica's wishes."""

import pytest

from gearshift.clock import NS_PER_S as S
from gearshift.errors import InvalidInput
from gearshift.policies.demand import Demand, Scaling, SharedCores, share

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
