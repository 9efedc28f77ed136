"""The router's decision log."""

from collections.abc import Callable

from gearshift.decisions import Decision, LogRow

TakeRow = Callable[[LogRow], None]


class DecisionLog:
    """Hands each decision as a row to `take`; without it none is written."""

    def __init__(self, take: TakeRow | None) -> None:
        self._take = take
        self.wanted = take is not None

    def write(self, now_ns: int, kind: Decision, a: int, b: int, c: int) -> None:
        if self._take is not None:
            self._take((now_ns, kind.value, a, b, c))
