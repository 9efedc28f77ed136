"""A command of `gearshift` in a process that ends with the one that started it, and may give way to others.

python -P -m gearshift.serving.with_parent PARENT NICENESS VERB ...
"""

import os
import sys

from gearshift.runtime.worker import die_with_parent

LOW_PRIORITY = 19
"""The niceness of what gives way to all others."""


def command(*verb: str, niceness: int = 0) -> list[str]:
    """What starts `gearshift` with these arguments as a child of this process."""
    return [sys.executable, "-P", "-m", "gearshift.serving.with_parent", str(os.getpid()), str(niceness), *verb]


def main() -> int:
    """Become the command; 1 where the parent is gone already."""
    os.nice(int(sys.argv[2]))
    if not die_with_parent(int(sys.argv[1])):
        return 1
    os.execv(sys.executable, [sys.executable, "-P", "-m", "gearshift", *sys.argv[3:]])


if __name__ == "__main__":
    sys.exit(main())
