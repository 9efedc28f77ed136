"""Do the walks of the guides as they are printed, and tell how long that takes: `python -m tests.programs.walks`.

Seconds are of commands; a reader is taken to read 200 words a minute, and to type while commands run.
"""

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.examples.test_documented_commands import ROOT, Shell, commands_of, files_of

WALKS = ("walk-tabular.md", "walk-records.md", "onnx-and-pytorch.md")
WORDS_A_MINUTE = 200


def walk(page: Path, folder: Path) -> float:
    """The seconds of all commands of a page, each of which is told with its own."""
    shell, sum_s = Shell(folder), 0.0
    for name, text in files_of(page).items():
        (shell.place / name).write_text(text)
    try:
        for line in commands_of(page):
            began_s = time.monotonic()
            shell.run(line)
            took_s = time.monotonic() - began_s
            sum_s += took_s
            print(f"{took_s:7.1f} s  {line:.100}", flush=True)
    finally:
        shell.end_all()
    return sum_s


def main() -> None:
    for name in sys.argv[1:] or WALKS:
        page = ROOT / "docs" / "guides" / name
        words = len(page.read_text().split())
        with TemporaryDirectory() as folder:
            seconds = walk(page, Path(folder))
        reading = words / WORDS_A_MINUTE
        busy = f"load average at the end {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        both = f"together {reading + seconds / 60:.1f} min"
        print(f"{name}: {words} words, {reading:.1f} min to read; commands {seconds:.0f} s; {both}; {busy}")


if __name__ == "__main__":
    main()
