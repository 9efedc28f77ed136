"""Which replicas of engines may be sent something: not lost, not failing, and not asked to wait."""

from collections.abc import Sequence

from gearshift.clock import NEVER_NS
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.routing.rate_limits import RateLimits
from gearshift.runtime.faults.ejections import Ejections


class Availability:
    """`closed` tells which replicas take nothing now.

    Where all replicas of the plan are lost or failing, those that fail are tried all the same.
    """

    def __init__(self, tables: EngineTables, limits: RateLimits | None = None) -> None:
        self._begin: list[int] = tables.replica_begin.tolist()
        replica_model: list[int] = tables.replica_model.tolist()
        self._all = range(len(replica_model))
        self.is_lost = [False] * len(replica_model)
        devices: list[int] = tables.device.tolist()
        alike = [(model, devices.count(device)) for model, device in zip(replica_model, devices, strict=True)]
        self.ejections = Ejections(replica_model, alike=[alike.index(one) for one in alike])
        self.limits = limits or RateLimits(len(self._begin) - 1)
        self.cool_until_ns = [0] * len(replica_model)
        self.closed = [False] * len(replica_model)

    # Events --------------------------------------------------------------------------------------

    def lost(self, replica: int, now_ns: int) -> None:
        self.is_lost[replica] = True
        self.look(now_ns)

    def found(self, replica: int, now_ns: int, *, restarted: bool = False) -> None:
        self.is_lost[replica] = False
        if restarted:
            self.ejections.restarted(replica)
        self.look(now_ns)

    def sent(self, replica: int, now_ns: int) -> None:
        self.ejections.sent(replica)
        if self.ejections.is_out[replica]:
            self.look(now_ns)

    def answered(self, replica: int, now_ns: int) -> None:
        was_out = self.ejections.is_out[replica]
        self.ejections.succeeded(replica, now_ns)
        if was_out:
            self.look(now_ns)

    def failed(self, replica: int, now_ns: int) -> None:
        self.ejections.failed(replica, now_ns)
        self.look(now_ns)

    def left(self, replica: int, now_ns: int) -> None:
        """A try ended that tells nothing of the replica."""
        was_out = self.ejections.is_out[replica]
        self.ejections.left(replica)
        if was_out:
            self.look(now_ns)

    def limited(self, replica: int, until_ns: int, now_ns: int) -> None:
        """The replica asked to be sent nothing until then."""
        self.ejections.left(replica)
        self.cool_until_ns[replica] = max(self.cool_until_ns[replica], until_ns)
        self.look(now_ns)

    def look(self, now_ns: int) -> None:
        """Find out anew which replicas take something now."""
        self.ejections.look(now_ns)
        out = self._out()
        self.closed = [self.is_lost[r] or out[r] or now_ns < self.cool_until_ns[r] for r in self._all]

    # Questions -----------------------------------------------------------------------------------

    def opens_ns(self, model: int, failed: int) -> int:
        """When one of the replicas without a bit in `failed` takes something; `NEVER_NS` where none may answer."""
        out, due_ns = self._out(), NEVER_NS
        for r in self._of(model):
            if not (self.is_lost[r] or out[r] or (failed >> r) & 1):
                due_ns = min(due_ns, self.cool_until_ns[r])
        return max(due_ns, self.limits.opens_ns(model))

    def closed_to(self, failed: int) -> Sequence[bool]:
        """As `closed`, with those that have a bit in `failed`."""
        if failed == 0:
            return self.closed
        return [closed or (failed >> r) & 1 == 1 for r, closed in enumerate(self.closed)]

    def on_trial(self, model: int, failed: int) -> int:
        """A replica whose pause is over, and which one request is to try; -1 where there is none.

        Nobody else might: a replica with less to do, or an earlier one, would have every request of a quiet hour.
        """
        for r in self._of(model):
            if self.ejections.is_failing(r) and not (self.closed[r] or (failed >> r) & 1):
                return r
        return -1

    def answers(self, model: int) -> bool:
        """Whether a replica of the model is there and does not fail."""
        return any(not (self.is_lost[r] or self.ejections.is_failing(r)) for r in self._of(model))

    def _of(self, model: int) -> range:
        return range(self._begin[model], self._begin[model + 1])

    def _out(self) -> list[bool]:
        out = self.ejections.is_out
        if all(lost or gone for lost, gone in zip(self.is_lost, out, strict=True)):
            return [False] * len(out)
        return out
