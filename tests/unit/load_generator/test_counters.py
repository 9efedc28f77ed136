import pytest

from gearshift.load_generator.counters import Counters, ModelRuns, counters_in
from gearshift.observability.metrics import Metrics
from gearshift.policies.batching import FULL


def metrics(batches: list[int]) -> Counters:
    """What is read of a server that ran batches of these sizes, each for 0.25 s on one device."""
    counted = Metrics()
    for size in batches:
        counted.batch_started("small", size, FULL)
        counted.batch_finished("small", ["cpu-0"], 0.25)
    return counters_in(counted.text().decode())


def test_what_ran_between_two_readings_is_their_difference() -> None:
    before, after = metrics([4]), metrics([4, 2, 3])
    assert after.runs_since(before) == {"small": ModelRuns(batches=2, samples=5, run_s=0.5)}
    assert after.busy_since(before) == {"cpu-0": 0.5}


def test_a_server_that_counts_nothing_of_this_tells_nothing() -> None:
    other = counters_in("# TYPE requests counter\nrequests_total 3\n")
    assert other == Counters()
    assert other.runs_since(Counters()) == {}


def test_what_is_no_metrics_is_refused() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        counters_in("requests_total many\n")
