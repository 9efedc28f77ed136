"""Run an engine that ends, with all that it starts, when standard input ends: the parent holds its other end.

python -P -m gearshift.runtime.engines.replicas.supervise CORES COMMAND ...

Processes that the engine leaves behind become this one's children (Linux), wherever they hide: in
a group or a session of their own they are found all the same.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import psutil

from gearshift.support.process_end import adopt_orphans, die_with_parent
from gearshift.support.processors import pin

ANY_CORES = "any"
GRACE_S = 3.0
"""Between SIGTERM and SIGKILL."""
MOST_SWEEPS = 100
"""Bound on rounds of killing what is left, as it may start more meanwhile."""


def main() -> int:
    cores, command = sys.argv[1], sys.argv[2:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent decides by closing its end
    if cores != ANY_CORES:
        pin({int(core) for core in cores.split(",")})
    adopt_orphans()
    try:
        engine = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=partial(_begin, os.getpid()),  # noqa: PLW1509  there are no threads yet
        )
    except OSError as error:
        said = f"{command[0]} cannot be started ({error.strerror}); install it, or mend the engine's command"
        print(said, flush=True)  # noqa: T201  for the parent
        return 127
    threading.Thread(target=_end_with_parent, args=(engine.pid,), daemon=True).start()
    status = _end_of(engine.pid)
    _signal(engine.pid, signal.SIGKILL)  # what it has left running
    kill_all_below()
    return status if status >= 0 else 128 - status


def _end_of(engine: int) -> int:
    """Wait until the engine has ended, and meanwhile for what it left to this process; its exit status."""
    while True:
        pid, status = os.wait()
        if pid == engine:
            return os.waitstatus_to_exitcode(status)


def kill_all_below() -> None:
    """Kill every descendant of this process."""
    for _ in range(MOST_SWEEPS):
        left = psutil.Process().children(recursive=True)
        if not left:
            return
        kill(left)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def _begin(parent: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    die_with_parent(parent)


def _end_with_parent(group: int) -> None:
    while os.read(0, 1024):
        pass
    _signal(group, signal.SIGTERM)
    time.sleep(GRACE_S)
    _signal(group, signal.SIGKILL)


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main())
