"""The words of endpoints without the keys that they were asked with: some repeat a key in an error or a log."""

import base64
from collections.abc import Iterable, Iterator
from urllib.parse import quote

MASK = b"***"
SHORTEST_SECRET = 8
"""Characters of a key that is hidden: shorter ones, such as `none`, are no secrets, and stand in ordinary text."""


class Mask:
    """Puts `***` in the place of each secret, as it is or as it stands in JSON, a URL, or base64 text.

    `query`, that of a URL, is hidden however short it is. A text without a secret costs a few
    searches and no copy. A secret whose parts come in different texts is not found.
    """

    __slots__ = ("_forms",)

    def __init__(self, *secrets: str | None, query: str = "") -> None:
        found = {form for one in secrets if one is not None for form in _forms(one)}
        found |= {query.encode()} - {b""}
        self._forms = sorted(found, key=len, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def __call__(self, data: bytes) -> bytes:
        for form in self._forms:
            if form in data:
                data = data.replace(form, MASK)
        return data

    def text(self, text: str) -> str:
        """As for bytes; what is no text stays as it is."""
        return self(text.encode(errors="surrogateescape")).decode(errors="surrogateescape") if self._forms else text


def _forms(secret: str) -> Iterator[bytes]:
    """The secret as it may stand in a text; none where it is too short to be one."""
    if len(secret) < SHORTEST_SECRET:
        return
    plain = secret.encode(errors="surrogateescape")
    in_json = plain.replace(b"\\", rb"\\").replace(b'"', rb"\"")
    yield from (plain, in_json, in_json.replace(b"/", rb"\/"))
    yield quote(plain, safe="").encode()
    yield from _in_base64(plain)


def _in_base64(plain: bytes) -> Iterable[bytes]:
    """Its characters in the base64 text of anything that contains it, but for those that a neighbour shares."""
    for before in range(3):
        coded = base64.b64encode(bytes(before) + plain)
        begin, end = -(-8 * before // 6), 8 * (before + len(plain)) // 6
        own = coded[begin:end]
        yield from (own, own.replace(b"+", b"-").replace(b"/", b"_"))
