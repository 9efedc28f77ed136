from gearshift.policies.load import METER_KEEPS_ARRIVALS
from gearshift.runtime.router.pipeline import Meter

MS = 1_000_000


def test_a_tick_counts_what_came_since_the_one_before() -> None:
    meter = Meter()
    for ms in range(40):
        meter.arrived(ms * MS)
    assert meter.tick(100 * MS) == 400
    meter.arrived(150 * MS)
    assert meter.counted == (1, METER_KEEPS_ARRIVALS)


def test_a_copy_goes_its_own_way() -> None:
    meter = Meter()
    meter.arrived(0)
    other = meter.copy()
    other.arrived(1)
    assert (meter.counted, other.counted) == ((1, 1), (2, 2))
