"""Which replicas are out of service because they fail, and how many retries are left: engines, endpoints, workers."""

from collections.abc import Callable, Sequence

from gearshift.clock import NS_PER_S
from gearshift.policies.slowdown import learnt
from gearshift.policies.watch.ejection import SLOW_FACTOR, WINDOW_S, is_failing, may_retry, pause_ns, share_when_slow

OnChange = Callable[[int, bool], None]
"""Called with a replica, and whether it is failing now."""


class Recent:
    """Two sums over the last `WINDOW_S`, in steps of a second: how many there were, and how many of them counted."""

    __slots__ = ("_all", "_counted", "_second")

    def __init__(self) -> None:
        self._all, self._counted, self._second = [0] * WINDOW_S, [0] * WINDOW_S, 0

    def add(self, now_ns: int, *, all: int = 0, counted: int = 0) -> None:
        place = self._at(now_ns)
        self._all[place] += all
        self._counted[place] += counted

    def sums(self, now_ns: int) -> tuple[int, int]:
        self._at(now_ns)
        return sum(self._all), sum(self._counted)

    def clear(self) -> None:
        self._all, self._counted = [0] * WINDOW_S, [0] * WINDOW_S

    def _at(self, now_ns: int) -> int:
        """The place of this second; those of the seconds since the last call begin at 0."""
        second = now_ns // NS_PER_S
        for passed in range(max(self._second + 1, second - WINDOW_S + 1), second + 1):
            self._all[passed % WINDOW_S] = self._counted[passed % WINDOW_S] = 0
        self._second = max(self._second, second)
        return self._second % WINDOW_S


class RetryBudget:
    """Counts requests and retries; at least `least` retries are always allowed in `WINDOW_S`."""

    def __init__(self, least: int = 0) -> None:
        self._recent, self._least = Recent(), least

    def arrived(self, now_ns: int, requests: int = 1) -> None:
        self._recent.add(now_ns, all=requests)

    def take(self, now_ns: int) -> bool:
        """Whether a failed try may be repeated, which then counts."""
        requests, retries = self._recent.sums(now_ns)
        if not may_retry(retries, requests, self._least):
            return False
        self._recent.add(now_ns, counted=1)
        return True


class _Replica:
    __slots__ = ("back_ns", "ejected", "in_a_row", "pace", "pause_ns", "probing", "recent", "until_ns")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.recent = Recent()
        self.in_a_row = self.pause_ns = self.until_ns = self.back_ns = 0
        self.ejected = self.probing = False
        self.pace = 0.0
        """Its tries' times over profiled ones; 0 before the first."""


class Ejections:
    """Takes replicas that fail out of service, and lets one request try each when its pause is over.

    `groups` has the number of each replica's model: replicas of one stand for each other. Those of
    one number in `alike` should be equally fast. `is_out` tells which take nothing now; whoever
    chooses replicas reports what became of each try.
    """

    def __init__(
        self, groups: Sequence[int], changed: OnChange | None = None, *, alike: Sequence[int] | None = None
    ) -> None:
        self._groups, self.changed = groups, changed
        self._replicas = [_Replica() for _ in groups]
        self._alike = list(zip(groups if alike is None else alike, self._replicas, strict=True))
        self.is_out = [False] * len(groups)

    def is_failing(self, replica: int) -> bool:
        """Whether it failed until it was taken out, and has answered nothing since."""
        return self._replicas[replica].ejected

    def sent(self, replica: int) -> bool:
        """A try began; whether it shows if a replica that was taken out is back."""
        one = self._replicas[replica]
        if one.ejected:
            self.is_out[replica] = one.probing = True
        return one.ejected

    def succeeded(self, replica: int, now_ns: int) -> None:
        one = self._replicas[replica]
        one.in_a_row = 0
        one.recent.add(now_ns, all=1)
        if one.probing:  # else it is in service, or the try began before it was taken out
            one.recent.clear()
            one.back_ns = now_ns
            one.probing = self.is_out[replica] = False
            self._set_failing(replica, False)

    def failed(self, replica: int, now_ns: int) -> None:
        one = self._replicas[replica]
        one.in_a_row += 1
        one.recent.add(now_ns, all=1, counted=1)
        if one.ejected and not one.probing:  # a try that began before it was taken out
            return
        ended, failed = one.recent.sums(now_ns)
        if one.probing or is_failing(one.in_a_row, ended, failed, self._others_in(replica)):
            one.pause_ns = pause_ns(one.pause_ns, 0 if one.probing else now_ns - one.back_ns)
            one.until_ns = now_ns + one.pause_ns
            one.probing = False
            self.is_out[replica] = True
            self._set_failing(replica, True)

    def left(self, replica: int) -> None:
        """A try ended and tells nothing of the replica, such as one whose client left."""
        one = self._replicas[replica]
        if one.probing:
            one.probing = self.is_out[replica] = False

    def look(self, now_ns: int) -> bool:
        """Let those whose pause is over be tried; whether there are any."""
        due = False
        for replica, one in enumerate(self._replicas):
            if one.ejected and not one.probing and self.is_out[replica] and now_ns >= one.until_ns:
                self.is_out[replica], due = False, True
        return due

    def restarted(self, replica: int) -> None:
        """Another process stands for the replica: what the last one did tells nothing of it."""
        self._set_failing(replica, False)
        self._replicas[replica].begin()
        self.is_out[replica] = False

    # Slow ones -----------------------------------------------------------------------------------

    def took(self, replica: int, took_ns: int, expected_ns: int) -> None:
        """A try that answered took so long, where so much was expected."""
        one = self._replicas[replica]
        one.pace = learnt(one.pace, took_ns, expected_ns) if one.pace else took_ns / max(1, expected_ns)

    def shares(self, shares: Sequence[int]) -> Sequence[int]:
        """Load shares (gears x replicas,), less for replicas that are slow beside others like them."""
        best: dict[int, float] = {}
        for group, one in self._alike:
            if one.pace > 0:
                best[group] = min(one.pace, best.get(group, one.pace))
        if not any(one.pace > SLOW_FACTOR * best.get(group, one.pace) for group, one in self._alike):
            return shares
        all = len(self._replicas)
        paces = [(one.pace, best.get(group, one.pace)) for group, one in self._alike]
        return [share_when_slow(share, *paces[place % all]) for place, share in enumerate(shares)]

    def _others_in(self, replica: int) -> bool:
        group = self._groups[replica]
        return any(
            other != replica and self._groups[other] == group and not one.ejected
            for other, one in enumerate(self._replicas)
        )

    def _set_failing(self, replica: int, failing: bool) -> None:
        one = self._replicas[replica]
        if one.ejected != failing:
            one.ejected = failing
            if self.changed is not None:
                self.changed(replica, failing)
