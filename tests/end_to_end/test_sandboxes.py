"""A server where the system leaves calls out, and what ends it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.little_task import write_little_task

WITHOUT = """
import ctypes, errno, os, sys
from gearshift.cli.main import main

def refuse(*_):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

for name in sys.argv.pop(1).split(","):
    setattr(os, name, refuse)
main()
"""


@contextmanager
def served(plan: Path, without: str, hangup: signal.Handlers = signal.SIG_DFL) -> Iterator[subprocess.Popen[str]]:
    """A server of emulated devices, once it is ready, in a process where calls of the system fail."""
    command = [sys.executable, "-c", WITHOUT, without, "serve", str(plan), "--port", "0", "--backend", "emulated"]
    before = signal.signal(signal.SIGHUP, hangup)  # which the server inherits
    try:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    with process:
        try:
            assert process.stderr is not None
            said = ""
            while "serving " not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            yield process
        finally:
            process.kill()


def test_a_server_drains_when_its_terminal_is_closed(tmp_path: Path) -> None:
    without = "pidfd_open,sched_setaffinity,sched_getaffinity,nice"
    with served(write_little_task(tmp_path), without) as process:
        process.send_signal(signal.SIGHUP)
        assert process.wait(30) == 0


@pytest.mark.long
def test_nohup_hides_that_the_terminal_is_closed(tmp_path: Path) -> None:
    with served(write_little_task(tmp_path), "nice", signal.SIG_IGN) as process:  # as `nohup` starts it
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == 0
