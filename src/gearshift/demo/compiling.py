"""Compile the simulator in another process meanwhile, which fills its cache."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

KERNEL, KERNEL_OF_LANGUAGE = "gearshift.simulator.warm_up", "gearshift.simulator.engines.warm_up"


@contextmanager
def compiling(*flags: str, module: str = KERNEL) -> Iterator[None]:
    """Run `module` with `flags` beside the block, and wait for it at its end."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
        process.wait()
    finally:
        process.kill()
        process.wait()
