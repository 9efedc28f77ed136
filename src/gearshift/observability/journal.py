"""The journal: events of the service as JSON lines, without those of single requests."""

import errno
import logging
import os
import socket
import stat
import time
from pathlib import Path
from typing import BinaryIO

import msgspec

from gearshift.support.files import is_plain, not_written, open_in_place, open_to_append
from gearshift.support.plain_text import plain

ROTATE_AT_BYTES = 64 << 20
ARRIVALS = "arrivals"
"""The event that has a pipeline's requests by second, from which `gearshift trace --from-journal` makes a trace."""

log = logging.getLogger(__name__)


class Journal:
    """Takes the events of a service; this one keeps none."""

    def write(self, event: str, **facts: object) -> None:
        pass

    def close(self) -> None:
        pass


class Tagged(Journal):
    """Writes to another journal, with the same facts added to every event, and leaves it open."""

    def __init__(self, journal: Journal, **tags: object) -> None:
        self._journal, self._tags = journal, tags

    def write(self, event: str, **facts: object) -> None:
        self._journal.write(event, **self._tags, **facts)


class JournalFile(Journal):
    """Appends one line per event to `path`; a full file becomes `path.1`, replacing an older one.

    Pipes, sockets and devices, such as /dev/stdout, are written in place, among other output
    there; where nobody reads, events are lost. The first event raises `InvalidInput` where the
    file cannot be written. Later ones never do: on a full disk events are lost, which is logged
    when it begins, and serving goes on. A line is written whole or not at all.
    """

    def __init__(self, path: Path, *, rotate_at_bytes: int = ROTATE_AT_BYTES) -> None:
        self._path, self._rotate_at_bytes = path, rotate_at_bytes
        self._file: BinaryIO | None = None
        self._stream: _Stream | None = None
        self._written = self._losing = False

    def write(self, event: str, **facts: object) -> None:
        text = msgspec.json.encode({"at": round(time.time(), 6), "event": event, **facts}).decode()
        line = plain(text).encode() + b"\n"
        try:
            self._append(line)
        except OSError as error:
            if not self._written:
                self.close()
                raise not_written(self._path, error) from None
            if not self._losing:
                log.error("the journal cannot be written, and its events are lost until it can: %s", error)
            self._losing = True
        else:
            self._written, self._losing = True, False

    def close(self) -> None:
        """Close the file; may be called twice."""
        for opened in (self._file, self._stream):
            if opened is not None:
                opened.close()
        self._file = self._stream = None

    def _append(self, line: bytes) -> None:
        if self._file is None and self._stream is None and not is_plain(self._path):
            self._stream = _Stream(self._path)
        if self._stream is not None:
            self._stream.append(line)
            return
        file = self._opened()
        begin = file.seek(0, os.SEEK_END)
        if begin + len(line) > self._rotate_at_bytes and begin > 0:
            self.close()
            full = os.path.realpath(self._path)
            os.replace(full, f"{full}.1")
            file, begin = self._opened(), 0
        if file.write(line) < len(line):  # the disk is full, and a part of it went through
            try:
                file.truncate(begin)
            except OSError:
                self.close()  # a torn line is ended when the file is opened again
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._file = open_to_append(self._path)
        return self._file


class _Stream:
    """A pipe, socket, device or own descriptor, written in place and without waiting."""

    def __init__(self, path: Path) -> None:
        descriptor = open_in_place(path, waiting=False)
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            self._opened: BinaryIO | socket.socket = socket.socket(fileno=descriptor)
        else:
            self._opened = os.fdopen(descriptor, "wb", buffering=0)
        self._rest = b""
        """The unwritten part of a line that went through in part; it goes before the next one."""

    def append(self, line: bytes) -> None:
        """Write `line`; raises `OSError` where it is lost."""
        before = len(self._rest)
        try:
            sent = self._send(self._rest + line)
        except BrokenPipeError:
            self._rest = b""  # the next reader wants whole lines
            raise
        self._rest = (self._rest + line if sent > before else self._rest)[sent:]
        if sent <= before:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def close(self) -> None:
        self._opened.close()

    def _send(self, data: bytes) -> int:
        if isinstance(self._opened, socket.socket):
            return self._opened.send(data, socket.MSG_DONTWAIT)
        return self._opened.write(data) or 0
