"""Bounds of a server that follow from its machine where its settings do not give them."""

from gearshift.serving.settings import ServerSettings

MOST_BYTES = 256 << 20


def most_waiting_bytes(settings: ServerSettings) -> int:
    """Bytes of unanswered requests beyond which requests are refused."""
    return MOST_BYTES if settings.most_waiting_bytes is None else settings.most_waiting_bytes
