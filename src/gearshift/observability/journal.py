"""The journal: what happened to the service as JSON lines, without the events of single requests."""

import os
import time
from pathlib import Path
from typing import BinaryIO

import msgspec

ROTATE_AT_BYTES = 64 << 20


class NoJournal:
    """Keeps nothing."""

    def write(self, event: str, **facts: object) -> None:
        """Forget `event`."""

    def close(self) -> None:
        """Nothing to close."""


class Tagged(NoJournal):
    """Writes to another journal, with the same facts added to every event."""

    def __init__(self, journal: "Journal | NoJournal", **tags: object) -> None:
        self._journal, self._tags = journal, tags

    def write(self, event: str, **facts: object) -> None:
        """As the journal's own; it stays open when this one is closed."""
        self._journal.write(event, **self._tags, **facts)


class Journal:
    """Appends one line per event to `path`; a full file becomes `path.1`, in the place of an older one."""

    def __init__(self, path: Path, *, rotate_at_bytes: int = ROTATE_AT_BYTES) -> None:
        self._path, self._rotate_at_bytes = path, rotate_at_bytes
        self._file: BinaryIO | None = None

    def write(self, event: str, **facts: object) -> None:
        """Append `event`, when it was and its facts; raises `OSError` where the file cannot be written."""
        line = msgspec.json.encode({"at": round(time.time(), 6), "event": event, **facts}) + b"\n"
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab", buffering=0)
        if self._file.tell() + len(line) > self._rotate_at_bytes and self._file.tell() > 0:
            self._file.close()
            os.replace(self._path, self._path.with_name(self._path.name + ".1"))
            self._file = self._path.open("ab", buffering=0)
        self._file.write(line)

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._file is not None:
            self._file.close()
            self._file = None
