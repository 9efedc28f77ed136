"""Log messages on standard error, as text for people or as one JSON object per line.

Every module has a logger of its own name; `logging_to_stderr` decides which messages are written,
and how. Text from outside (clients, models, endpoints) cannot start a new line, control a
terminal, or fill a disk.
"""

import logging
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import msgspec

from gearshift.support.plain_text import plain

Level = Literal["debug", "info", "warning", "error"]
Form = Literal["text", "json"]

OURS = "gearshift"
PREFIX = "gearshift {process} {pid}: "
TRACEBACK = "  | "
"""Starts each line of a traceback, to tell it from messages."""
LONGEST_MESSAGE, LONGEST_TRACEBACK = 8_000, 40_000
"""In characters."""
MOST_LINES, WINDOW_S = 20, 10.0
"""At most this many warnings and errors of one kind within this time; level debug writes all."""
_ARGUMENT = re.compile(r"%(?:(%)|[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")
LEFT_OUT = "; more of this kind are left out and counted for %g s"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The least urgent level written (of other libraries at least warnings); text or JSON."""

    level: Level = "info"
    form: Form = "text"

    def arguments(self) -> list[str]:
        return ["--log-level", self.level, "--log-format", self.form]


_in_force = LogSettings()


def settings_in_force() -> LogSettings:
    """Return this process's log settings, which the workers that it starts inherit."""
    return _in_force


@contextmanager
def logging_to_stderr(settings: LogSettings, *, process: str = "") -> Iterator[None]:
    """Write log messages to standard error while the block lasts.

    `process` names this process where it is not the server. As text only Gearshift's own messages
    are written, and other loggers keep their handlers; as JSON all are written.
    """
    global _in_force  # noqa: PLW0603  as the loggers themselves
    root, ours = logging.getLogger(), logging.getLogger(OURS)
    before = _in_force, root.level, ours.level, ours.propagate
    whose = root if settings.form == "json" else ours
    handler = _FewLines(sys.stderr) if settings.level != "debug" else logging.StreamHandler(sys.stderr)
    prefix = PREFIX.format(process=process, pid=os.getpid()) if process else ""
    handler.setFormatter(_JsonLines() if settings.form == "json" else _TextLines(prefix))
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    root.setLevel(max(level, logging.WARNING))
    ours.setLevel(level)
    ours.propagate = settings.form == "json"
    whose.addHandler(handler)
    logging.captureWarnings(settings.form == "json")
    _in_force = settings
    try:
        yield
    finally:
        logging.captureWarnings(False)
        whose.removeHandler(handler)
        handler.close()
        _in_force = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])
        ours.propagate = before[3]


def facts(**values: object) -> dict[str, Any]:
    """Facts of a message, as `extra` of a logging call; JSON lines have each as a field."""
    return {"facts": values}


MOST = "most_lines"
SELDOM: dict[str, Any] = {MOST: 1}
"""As `extra` of a logging call: one line of this message within the time."""


class _FewLines(logging.StreamHandler):  # type: ignore[type-arg]
    """Limits warnings and errors of one kind within a time, and counts those left out."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._counts: Counter[tuple[str, str, int]] = Counter()
        """Lines by kind: the logger, the message without its arguments, and its limit of lines."""
        self._began_s = 0.0
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            most_lines: int = getattr(record, MOST, MOST_LINES)
            now_s, kind = time.monotonic(), (record.name, _kind(record), most_lines)
            if now_s - self._began_s >= WINDOW_S and self._timer is None:
                self._began_s = now_s
                self._counts.clear()
            self._counts[kind] += 1
            if self._counts[kind] > most_lines:
                return
            if self._counts[kind] == most_lines:
                self._count_until_the_window_ends()
                record = logging.makeLogRecord(record.__dict__ | {"msg": f"{record.msg}{LEFT_OUT % WINDOW_S}"})
        super().emit(record)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._window_ends()
        super().close()

    def _count_until_the_window_ends(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(WINDOW_S, self._window_ends)
            self._timer.daemon = True
            self._timer.start()

    def _window_ends(self) -> None:
        self.acquire()
        try:
            left_out = {kind: count - kind[2] for kind, count in self._counts.items() if count > kind[2]}
            self._counts.clear()
            self._timer = None
            for (name, message, _), count in left_out.items():
                told = {"name": name, "levelno": logging.WARNING, "levelname": "WARNING"}
                told |= {"msg": "%d more lines were left out: %s", "args": (count, message)}
                super().emit(logging.makeLogRecord(told))
        finally:
            self.release()


class _TextLines(logging.Formatter):
    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        lines = [f"{self._prefix}{plain(_shortened(record.getMessage(), LONGEST_MESSAGE))}"]
        if record.exc_info:
            traceback = _shortened(self.formatException(record.exc_info), LONGEST_TRACEBACK)
            lines += [f"{self._prefix}{TRACEBACK}{plain(line)}" for line in traceback.split("\n")]
        return "\n".join(lines)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": _encodable(_shortened(record.getMessage(), LONGEST_MESSAGE)),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = _encodable(_shortened(self.formatException(record.exc_info), LONGEST_TRACEBACK))
        return plain(msgspec.json.encode(line).decode())


def _kind(record: logging.LogRecord) -> str:
    message = str(record.msg)
    return _ARGUMENT.sub(lambda found: found[1] or "...", message) if record.args else message


def _shortened(text: str, longest: int) -> str:
    left_out = len(text) - longest
    return text if left_out <= 0 else f"{text[: longest // 2]} ... {left_out} characters ... {text[-longest // 2 :]}"


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
