"""Compile the simulator in another process meanwhile, which fills its cache."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def compiling(*flags: str) -> Iterator[None]:
    """Run `gearshift.simulator.warm_up` with `flags` beside the block, and wait for it at its end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gearshift.simulator.warm_up", *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
        process.wait()
    finally:
        process.kill()
        process.wait()
