"""Tags that prove that a frame is complete, in order and of this session, by a secret key."""

import hmac
from collections.abc import Iterable

TAG_BYTES = 32

Buffer = bytes | memoryview


class Seal:
    """Tags for one direction of a connection: HMAC-SHA256 of each frame and its number."""

    def __init__(self, key: bytes) -> None:
        self._key, self._frames = key, 0

    def tag(self, pieces: Iterable[Buffer]) -> bytes:
        code = hmac.new(self._key, self._frames.to_bytes(8, "little"), "sha256")
        for piece in pieces:
            code.update(piece)
        self._frames += 1
        return code.digest()

    def fits(self, pieces: Iterable[Buffer], tag: Buffer) -> bool:
        """Whether `tag` is the next frame's; counts the frame."""
        return hmac.compare_digest(self.tag(pieces), tag)
