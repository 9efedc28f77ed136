import pytest

from gearshift.errors import InvalidInput
from gearshift.hardware import identical_devices
from gearshift.runtime.cores.core_pool import CorePool, pooled_cores, processors_for


def test_no_processor_is_ever_held_twice_and_a_worker_keeps_what_it_has() -> None:
    pool = CorePool(range(1, 8), {0: [7], 1: [6]})
    assert pool.resize(0, 3) == (7, 5, 4)
    assert pool.resize(1, 9) == (6, 3, 2, 1)
    assert pool.resize(0, 1) == (7,)
    assert len(pool) == 7
    assert pool.resize(1, 6) == (6, 3, 2, 1, 5, 4)


def test_shares_of_processors_round_up_to_whole_ones() -> None:
    assert [processors_for(cores, 0.25) for cores in (0, 1, 4, 5)] == [1, 1, 1, 2]
    assert processors_for(3, 1 / 3) == 1


def test_the_router_has_the_lowest_processor_for_itself_unless_devices_need_it() -> None:
    assert pooled_cores(identical_devices(1), (0, 1, 2), 1.0) == ({"cpu-0": {2}}, (1, 2), {0})
    assert pooled_cores(identical_devices(2), (0, 1), 1.0) == ({"cpu-0": {1}, "cpu-1": {0}}, (0, 1), {0})
    assert pooled_cores(identical_devices(1, cores=4), (0, 1), 0.25) == ({"cpu-0": {1}}, (1,), {0})
    with pytest.raises(InvalidInput, match="needs 3 cores"):
        pooled_cores(identical_devices(3), (0, 1), 1.0)
