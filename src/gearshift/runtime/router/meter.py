"""The arrivals that the router meters: those since the last tick, and the last few."""

from collections import deque

from gearshift.policies.load import METER_KEEPS_ARRIVALS, METER_WINDOW_NS, arrival_rate_qps


class Meter:
    def __init__(self) -> None:
        self._since_tick = 0
        self._ticked_ns = 0
        self._last: deque[int] = deque(maxlen=METER_KEEPS_ARRIVALS)

    def arrived(self, now_ns: int) -> None:
        self._since_tick += 1
        self._last.append(now_ns)

    def tick(self, now_ns: int) -> float:
        kept = self._last
        rate_qps = arrival_rate_qps(
            self._since_tick,
            max(METER_WINDOW_NS, now_ns - self._ticked_ns),
            len(kept),
            kept[0] if len(kept) == METER_KEEPS_ARRIVALS else 0,
            now_ns,
        )
        self._since_tick, self._ticked_ns = 0, now_ns
        return rate_qps

    def copy(self) -> "Meter":
        other = Meter()
        other._since_tick, other._ticked_ns, other._last = self._since_tick, self._ticked_ns, self._last.copy()
        return other

    @property
    def counted(self) -> tuple[int, int]:
        return self._since_tick, len(self._last)
