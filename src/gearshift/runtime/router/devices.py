"""The devices as the router sees them: whether busy, until when, and when to look again."""

from gearshift.clock import NEVER_NS
from gearshift.plans.plan_tables import PlanTables, rows_of


class Devices:
    """Busy devices; `spans` are a replica's devices, `on_device` a device's replicas."""

    def __init__(self, tables: PlanTables) -> None:
        self.on_device = rows_of(tables.on_device.tolist(), tables.on_device_begin.tolist())
        self.spans = rows_of(tables.spans.tolist(), tables.spans_begin.tolist())
        self.busy = [False] * len(tables.device_ids)
        self.wake_ns = [NEVER_NS] * len(tables.device_ids)
        self._free_ns = [0] * len(tables.device_ids)

    def hold(self, replica: int, until_ns: int) -> None:
        for device in self.spans[replica]:
            self.busy[device] = True
            self.wake_ns[device] = NEVER_NS
            self._free_ns[device] = until_ns

    def free(self, replica: int) -> None:
        for device in self.spans[replica]:
            self.busy[device] = False

    def any_busy(self, replica: int) -> bool:
        for device in self.spans[replica]:  # called too often for `any` and its generator
            if self.busy[device]:
                return True
        return False

    def free_ns(self, replica: int, now_ns: int) -> int:
        return max([now_ns, *(self._free_ns[device] for device in self.spans[replica] if self.busy[device])])

    def wake_by(self, device: int, at_ns: int) -> None:
        self.wake_ns[device] = min(self.wake_ns[device], at_ns)

    def next_wake_ns(self) -> int:
        return min(self.wake_ns)

    def due(self, now_ns: int) -> list[tuple[int, int]]:
        """Devices whose time to look again has come, with that time."""
        return [(at, device) for device, at in enumerate(self.wake_ns) if at <= now_ns]
