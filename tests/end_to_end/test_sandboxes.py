"""A server where the system leaves calls out, and what ends it."""

import os
import signal
import subprocess
import sys
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


def served(plan: Path, without: str, **how: object) -> subprocess.Popen[str]:
    """A server of emulated devices, once it is ready, in a process where calls of the system fail."""
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT, without, "serve", str(plan), "--port", "0", "--backend", "emulated"],
        stderr=subprocess.PIPE,
        text=True,
        **how,  # type: ignore[call-overload]
    )
    assert process.stderr is not None
    said = ""
    while "serving " not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return process


def test_a_server_drains_when_its_terminal_is_closed(tmp_path: Path) -> None:
    process = served(write_little_task(tmp_path), "pidfd_open,sched_setaffinity,sched_getaffinity,nice")
    with process:
        process.send_signal(signal.SIGHUP)
        assert process.wait(30) == 0


@pytest.mark.long
def test_nohup_hides_that_the_terminal_is_closed(tmp_path: Path) -> None:
    ignore = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` starts it
    try:
        process = served(write_little_task(tmp_path), "nice")
    finally:
        signal.signal(signal.SIGHUP, ignore)
    with process:
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == 0
