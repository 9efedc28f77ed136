"""Logs: what a process says on standard error, as text for people or as one JSON object per line.

Every module has a logger of its own name; `logging_to_stderr` decides what of it is written, and how.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

Level = Literal["debug", "info", "warning", "error"]
Form = Literal["text", "json"]

OURS = "gearshift"
PREFIX = "gearshift {process} {pid}: "


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The least urgent level that is written, of other libraries' messages at least warnings; text or JSON."""

    level: Level = "info"
    form: Form = "text"

    def arguments(self) -> list[str]:
        """These settings as options of a worker's command line."""
        return ["--log-level", self.level, "--log-format", self.form]


_in_force = LogSettings()


def settings_in_force() -> LogSettings:
    """How this process logs, which the workers that it starts do too; logging belongs to the process as a whole."""
    return _in_force


@contextmanager
def logging_to_stderr(settings: LogSettings, *, process: str = "") -> Iterator[None]:
    """Write what is logged to standard error while the block lasts; another `process` than the server is named.

    As text only our own messages are written here, and what others do with logging stays theirs; as JSON all are.
    """
    global _in_force  # noqa: PLW0603  as the loggers themselves
    root, ours = logging.getLogger(), logging.getLogger(OURS)
    before = _in_force, root.level, ours.level, ours.propagate
    whose = root if settings.form == "json" else ours
    handler = logging.StreamHandler(sys.stderr)
    prefix = PREFIX.format(process=process, pid=os.getpid()) if process else ""
    handler.setFormatter(_JsonLines() if settings.form == "json" else logging.Formatter(f"{prefix}%(message)s"))
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
        _in_force = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])
        ours.propagate = before[3]


def facts(**values: object) -> dict[str, Any]:
    """What a message knows beside its words, as `extra` of a logging call; JSON lines have each as a field."""
    return {"facts": values}


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": _encodable(record.getMessage()),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = _encodable(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
