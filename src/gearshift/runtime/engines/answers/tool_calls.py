"""Which call of a tool each part of an answer belongs to: endpoints number them in several ways."""

from dataclasses import dataclass


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    end: str
    """The last character of its arguments; empty where it has none yet."""


class Places:
    """Finds the call that a part goes on with, by its id, else by its index, else by its order.

    Only a part with a name begins a call. It does so where its id is new; where it names another tool
    than the call at its index, which has arguments already; or where whole arguments follow on whole
    arguments. So calls that all have index 0 stay apart (Gemini, some versions of vLLM and SGLang),
    and parts whose ids are blank, repeated or new each time stay together (DashScope, LM Studio, vLLM).
    """

    __slots__ = ("_by_id", "_by_index", "_calls")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_id: dict[str, int] = {}
        self._by_index: dict[int, int] = {}

    def of(self, id: object, index: object, name: str, arguments: str, *, order: int, among: int) -> int:
        """The place, from 0, of the call that a part belongs to; it is at `order` of the `among` parts of its chunk."""
        own = str(id) if isinstance(id, (str, int)) and id != "" else ""
        number = index if isinstance(index, int) else None
        place = self._by_id.get(own) if own else None
        if place is None:
            place = self._in_order(order, among) if number is None else self._by_index.get(number)
            if place is not None and _begins_another(self._calls[place], own, name, arguments):
                place = None
        if place is None:
            place = len(self._calls)
            self._calls.append(_Call(own, "", ""))
        call = self._calls[place]
        call.id = call.id or own
        call.name = name_after(call.name, name, has_arguments=bool(call.end))
        call.end = arguments[-1:] or call.end
        if own:
            self._by_id[own] = place
        if number is not None:
            self._by_index[number] = place
        return place

    def _in_order(self, order: int, among: int) -> int | None:
        place = order if among > 1 else len(self._calls) - 1
        return place if 0 <= place < len(self._calls) else None


def name_after(before: str, part: str, *, has_arguments: bool) -> str:
    """The name of a call after another part: most endpoints give it once, some again in each part."""
    if not part or has_arguments or part == before:
        return before or part
    return part if part.startswith(before) else before + part


def _begins_another(call: _Call, id: str, name: str, arguments: str) -> bool:
    if not name:
        return False
    if id and call.id:  # the ids differ, as it was not found by its own
        return True
    if not (call.end and call.name):
        return False
    return name != call.name or (call.end == "}" and arguments[:1] == "{")
