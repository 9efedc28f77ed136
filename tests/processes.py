"""Processes that tests start."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr


@contextmanager
def ended(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Kill the process where the block leaves it running, as it does by failing: `Popen` alone waits without limit."""
    with process:
        try:
            yield process
        finally:
            process.kill()
