"""The first process of a container: it starts the command as its child, passes signals on, and reaps orphans.

The kernel makes it the parent of every process whose own has ended, such as what a model's tool leaves behind; whoever
does not reap them fills the table of processes.  A server cannot do that itself: it must not reap what its own
libraries wait for.
"""

import os
import signal
import sys

_FAULTS = {signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP}


def become_first_process() -> None:
    """Return in a child; this process ends as that does, with its exit status."""
    passed = signal.valid_signals() - _FAULTS - {signal.SIGKILL, signal.SIGSTOP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, passed)
    child = os.fork()
    if child == 0:
        os.setsid()  # a terminal's Ctrl-C comes from the parent alone, and once
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while True:
        number = signal.sigwait(passed)
        if number == signal.SIGCHLD:
            status = _reap(child)
            if status is not None:
                os._exit(status)
        else:
            os.kill(child, number)


def _reap(child: int) -> int | None:
    """Take all children that have ended; the exit status of `child` where it is among them, 128 + n after signal n."""
    status = None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            code = os.waitstatus_to_exitcode(ended)
            status = code if code >= 0 else 128 - code


def main() -> None:
    """`python -m gearshift.cli.first_process COMMAND ...`, for programs of one's own."""
    become_first_process()
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
