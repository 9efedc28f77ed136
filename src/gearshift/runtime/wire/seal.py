"""Tags that prove that a frame is whole, in order and of this session; only the session's key can make them."""

import hmac
from collections.abc import Iterable

TAG_BYTES = 32

Buffer = bytes | memoryview


class Seal:
    """The tags of one direction of a connection, one frame after another: HMAC-SHA256 of a frame and its number."""

    def __init__(self, key: bytes) -> None:
        self._key, self._frames = key, 0

    def tag(self, pieces: Iterable[Buffer]) -> bytes:
        """The tag of the next frame, which is `pieces`."""
        code = hmac.new(self._key, self._frames.to_bytes(8, "little"), "sha256")
        for piece in pieces:
            code.update(piece)
        self._frames += 1
        return code.digest()

    def fits(self, pieces: Iterable[Buffer], tag: Buffer) -> bool:
        """Whether `tag` is that of the next frame."""
        return hmac.compare_digest(self.tag(pieces), tag)
