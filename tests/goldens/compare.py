"""Show what differs between two folders of goldens, as a unified diff; exit with 1 where anything does.

    python tests/goldens/compare.py BEFORE AFTER [--names]

With `--names` the files that differ are named alone.
"""

import argparse
import sys
from collections.abc import Iterator
from difflib import unified_diff
from itertools import takewhile
from pathlib import Path

LONGEST_LINE = 240


def differences(before: Path, after: Path) -> Iterator[tuple[str, list[str]]]:
    """Each file that differs, with its diff; a file of one side alone has every line in it."""
    for name in sorted(_files(before) | _files(after)):
        old, new = _lines(before / name), _lines(after / name)
        if old != new:
            yield name, list(unified_diff(old, new, f"{before.name}/{name}", f"{after.name}/{name}", lineterm=""))


def _files(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def shown(diff: list[str]) -> list[str]:
    """Lines of a diff; long ones are cut to where they begin to differ from their counterpart."""
    old = [line[1:] for line in diff if line.startswith("-")]
    new = [line[1:] for line in diff if line.startswith("+")]
    return [_cut(line, new if line.startswith("-") else old if line.startswith("+") else []) for line in diff]


def _cut(line: str, others: list[str]) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    shared = max((_shared(line[1:], other) for other in others), default=0)
    begin = max(0, shared - LONGEST_LINE // 3)
    return f"{line[0]}{'... ' if begin else ''}{line[1 + begin :][:LONGEST_LINE]} ... ({len(line)} characters)"


def _shared(a: str, b: str) -> int:
    """How many characters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--names", action="store_true")
    given = parser.parse_args()
    for folder in (given.before, given.after):
        if not folder.is_dir():
            parser.error(f"{folder} is no folder; make it with record.py")
    count = 0
    for name, diff in differences(given.before, given.after):
        count += 1
        sys.stdout.writelines(f"{line}\n" for line in ([name] if given.names else shown(diff)))
    sys.stderr.write(f"{count} files differ\n" if count else "no file differs\n")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
