"""Server-sent events as their bytes arrive, of which endpoints stream their answers."""

LARGEST_EVENT_BYTES = 4 << 20


class EventTooLarge(Exception):
    """One event has more than `LARGEST_EVENT_BYTES`."""


class ServerSentEvents:
    """Splits bytes into events; keeps the part of one that has not wholly arrived.

    Of an event only its data counts (WHATWG HTML, section 9.2.6). Bytes are never decoded, so that
    a character may be split over parts.
    """

    __slots__ = ("_data", "_rest")

    def __init__(self) -> None:
        self._rest, self._data = b"", b""

    def feed(self, part: bytes) -> list[bytes]:
        """The data of each event that `part` completes; raises `EventTooLarge`."""
        text = self._rest + part if self._rest else part
        end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, len(text) - 1)) + 1  # the last CR may be half of a line end
        self._rest = text[end:]
        if len(self._rest) + len(self._data) > LARGEST_EVENT_BYTES:
            raise EventTooLarge
        events = []
        for line in text[:end].splitlines():
            if line[:5] == b"data:":
                value = line[6:] if line[5:6] == b" " else line[5:]
                self._data = self._data + b"\n" + value if self._data else value
            elif not line and self._data:
                events.append(self._data)
                self._data = b""
        return events
