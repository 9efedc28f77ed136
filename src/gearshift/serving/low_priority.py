"""A command of `gearshift` in a process that gives way to all others, and ends with the one that started it.

python -P -m gearshift.serving.low_priority PARENT VERB ...
"""

import os
import sys

from gearshift.runtime.worker import die_with_parent

NICENESS = 19


def main() -> int:
    """Become the command; 1 where the parent is gone already."""
    os.nice(NICENESS)
    if not die_with_parent(int(sys.argv[1])):
        return 1
    os.execv(sys.executable, [sys.executable, "-P", "-m", "gearshift", *sys.argv[2:]])


if __name__ == "__main__":
    sys.exit(main())
