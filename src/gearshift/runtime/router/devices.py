"""The devices as the router holds them: which are busy and until when, and when each is to be looked at again."""

from gearshift.clock import NEVER_NS
from gearshift.plans.plan_tables import PlanTables, rows_of


class Devices:
    """Busy devices, by the batches of their replicas; `spans` are a replica's devices, `on_device` the other way."""

    def __init__(self, tables: PlanTables) -> None:
        self.on_device = rows_of(tables.on_device.tolist(), tables.on_device_begin.tolist())
        self.spans = rows_of(tables.spans.tolist(), tables.spans_begin.tolist())
        self.busy = [False] * len(tables.device_ids)
        self.wake_ns = [NEVER_NS] * len(tables.device_ids)
        self._free_ns = [0] * len(tables.device_ids)

    def hold(self, replica: int, until_ns: int) -> None:
        """A batch of the replica starts, to end at about `until_ns`."""
        for device in self.spans[replica]:
            self.busy[device] = True
            self.wake_ns[device] = NEVER_NS
            self._free_ns[device] = until_ns

    def free(self, replica: int) -> None:
        """The batch of the replica is over."""
        for device in self.spans[replica]:
            self.busy[device] = False

    def any_busy(self, replica: int) -> bool:
        """Whether any device of the replica is busy."""
        for device in self.spans[replica]:  # asked too often for `any` and its generator
            if self.busy[device]:
                return True
        return False

    def free_ns(self, replica: int, now_ns: int) -> int:
        """When all devices of the replica should be free."""
        return max([now_ns, *(self._free_ns[device] for device in self.spans[replica] if self.busy[device])])

    def wake_by(self, device: int, at_ns: int) -> None:
        """Look at `device` again at `at_ns`, or before."""
        self.wake_ns[device] = min(self.wake_ns[device], at_ns)

    def next_wake_ns(self) -> int:
        """When a device is to be looked at next, or `NEVER_NS`."""
        return min(self.wake_ns)

    def due(self, now_ns: int) -> list[tuple[int, int]]:
        """When each device that is due now or was before was to be looked at, and which."""
        return [(at, device) for device, at in enumerate(self.wake_ns) if at <= now_ns]
