"""What `benchmarks/simulator/deadline_order.py` measures with."""

import numpy as np

from benchmarks.simulator.deadline_order import (
    CAPACITY_QPS,
    SERVICE_MS,
    both_orders,
    goodput,
    missed,
    shares,
    workload_at,
)


def test_deadlines_span_a_tenfold_range_from_five_service_times_on_and_classes_are_its_thirds() -> None:
    workload, classes = workload_at(1.0, 30_000, seed=1)
    assert workload.deadline_ns is not None
    given_ms = (workload.deadline_ns - workload.arrivals_ns) / 1e6 / SERVICE_MS
    assert (given_ms.min() >= 5, given_ms.max() <= 50) == (True, True)
    assert given_ms[classes == 0].max() <= given_ms[classes == 1].min()
    assert abs(np.bincount(classes) / len(workload) - 1 / 3).max() < 0.02
    assert abs(len(workload) / workload.duration_s / CAPACITY_QPS - 1) < 0.02


def test_misses_are_refusals_and_late_answers_and_goodput_is_the_rest() -> None:
    workload, classes = workload_at(2.0, 5_000, seed=1)
    run = both_orders(workload)["EDF"]
    assert 0.3 < missed(run).mean() < 0.6
    assert missed(run).tolist() == (run.finished_ns < 0).tolist()
    assert goodput(run) * run.duration_s * CAPACITY_QPS == np.count_nonzero(~missed(run))
    assert shares(run, classes)[0] == missed(run).mean()
