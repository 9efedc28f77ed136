"""Chooses among a node's implementations by the time that is left, where its gear allows several."""

from collections.abc import Sequence

from gearshift.clock import NEVER_NS
from gearshift.decisions import Decision
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.replanning import NO_CHOICE, best_choice, wait_ns
from gearshift.request import Request, Sample
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.decision_log import DecisionLog
from gearshift.runtime.router.devices import Devices
from gearshift.runtime.router.pipeline import GearSettings, Pipeline
from gearshift.runtime.router.queue import WaitingQueue


class Chooser:
    """The choices of all nodes, with their tables; it decides nothing where a gear allows only one."""

    def __init__(
        self,
        tables: PlanTables,
        pipeline_of: Sequence[Pipeline],
        rules: DeadlineRules,
        settings: GearSettings,
        queues: Sequence[WaitingQueue],
        devices: Devices,
        log: DecisionLog,
    ) -> None:
        self._pipeline_of, self._rules, self._settings, self._log = [*pipeline_of], rules, settings, log
        self._queues, self._devices = queues, devices
        self._most_stages = tables.most_stages
        self._first_row: list[int] = tables.first_row.tolist()
        self._begin: list[int] = tables.choice_begin.tolist()
        self._stage_models: list[int] = tables.stage_models.tolist()
        self._stage_count: list[int] = tables.stage_count.tolist()
        self._prefixes: list[int] = tables.prefixes.tolist()
        self._table_begin: list[int] = tables.table_begin.tolist()
        self._table_ns: list[int] = tables.table_ns.tolist()
        self._table_quality: list[float] = tables.table_quality.tolist()
        self._margin_ns: list[int] = tables.margin_ns.tolist()

    def chosen(self, sample: Sample, now_ns: int) -> int:
        """As `choice`, in the log if there were several."""
        choice = self.choice(sample.node, sample.request, sample.visited, now_ns)
        begin, end = self._allowed(sample.node)
        if end - begin > 1:
            place = -1 if choice == NO_CHOICE else choice - begin
            self._log.write(now_ns, Decision.CHOOSE, sample.sequence, sample.node, place)
        return choice

    def choice(self, node: int, request: Request, visited: int, now_ns: int) -> int:
        """The implementation for an item that has visited these models; `NO_CHOICE` where none goes on from there."""
        begin, end = self._allowed(node)
        if end - begin == 1:
            return begin
        pipeline = self._pipeline_of[node]
        stage = visited.bit_count()
        left_ns = min(self._rules.aimed_ns(request), request.answer_by_ns) - now_ns
        left_ns -= self._margin_ns[pipeline.tables.first_gear + pipeline.gear]
        waits_ns = []
        for choice in range(begin, end):
            goes_on = stage < self._stage_count[choice]
            model = self._stage_models[choice * self._most_stages + stage] if goes_on else -1
            waits_ns.append(self._wait_ns(pipeline.turns.sharing(model), now_ns) if goes_on else 0)
        return best_choice(
            begin,
            end,
            left_ns + self._visited_ns(visited),
            waits_ns,
            visited,
            stage,
            self._prefixes,
            self._most_stages,
            self._table_begin,
            self._table_ns,
            self._table_quality,
        )

    def _allowed(self, node: int) -> tuple[int, int]:
        row = self._first_row[node] + self._pipeline_of[node].gear
        return self._begin[row], self._begin[row + 1]

    def _wait_ns(self, replicas: Sequence[int], now_ns: int) -> int:
        """How long an item would wait for the first of `replicas` to get to it."""
        return min((self._wait_for_ns(replica, now_ns) for replica in replicas), default=NEVER_NS)

    def _wait_for_ns(self, replica: int, now_ns: int) -> int:
        longest_ns = 0
        for device in self._devices.spans[replica]:
            queued_ns = 0
            for other in self._devices.on_device[device]:
                queued_ns += wait_ns(
                    len(self._queues[other]),
                    self._settings.largest_batch_size[other],
                    self._rules.run_ns[other],
                    other == replica,
                )
            longest_ns = max(longest_ns, queued_ns)
        return self._devices.free_ns(replica, now_ns) - now_ns + longest_ns

    def _visited_ns(self, visited: int) -> int:
        total_ns, model = 0, 0
        while visited:
            if visited & 1:
                total_ns += self._rules.fastest_ns[model]
            visited >>= 1
            model += 1
        return total_ns
