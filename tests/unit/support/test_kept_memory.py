import ctypes
import subprocess
import sys

import pytest

from gearshift.support.kept_memory import BY_USER

LEAST_FAULTS = 2000
"""Of at least 10 MiB that are given back and asked for again each time."""
FAULTS = """
import resource, sys
import numpy as np
from gearshift.support.kept_memory import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()


def batch():
    for _ in range(5):
        [np.ones(1 << 18) for _ in range(8)]


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


batch()
before = faults()
batch()
print(faults() - before)
"""


def faults(how: str, **environment: str) -> int:
    """Page faults of a batch that needs 16 MiB five times in arrays of two, after another such batch."""
    command = [sys.executable, "-c", FAULTS, how]
    return int(subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout)


SURGE = """
import sys
from pathlib import Path
from gearshift.support.kept_memory import give_back_freed_memory

if sys.argv[1] == "given back":
    give_back_freed_memory()


def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) / 256


bytearray(30 << 20)  # freed at once, as blocks are while modules are imported
before = resident_mib()
surge = [bytearray(100_000) for _ in range(400)]
del surge
print(resident_mib() - before)
"""


def left_of_a_surge(how: str) -> float:
    """Resident MiB of 38 in blocks of 100 KB after they are freed."""
    command = [sys.executable, "-c", SURGE, how]
    return float(subprocess.run(command, env={}, capture_output=True, check=True, text=True).stdout)


GLIBC_S = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="only glibc can be told")


@GLIBC_S
def test_what_a_batch_frees_is_there_for_the_next() -> None:
    assert faults("as it is") > LEAST_FAULTS
    assert faults("kept") < LEAST_FAULTS / 10


@GLIBC_S
@pytest.mark.parametrize("name", BY_USER[:2])
def test_what_the_user_has_set_stays(name: str) -> None:
    assert faults("kept", **{name: "100000"}) > LEAST_FAULTS


@GLIBC_S
def test_what_a_front_end_frees_after_a_surge_is_given_back() -> None:
    assert left_of_a_surge("as it is") > 20
    assert left_of_a_surge("given back") < 5
