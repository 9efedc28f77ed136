"""The words of an endpoint about itself, by which one shows that was replaced under the same address."""

from typing import Any

import msgspec

FIXED = "root", "parent", "max_model_len", "owned_by", "meta"
"""Fields of an entry in the list of models that tell one model from another; others change by themselves."""
MOST_KNOWN = 16
"""Endpoints behind one address that are told apart; more are too many to be told."""
LONGEST_TEXT = 200


class Identity:
    """Notes what an endpoint says; `told` gives a sentence when that is new, and was something else before.

    An endpoint that stands for several servers may say this and that: each is told once.
    """

    __slots__ = ("_known", "_latest")

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}
        self._latest: dict[str, str] = {}

    def told(self, what: str, value: str) -> str:
        """Empty where nothing is new; `what` names the part that `value` is of."""
        known = self._known.setdefault(what, set())
        if not value or value in known or len(known) >= MOST_KNOWN:
            return ""
        before = self._latest.get(what)
        known.add(value)
        self._latest[what] = value
        return "" if before is None else f"{what} is {value[:LONGEST_TEXT]!r}, and was {before[:LONGEST_TEXT]!r}"


def listed_as(body: bytes, name: str) -> str:
    """The entry of model `name` in a list of models, as far as it stays the same; empty where there is none."""
    try:
        models = msgspec.json.decode(body)["data"]
        entry: dict[str, Any] = next(one for one in models if one["id"] == name)
        kept = {field: entry[field] for field in FIXED if entry.get(field) is not None}
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError, AttributeError, StopIteration):
        return ""
    return msgspec.json.encode(kept, order="sorted").decode()
