"""What is expected of replicas of engines: when a request gets its first token, and how fast they are beside that."""

from gearshift.clock import NS_PER_S
from gearshift.policies.engines.deciding import DECIDES_AT_END, DECIDES_BY_ID
from gearshift.policies.engines.first_token import first_token_ns, hedge_after_ns
from gearshift.policies.slowdown import learnt
from gearshift.policies.watch.lost_workers import HANG_FACTOR, hangs_after_ns
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.request import NO_DEADLINE_NS
from gearshift.runtime.engines.requests.engine_request import EngineRequest
from gearshift.runtime.engines.routing.availability import Availability
from gearshift.runtime.engines.routing.gear_in_force import GearInForce
from gearshift.runtime.engines.routing.work import Work

DECAY = 0.99
"""Of what was seen, at each tick of 100 ms: about the last 10 s count."""
LEAST_SEEN_NS = 2_000_000_000
FASTEST, SLOWEST = 0.25, 20.0


class Expected:
    """`slowdown` (models,) is how much longer full engines take than profiled, as they did of late."""

    def __init__(self, tables: EngineTables, work: Work, gears: GearInForce, available: Availability) -> None:
        self._work, self._gears, self._available = work, gears, available
        self._begin: list[int] = tables.replica_begin.tolist()
        self._model: list[int] = tables.replica_model.tolist()
        self._shares: list[int] = tables.shares.tolist()
        self._slots: list[int] = tables.slots.tolist()
        self._output_token_ns: list[int] = tables.output_token_ns.tolist()
        self.slowdown = [1.0] * len(tables.models)
        self._full_ns, self._done_ns = [0.0] * len(tables.models), [0.0] * len(tables.models)
        self._was_full = [False] * len(self._model)
        self._looked_ns = 0
        self._first_pace = [1.0] * len(self._model)
        """First tokens' times over expected ones."""
        self._last_token_ns = [0] * len(self._model)

    def decision_ns(self, request: EngineRequest, model: int, stage: int, *, alone: bool = False) -> int:
        """Time until a stage of a request that begins to wait now has decided, so that something may be shown.

        `alone`: if no other request were there.
        """
        work, begin, end = self._work, *self._begin[model : model + 2]
        prompt_ns, output_ns, tokens = work.expect(request, begin, model)
        at = DECIDES_AT_END if request.whole else self._gears.decides_at(stage)
        decoding_ns = 0
        if at != DECIDES_BY_ID:
            decoding_ns = self.step_ns(begin) * (tokens if at == DECIDES_AT_END else min(at, tokens))
        if alone:
            return int((prompt_ns + decoding_ns) * self.slowdown[model])
        ahead = work.queues[model].before(request.order_ns)
        waiting_ns = work.waiting_ns[model] if ahead is None else sum(one.prompt_ns + one.output_ns for one in ahead)
        predicted_ns = first_token_ns(
            begin,
            end,
            self._gears.settings,
            self._available.closed,
            self._shares,
            self._slots,
            work.outstanding,
            work.work_ns,
            waiting_ns,
            prompt_ns + output_ns,
            prompt_ns,
        )
        return int((predicted_ns + decoding_ns) * self.slowdown[model])

    def first_stage_ns(self, request: EngineRequest) -> tuple[int, int, int]:
        """Time until the first stage of a request that comes now has decided; the same if it were alone.

        And from then until its answer is whole.
        """
        stage = self._gears.first_stage(request)
        model = self._gears.models[stage]
        alone_ns = self.decision_ns(request, model, stage, alone=True)
        return self.decision_ns(request, model, stage), alone_ns, self.whole_ns(request, model)

    def is_late(self, request: EngineRequest, model: int, now_ns: int) -> bool:
        """Whether this model, from now on, would decide after the deadline."""
        if request.deadline_ns == NO_DEADLINE_NS:
            return False
        return now_ns + self.decision_ns(request, model, self._gears.stage_of(model)) > request.deadline_ns

    def whole_ns(self, request: EngineRequest, model: int) -> int:
        """Time from the first token of an answer to its last."""
        replica = self._begin[model]
        _, _, tokens = self._work.expect(request, replica, model)
        return int(tokens * self.step_ns(replica) * self.slowdown[model])

    def first_token_ns(self, replica: int, prompt_ns: int, output_ns: int) -> int:
        """Time until the first token of a request with this work that is sent to a replica now."""
        work = self._work
        return first_token_ns(
            replica,
            replica + 1,
            self._gears.settings,
            [False] * (replica + 1),
            self._shares,
            self._slots,
            work.outstanding,
            work.work_ns,
            0,
            prompt_ns + output_ns,
            prompt_ns,
        )

    def first_token_came(self, request: EngineRequest, now_ns: int) -> None:
        pace = self._first_pace
        pace[request.replica] = learnt(pace[request.replica], now_ns - request.sent_ns, request.first_token_ns)
        self._last_token_ns[request.replica] = now_ns

    def late_first_token_ns(self, request: EngineRequest) -> int:
        """When the first token of a request at an engine is so late that another engine is asked as well."""
        pace = max(1.0, self._first_pace[request.replica])
        return request.sent_ns + hedge_after_ns(int(pace * request.first_token_ns))

    def stalls(self, request: EngineRequest, now_ns: int) -> bool:
        """Whether its first token is late, and its engine gave nobody else anything since it was sent either."""
        silent = self._last_token_ns[request.replica] < request.sent_ns
        return silent and now_ns > self.late_first_token_ns(request)

    def step_ns(self, replica: int) -> int:
        """Time of a full engine between two tokens of one answer."""
        return self._output_token_ns[replica] * self._slots[replica]

    def answer_ns(self, replica: int, request: EngineRequest) -> int:
        """Time of a whole answer at a full engine, its prompt apart."""
        return request.output_ns // max(1, request.choices) * self._slots[replica]

    def longest_first_s(self, request: EngineRequest, shortest_hang_ns: int) -> float:
        """How long a first token may take before its engine counts as stalled."""
        pace = max(1.0, self._first_pace[request.replica])
        expected_ns = max(
            int(pace * request.first_token_ns), 2 * self.answer_ns(request.replica, request) // HANG_FACTOR
        )
        return hangs_after_ns(expected_ns, shortest_hang_ns) / NS_PER_S

    def longest_between_s(self, request: EngineRequest, shortest_hang_ns: int) -> float:
        """As `longest_first_s`, between two tokens; some engines give an answer in few large parts."""
        expected_ns = max(self.step_ns(request.replica), 2 * self.answer_ns(request.replica, request) // HANG_FACTOR)
        return hangs_after_ns(expected_ns, shortest_hang_ns) / NS_PER_S

    def tick(self, now_ns: int) -> None:
        """See how much work was done meanwhile where engines were full."""
        passed_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        work = self._work
        for replica, model in enumerate(self._model):
            done_ns, work.done_ns[replica] = work.done_ns[replica], 0
            full = work.outstanding[replica] >= self._slots[replica]
            if full and self._was_full[replica]:
                self._full_ns[model] += passed_ns
                self._done_ns[model] += done_ns
            self._was_full[replica] = full
        for model in range(len(self.slowdown)):
            if self._full_ns[model] >= LEAST_SEEN_NS:
                ratio = self._full_ns[model] / max(1.0, self._done_ns[model])
                self.slowdown[model] = min(SLOWEST, max(FASTEST, ratio))
            self._full_ns[model] *= DECAY
            self._done_ns[model] *= DECAY
