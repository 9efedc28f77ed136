import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.placement import Replica
from gearshift.profiles.performance_model import Statistic
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import core_table_ns
from tests.scaled_task import PER_BATCH_S, PER_SAMPLE_S, SHARE, scaled_profile

REPLICA = Replica(id="net-0", model="net", device_ids=("cpu-0",))


def table(profile: Profile, most: int = 4, statistic: Statistic = "median") -> np.ndarray:
    return core_table_ns(REPLICA, "cpu", profile, most_cores=most, largest=4, statistic=statistic)


def test_every_count_of_cores_has_its_measured_times() -> None:
    found = table(scaled_profile())
    assert found.shape == (5, 5)
    for cores in (1, 2, 3, 4):
        sizes = np.arange(1, 5)
        expected = (PER_BATCH_S + PER_SAMPLE_S * sizes) / (SHARE * cores) * 1e9
        np.testing.assert_allclose(found[cores, 1:], expected, rtol=1e-6)


def test_counts_between_the_measured_ones_are_filled_by_the_model_and_there_are_none_beyond() -> None:
    found = table(scaled_profile((1, 2, 4)), most=16)
    assert len(found) == 5
    assert found[4, 1] < found[3, 1] < found[2, 1]
    assert (table(scaled_profile(), statistic="p95")[1:, 1:] > 0).all()


def test_one_core_has_to_be_among_the_measured() -> None:
    with pytest.raises(InvalidInput, match="profile it on 1 core too"):
        table(scaled_profile((2, 3, 4)))
