"""Server-sent events as their bytes arrive, of which endpoints stream their answers."""

LARGEST_EVENT_BYTES = 4 << 20


class EventTooLarge(Exception):
    """More than `LARGEST_EVENT_BYTES` came without the end of an event."""

    def __init__(self) -> None:
        super().__init__(f"more than {LARGEST_EVENT_BYTES} bytes came without the end of an event")


class ServerSentEvents:
    """Splits bytes into events; keeps the part of one that has not wholly arrived.

    Of an event only its data counts (WHATWG HTML, section 9.2.6). Bytes are never decoded, so that
    a character may be split over parts. Each byte is looked at and copied a fixed number of times,
    however small the parts and lines are.
    """

    __slots__ = ("_ended_in_cr", "_lines", "_rest", "_waiting_bytes")

    def __init__(self) -> None:
        self._rest = bytearray()
        """The line that has not ended."""
        self._lines: list[bytes] = []
        """The data of the event that has not ended."""
        self._waiting_bytes = 0
        """Bytes since the last event ended, comments among them."""
        self._ended_in_cr = False
        """A line end of two characters may be split over two parts."""

    def feed(self, part: bytes) -> list[bytes]:
        """The data of each event that `part` completes; raises `EventTooLarge`."""
        if self._ended_in_cr and part[:1] == b"\n":
            part, self._ended_in_cr = part[1:], False
        if not part:
            return []
        self._ended_in_cr = part[-1:] == b"\r"
        end = max(part.rfind(b"\n"), part.rfind(b"\r")) + 1
        events = self._events(part[:end]) if end else []
        if end < len(part):
            self._rest.extend(part[end:] if end else part)
        if events:
            self._waiting_bytes = len(self._rest) + sum(map(len, self._lines))
        else:
            self._waiting_bytes += len(part)
        if self._waiting_bytes > LARGEST_EVENT_BYTES:
            raise EventTooLarge
        return events

    def _events(self, text: bytes) -> list[bytes]:
        """Those that end in whole lines."""
        lines = text.splitlines()
        if self._rest:
            self._rest.extend(lines[0])
            lines[0] = bytes(self._rest)
            self._rest.clear()
        events = []
        for line in lines:
            if line[:5] == b"data:":
                value = line[6:] if line[5:6] == b" " else line[5:]
                if value or self._lines:
                    self._lines.append(value)
            elif not line and self._lines:
                events.append(self._lines[0] if len(self._lines) == 1 else b"\n".join(self._lines))
                self._lines.clear()
        return events
