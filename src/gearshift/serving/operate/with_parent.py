"""Run a `gearshift` command that ends with its parent process, at low priority if asked.

python -P -m gearshift.serving.operate.with_parent PARENT GIVES_WAY VERB ...
"""

import os
import sys

from gearshift.support.process_end import die_with_parent
from gearshift.support.processors import give_way_to_all

GIVES_WAY = "gives-way"


def command(*verb: str, gives_way: bool = False) -> list[str]:
    how = GIVES_WAY if gives_way else "like-parent"
    return [sys.executable, "-P", "-m", "gearshift.serving.operate.with_parent", str(os.getpid()), how, *verb]


def main() -> int:
    if sys.argv[2] == GIVES_WAY:
        give_way_to_all()
    if not die_with_parent(int(sys.argv[1])):
        return 1
    os.execv(sys.executable, [sys.executable, "-P", "-m", "gearshift", *sys.argv[3:]])


if __name__ == "__main__":
    sys.exit(main())
