import os
import subprocess

from gearshift.serving.operate.with_parent import command
from gearshift.support.processors import LOWEST_PRIORITY


def test_a_command_whose_parent_is_gone_does_nothing() -> None:
    orphan = [part if part != str(os.getpid()) else "1" for part in command("--help")]
    done = subprocess.run(orphan, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_command_may_give_way_to_all_others() -> None:
    asked = command("simulate", "--help", gives_way=True)
    with subprocess.Popen(asked, stdout=subprocess.DEVNULL) as process:
        while os.getpriority(os.PRIO_PROCESS, process.pid) != LOWEST_PRIORITY:
            assert process.poll() is None
        process.kill()
