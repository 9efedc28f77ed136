"""Bounds of a server: on memory, by default derived from its machine, and on one request."""

import msgspec

from gearshift.serving.door.machine_memory import limit_bytes
from gearshift.serving.door.settings import ServerSettings
from gearshift.v2.tensors import Limits

LEAST_BYTES, MOST_BYTES = 1 << 20, 256 << 20
PARSING, WAITING = 6, 2
"""Worst memory of a body as a multiple of its held bytes: while parsed and answered, and while
waiting."""


def most_waiting_bytes(settings: ServerSettings) -> int:
    """Return the bytes of unanswered requests beyond which requests are refused.

    By default the memory has room to parse one body of this size while as many bytes wait.
    """
    if settings.most_waiting_bytes is not None:
        return settings.most_waiting_bytes
    limit = limit_bytes()
    if limit is None:
        return MOST_BYTES
    return min(max(LEAST_BYTES, limit // (PARSING + WAITING)), MOST_BYTES)


def with_memory_bounds(settings: ServerSettings) -> ServerSettings:
    """Return settings with bounds for this machine; one body is at most as large as all."""
    most = most_waiting_bytes(settings)
    largest = min(settings.largest_body_bytes, most)
    return msgspec.structs.replace(settings, most_waiting_bytes=most, largest_body_bytes=largest)


def limits_of(settings: ServerSettings) -> Limits:
    return Limits(
        most_rows=settings.most_rows,
        most_tensors=settings.most_tensors,
        most_elements=settings.most_elements,
        most_text_bytes=settings.largest_body_bytes * 3 // 4,
    )
