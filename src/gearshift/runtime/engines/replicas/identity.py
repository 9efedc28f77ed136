"""The words of an endpoint about itself, by which one shows that was replaced under the same address."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

FIXED = "root", "parent", "max_model_len", "owned_by", "meta"
"""Fields of an entry in the list of models that tell one model from another; others change by themselves."""
MOST_KNOWN = 16
"""Endpoints behind one address that are told apart; more are too many to be told."""
LONGEST_TEXT = 200
MOST_LISTED = 5
"""Names of a list of models that are told."""
LISTED, NAMED, FINGERPRINT = "its entry in the list of models", "the model that it names", "its fingerprint"


class Identity:
    """Notes what an endpoint says; `told` gives a sentence when that is new, and was something else before.

    An endpoint that stands for several servers may say this and that: each is told once. `name` is
    the model that it is asked for, `before` what was said when it was profiled, at any of its addresses.
    """

    __slots__ = ("_known", "_latest", "_most_known", "_name")

    def __init__(self, name: str = "", before: Mapping[str, Sequence[str]] | None = None) -> None:
        self._name = name
        said = {what: values for what, values in {**(before or {}), NAMED: [name] if name else []}.items() if values}
        self._latest = {what: values[0] for what, values in said.items()}
        self._known = {what: set(values) for what, values in said.items()}
        self._most_known = MOST_KNOWN + max((len(known) - 1 for known in self._known.values()), default=0)

    def told(self, what: str, value: str) -> str:
        """Empty where nothing is new; `what` names the part that `value` is of."""
        known = self._known.setdefault(what, set())
        if not value or value in known or len(known) >= self._most_known:
            return ""
        before = self._latest.get(what)
        known.add(value)
        self._latest[what] = value
        if what == NAMED and before == self._name and is_named(value, self._name):
            return ""
        return "" if before is None else f"{what} is {value[:LONGEST_TEXT]!r}, and was {before[:LONGEST_TEXT]!r}"


def noted(model: str, said: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The words of the model's endpoints about themselves as notes of a profile, other words for the same numbered."""
    values = dict[str, dict[str, None]]()
    for one in said:
        for what, value in one.items():
            values.setdefault(what, {})[value] = None
    return {_note(model, what, number): value for what, all in values.items() for number, value in enumerate(all)}


def said_before(model: str, notes: Mapping[str, str]) -> dict[str, list[str]]:
    """The words of the model's endpoints when it was profiled, those of the first one first."""
    found = dict[str, list[str]]()
    for what in (LISTED, FINGERPRINT):
        while value := notes.get(_note(model, what, len(found.get(what, ())))):
            found.setdefault(what, []).append(value)
    return found


def _note(model: str, what: str, number: int) -> str:
    return f"{model}: {what}" + (f", {number + 1}" if number else "")


def is_named(value: str, name: str) -> bool:
    """Whether an endpoint that is asked for model `name` may call it so, with a date or tag behind or a path before.

    So do OpenAI's (name-2026-01-01), Ollama's (name:latest) and Google's (models/name).
    """
    return value == name or value.startswith((f"{name}-", f"{name}:")) or value.endswith(f"/{name}")


def names_listed(body: bytes) -> list[str]:
    """The names in a list of models; empty where that is none."""
    try:
        return [one["id"] for one in msgspec.json.decode(body)["data"] if isinstance(one["id"], str)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        return []


def lacks(body: bytes, name: str) -> str:
    """Why a list of models is not that of an endpoint with model `name`; empty where it may be."""
    names = names_listed(body)
    if not names or any(is_named(one, name) for one in names):
        return ""
    told = ", ".join(repr(one[:LONGEST_TEXT]) for one in names[:MOST_LISTED])
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"it lists {told}{more}, and no model {name!r}"


def listed_as(body: bytes, name: str) -> str:
    """The entry of model `name` in a list of models, as far as it stays the same; empty where there is none."""
    try:
        models = msgspec.json.decode(body)["data"]
        entry: dict[str, Any] = next(one for one in models if one["id"] == name)
        kept = {field: entry[field] for field in FIXED if entry.get(field) is not None}
    except (
        msgspec.MsgspecError,
        UnicodeDecodeError,
        RecursionError,
        LookupError,
        TypeError,
        AttributeError,
        StopIteration,
    ):
        return ""
    return msgspec.json.encode(kept, order="sorted").decode()
