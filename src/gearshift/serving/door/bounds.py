"""Bounds of a server that follow from its machine where its settings do not give them."""

import msgspec

from gearshift.serving.door.machine_memory import limit_bytes
from gearshift.serving.door.settings import ServerSettings

LEAST_BYTES, MOST_BYTES = 1 << 20, 256 << 20
PARSING, WAITING = 6, 2
"""Worst memory of a body as a multiple of the bytes held for it: while it is read and answered, and while it waits."""


def most_waiting_bytes(settings: ServerSettings) -> int:
    """Bytes of unanswered requests beyond which requests are refused.

    By default the memory has room for one body of this size that is parsed, and for as many bytes that wait.
    """
    if settings.most_waiting_bytes is not None:
        return settings.most_waiting_bytes
    limit = limit_bytes()
    if limit is None:
        return MOST_BYTES
    return min(max(LEAST_BYTES, limit // (PARSING + WAITING)), MOST_BYTES)


def with_memory_bounds(settings: ServerSettings) -> ServerSettings:
    """The settings with bounds for this machine; no body is larger than all bodies together may be."""
    most = most_waiting_bytes(settings)
    largest = min(settings.largest_body_bytes, most)
    return msgspec.structs.replace(settings, most_waiting_bytes=most, largest_body_bytes=largest)
