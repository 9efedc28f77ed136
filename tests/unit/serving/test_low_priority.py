import os
import subprocess
import sys

from gearshift.serving.low_priority import NICENESS

LAUNCHER = [sys.executable, "-P", "-m", "gearshift.serving.low_priority"]


def test_a_command_whose_parent_is_gone_does_nothing() -> None:
    done = subprocess.run([*LAUNCHER, "1", "--help"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_command_gives_way_to_all_others() -> None:
    with subprocess.Popen([*LAUNCHER, str(os.getpid()), "simulate", "--help"], stdout=subprocess.DEVNULL) as process:
        while os.getpriority(os.PRIO_PROCESS, process.pid) != NICENESS:
            assert process.poll() is None
        process.kill()
