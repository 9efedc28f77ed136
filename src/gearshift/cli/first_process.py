"""The first process of a container: runs the command, forwards signals and reaps orphans.

The kernel makes it the parent of every process whose own parent has ended; unless they are reaped,
they fill the process table. A server cannot do that itself: it must not reap what its own
libraries wait for.
"""

import os
import signal
import sys

_FAULTS = {signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP}


def become_first_process() -> None:
    """Return in a child; this process ends with the child's exit status."""
    passed = signal.valid_signals() - _FAULTS - {signal.SIGKILL, signal.SIGSTOP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, passed)
    child = os.fork()
    if child == 0:
        os.setsid()  # a terminal's Ctrl-C then comes once, from the parent
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
    """Reap all ended children; return the status of `child` if ended, 128 + n for signal n."""
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
    """Run `python -m gearshift.cli.first_process COMMAND ...`, for the user's own programs."""
    become_first_process()
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
