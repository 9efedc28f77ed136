"""A first process, tried as one that orphans come to without being the first."""

import signal
import subprocess
import sys
from contextlib import AbstractContextManager

import pytest

from tests.processes import ended

PROGRAM = """
import ctypes, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans below come here, as to the first process
from gearshift.cli.first_process import main
sys.argv = ["", *sys.argv[1:]]
main()
"""


def first(*command: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return ended(subprocess.Popen([sys.executable, "-c", PROGRAM, *command], stdout=subprocess.PIPE, text=True))


@pytest.mark.parametrize(("command", "status"), [("exit 3", 3), ("kill -9 $$", 128 + 9), ("true", 0)])
def test_it_ends_as_its_command_does(command: str, status: int) -> None:
    with first("sh", "-c", command) as process:
        assert process.wait(20) == status


def test_orphans_are_reaped_and_signals_passed_on() -> None:
    orphans = "for i in 1 2 3; do sh -c 'true & exit'; done"
    pause = "for i in $(seq 400)"  # not for ever, as nobody ends it where this test fails
    left = f"{pause}; do left=$(ps -o stat= --ppid $PPID | grep -c Z); [ $left = 0 ] && break; sleep 0.05; done"
    script = f"trap 'exit 5' TERM; {orphans}; sleep 0.2; {left}; echo $left; {pause}; do sleep 0.05; done"
    with first("sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 5
