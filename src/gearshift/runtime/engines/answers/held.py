"""Chunks that are held until a stage has decided, and the room that there is for them."""

from gearshift.runtime.service.room import HeldBytes, has_room

CHUNK_BYTES = 64
"""Memory of a held chunk beside its bytes."""
LARGEST_HELD_BYTES = 8 << 20
"""Bound on the chunks of one answer that are held."""
MOST_HELD_CHUNKS = 1 << 15
"""They are shown at once when the stage has decided."""


class Held:
    """Chunks that may not be shown yet; their bytes count in `memory`.

    All that are held together have as much room again as the bound that new requests keep to.
    """

    __slots__ = ("_bytes", "_chunks", "_memory")

    def __init__(self, memory: HeldBytes) -> None:
        self._memory, self._bytes = memory, 0
        self._chunks: list[bytes] = []

    def add(self, data: bytes) -> bool:
        """False where it would be too much."""
        size_bytes = len(data) + CHUNK_BYTES
        if len(self._chunks) >= MOST_HELD_CHUNKS or self._bytes + size_bytes > LARGEST_HELD_BYTES:
            return False
        if not has_room(self._memory, size_bytes):
            return False
        self._chunks.append(data)
        self._bytes += size_bytes
        self._memory.held_bytes += size_bytes
        return True

    def take(self) -> list[bytes]:
        self._memory.held_bytes -= self._bytes
        chunks, self._chunks, self._bytes = self._chunks, [], 0
        return chunks


class NoRoom(Exception):
    """An answer has become larger than may be held; the text is for the client."""
