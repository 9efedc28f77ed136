"""The settings of replicas in the gear in force."""

from gearshift.plans.plan_tables import PlanTables


class GearSettings:
    """Lists by replica, looked up once per shift."""

    def __init__(self, tables: PlanTables) -> None:
        self._replicas = len(tables.replica_ids)
        self._minimum_queue_lengths: list[int] = tables.minimum_queue_length.tolist()
        self._largest_batch_sizes: list[int] = tables.largest_batch_size.tolist()
        self._longest_waits_ns: list[int] = tables.longest_wait_ns.tolist()
        self.shift(0)

    def shift(self, gear: int) -> None:
        here = slice(gear * self._replicas, (gear + 1) * self._replicas)
        self.minimum_queue_length = self._minimum_queue_lengths[here]
        self.largest_batch_size = self._largest_batch_sizes[here]
        self.longest_wait_ns = self._longest_waits_ns[here]
