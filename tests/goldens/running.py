"""Command lines run in this process, and what they say as text that is the same whenever and wherever it is made."""

import json
import os
import re
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

LONGEST_S = 900
"""On a busy machine that compiles kernels first; nothing that is recorded may depend on it."""
SPOKEN = re.compile(r"^(error|try|warning): |^(Usage|Error): ", re.MULTILINE)
"""How lines on standard error begin that are no progress."""
SAME: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"\bafter [\d.]+ (ms|s|min)\b"), "after TIME"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), "ADDRESS"),
    (re.compile(r"\b\d+ [MG]iB of requests"), "MEMORY of requests"),
    (re.compile(r'("(?:planning_s|refined_s|search_s)": ?)[\d.e-]+'), r"\1TIME"),
    (re.compile(r"see \S*gearshift-\w+\.txt"), "see TRACEBACK"),
    (re.compile(re.escape(tempfile.gettempdir()) + r"/tmp\w+"), "FOLDER"),
    (re.compile(r"\bid [0-9a-f]{12}\b"), "id ID"),
)
BY_NAME = ("answered_by", "discarded_tokens", "utilisation", "outcomes", "dropped", "slowdown_of")
"""Keys of JSON whose values have whatever names there were."""
NUMBER = re.compile(r"(?<![\w.#-])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Said:
    """What a command line did."""

    line: str
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """Exit code and sentences of a refusal."""
        return f"exit {self.code}: {self.err.strip() or self.out.strip()}"

    def text(self) -> str:
        parts = [f"$ {self.line}", f"exit {self.code}", self.out.rstrip()]
        if self.code and self.err:
            parts += ["--- standard error", self.err.rstrip()]
        return "\n".join(part for part in parts if part) + "\n"


def as_always(text: str) -> str:
    """The text without what differs from run to run."""
    from gearshift import __version__

    for pattern, same in SAME:
        text = pattern.sub(same, text)
    text = text.replace(f'"{__version__}"', '"VERSION"')
    return "\n".join(line.rstrip() for line in text.splitlines()) + ("\n" if text.endswith("\n") else "")


def without_numbers(text: str) -> str:
    return NUMBER.sub("#", text)


def shape(value: Any) -> Any:
    """The keys of JSON, with the kind of each value; a list has what its elements have together."""
    match value:
        case dict():
            return {key: "by name" if key in BY_NAME else shape(each) for key, each in value.items()}
        case list():
            found: dict[str, Any] = {}
            for each in value:
                found |= shape(each) if isinstance(each, dict) else {}
            return [found] if found else "list"
        case bool():
            return "true or false"
        case None | int() | float():
            return "number or null"
    return "text"


def as_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


@contextmanager
def place(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class TooLong(BaseException):
    """A command line that should have ended at once goes on."""


def _too_long(*_: object) -> None:
    raise TooLong


def run(folder: Path, *words: object) -> Said:
    """Run `gearshift` with these words in a folder."""
    from gearshift.cli.main import main_group

    given = [str(word) for word in words]
    line = " ".join(["gearshift", *(f"'{word}'" if " " in word else word for word in given)])
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST_S)
    try:
        with place(folder):
            done = CliRunner().invoke(main_group, given, prog_name="gearshift", auto_envvar_prefix="GEARSHIFT")
        code, out, err = done.exit_code, done.stdout, done.stderr
        if isinstance(done.exception, Exception) and not isinstance(done.exception, SystemExit):
            err += f"error: {type(done.exception).__name__}: {done.exception}\n"
    except TooLong:
        raise SystemExit(f"{line}: still runs after {LONGEST_S} s") from None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    spoken = SPOKEN.search(err)
    return Said(line, code, as_always(out), as_always(err[spoken.start() :]) if spoken else "")
