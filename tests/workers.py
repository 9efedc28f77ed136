"""Signals to the workers of a backend under test."""

import os
from typing import Any


def send_signal(backend: Any, replica: int, number: int) -> None:
    """Signal a replica's worker, which there has to be: process 0 would be the tests themselves."""
    pid = backend.worker_pids()[replica]
    assert pid, f"replica {replica} has no worker now"
    os.kill(pid, number)
