"""The number of connections this process may hold."""

import resource
from contextlib import suppress


def allow_many_connections() -> None:
    """Raise the soft limit on open files to the hard one, at most 65,536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft < wanted:
        with suppress(OSError, ValueError):  # a sandbox leaves the limit as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
