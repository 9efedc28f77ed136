import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from gearshift.measuring.disturbance import SHORTEST_S, Disturbance, told

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
