"""The devices as the router sees them: whether busy, until when, when to look again, and how slow they are."""

from gearshift.clock import NEVER_NS
from gearshift.plans.plan_tables import PlanTables, rows_of
from gearshift.policies.slowdown import learnt, slowdown_of_load


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

    def due(self, now_ns: int) -> list[tuple[int, int]]:
        """Devices whose time to look again has come, with that time."""
        return [(at, device) for device, at in enumerate(self.wake_ns) if at <= now_ns]


class Slowdown:
    """Observed over expected run times, of each kind of alike replicas at the first of them.

    Learns from batches that end, and only if it is `on`; else all is as profiled. `of_load` is what
    load is multiplied by, by the work of the window before the last tick.
    """

    def __init__(self, tables: PlanTables, *, on: bool) -> None:
        self.on = on
        self.alike: list[int] = tables.alike.tolist()
        self.ratios = [1.0] * len(self.alike)
        self.of_load = 1.0
        self._work_ns = [0] * len(self.alike)
        self._expected_ns = [0] * len(self.alike)
        self._keys = [(tables.model_of(r), *tables.devices_of(r)) for r in range(len(self.alike))]

    def of(self, replica: int) -> float:
        return self.ratios[self.alike[replica]]

    def started(self, replica: int, expected_ns: int) -> None:
        self._expected_ns[replica] = expected_ns

    def ended(self, replica: int, took_ns: int) -> int:
        """Learn from a batch; return the first of the replicas that this is about."""
        first, expected_ns = self.alike[replica], self._expected_ns[replica]
        self.ratios[first] = learnt(self.ratios[first], took_ns, expected_ns)
        self._work_ns[first] += expected_ns
        return first

    def ticked(self) -> None:
        if self.on:
            self.of_load = slowdown_of_load(self.ratios, self._work_ns, self.of_load)
            self._work_ns = [0] * len(self._work_ns)

    def take_over_from(self, before: "Slowdown") -> None:
        """Go on from what was learnt of the same models on the same devices."""
        if self.on and before.on:
            found = {key: before.of(replica) for replica, key in enumerate(before._keys)}
            for first, key in zip(self.alike, self._keys, strict=True):
                self.ratios[first] = found.get(key, self.ratios[first])
            self.of_load = before.of_load
