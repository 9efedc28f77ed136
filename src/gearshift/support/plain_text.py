"""Escape text from outside so that a terminal shows it and does not obey it."""

import re

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters (C0 and C1), line breaks, and those that change the writing direction."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def plain(text: str, *, keep: str = "") -> str:
    """Replace each character that a terminal would obey by an escape as in JSON."""
    return _OBEYED.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return _SHORT.get(character) or f"\\u{ord(character):04x}"
