import os
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.measuring.timing import SHORTEST_S, Disturbance, curve_from_timings, fit_overheads, told
from gearshift.models.samples import Samples


def samples(labels: object, groups: object = None) -> Samples:
    return Samples(
        np.zeros((4, 2)),
        None if labels is None else np.asarray(labels),
        None if groups is None else np.asarray(groups),
    )


def test_a_curve_holds_the_median_and_p95_by_the_one_percentile_rule() -> None:
    runs = np.arange(1, 21) / 100
    measured = curve_from_timings("m", [1], [runs], device_kind="gpu", cores=2, memory_bytes=7)
    assert (measured.median_s, measured.p95_s) == ((0.10,), (0.19,))
    assert (measured.device_kind, measured.cores, measured.memory_bytes) == ("gpu", 2, 7)


def test_a_curve_is_made_of_plain_numbers() -> None:
    measured = curve_from_timings("m", [np.int64(1)], [np.array([0.5])], overhead_per_batch_s=np.float64(0.1))
    assert {type(v) for v in (measured.batch_sizes[0], measured.median_s[0], measured.overhead_per_batch_s)} == {
        int,
        float,
    }


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [([], "batch size 4 was never run"), ([0.0], "took no positive time"), ([np.nan], "took no positive time")],
)
def test_runs_without_a_time_name_the_model_and_the_batch_size(runs: list[float], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=f"run times of model 'm'.*{sentence}"):
        curve_from_timings("m", [4], [np.array(runs)])


@given(st.floats(0, 0.1), st.floats(0, 0.01))
def test_overheads_on_a_line_are_found(per_batch: float, per_request: float) -> None:
    sizes = [1, 2, 4, 8]
    run = [np.full(5, 0.01 * size) for size in sizes]
    trip = [r + per_batch + per_request * size for r, size in zip(run, sizes, strict=True)]
    assert fit_overheads(sizes, trip, run) == pytest.approx((per_batch, per_request), abs=1e-12)


def test_one_disturbed_batch_size_does_not_bend_the_line() -> None:
    sizes = [1, 2, 4, 8, 16]
    trip = [np.array([0.01 + 0.001 * size]) for size in sizes]
    trip[2] += 5.0
    run = [np.zeros(1)] * 5
    assert fit_overheads(sizes, trip, run) == pytest.approx((0.01, 0.001), abs=1e-3)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6))
def test_overheads_are_never_negative(differences: list[float]) -> None:
    sizes = [2**i for i in range(len(differences))]
    overheads = fit_overheads(sizes, [np.array([d]) for d in differences], [np.zeros(1)] * len(sizes))
    assert min(overheads) >= 0


def test_a_single_batch_size_gives_an_overhead_per_batch_only() -> None:
    assert fit_overheads([8], [np.array([0.3])], [np.array([0.1])]) == (pytest.approx(0.2), 0.0)


SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"


def test_time_that_others_took_is_told_with_the_processors() -> None:
    assert told({3, 2}, 0.9, 1.0) == (
        "while models were timed, other programs took 45 % of processors 2, 3: run times may be too long; "
        "profile again when the machine is quiet"
    )


@pytest.mark.parametrize(("others_s", "elapsed_s"), [(0.05, 1.0), (-0.1, 1.0), (SHORTEST_S / 4, SHORTEST_S / 2)])
def test_little_and_what_a_clock_of_ticks_cannot_tell_is_not_told(others_s: float, elapsed_s: float) -> None:
    assert told({0}, others_s, elapsed_s) == ""


def test_processors_that_cannot_be_seen_are_not_told() -> None:
    assert Disturbance({9999}, os.getpid()).warning() == ""


@pytest.fixture
def spinning() -> Iterator[int]:
    """A processor on which another program is busy."""
    core = max(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", SPIN, str(core)], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        yield core
        program.kill()


@pytest.mark.long
def test_another_program_on_the_processor_is_noticed_and_this_one_is_not(spinning: int) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, before - {spinning} or before)
        try:
            seen, begun = Disturbance({spinning}, other.pid), time.monotonic()
            while time.monotonic() - begun < 2 * SHORTEST_S:
                time.sleep(0.05)  # lets the other program run
            assert f"of processor {spinning}:" in seen.warning()
        finally:
            os.sched_setaffinity(0, before)
            other.kill()
