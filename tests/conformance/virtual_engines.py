"""The router of language models on a manual clock, with plain engines, at full speed."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from gearshift.clock import NEVER_NS, to_ns
from gearshift.decisions import LogRow
from gearshift.language_workload import LanguageWorkload
from gearshift.policies.engines.deciding import DECIDES_AT_END
from gearshift.policies.engines.sharing import step_ends_ns, stretch_of, work_left_ns
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, LanguageProfile
from gearshift.profiles.engines.stepping import Engine, Generation, Step
from gearshift.runtime.engines.requests.engine_request import EngineRequest
from gearshift.runtime.engines.routing.router import EngineRouter
from tests.manual_clock import ManualClock


@dataclass(slots=True, eq=False)
class VirtualEngine:
    engine: Engine
    requests: dict[Generation, EngineRequest] = field(default_factory=dict)
    step: Step | None = None
    ends_ns: int = NEVER_NS
    left_ns: int = 0
    since_ns: int = 0
    stretch: float = 0.0

    def of(self, request: EngineRequest) -> Generation:
        return next(generation for generation, one in self.requests.items() if one is request)


class VirtualEngines:
    """Drives a router: `shown_ns` and `finished_ns` (n,) are when an answer may be shown, and ends."""

    def __init__(self, tables: EngineTables, profile: LanguageProfile, workload: LanguageWorkload) -> None:
        self.tables, self.profile, self.workload = tables, profile, workload
        self.clock, self.log = ManualClock(), list[LogRow]()
        self.router = EngineRouter(tables, self, log=self.log.append)
        self.replicas = [VirtualEngine(Engine(engine)) for engine in tables.engines]
        self.shown_ns, self.finished_ns = np.zeros(len(workload), np.int64), np.zeros(len(workload), np.int64)
        self.last = [-1] * len(tables.device_groups)
        self.left = len(workload)

    def send(self, replica: int, request: EngineRequest) -> None:
        prompts, outputs = self.workload.prompt_tokens, self.workload.output_tokens
        record, answers = self.workload.record[request.number], self.profile.answers
        generation = Generation(
            int(answers.prompt_tokens[request.model, record] if prompts is None else prompts[request.number]),
            int(answers.output_tokens[request.model, record] if outputs is None else outputs[request.number]),
        )
        self.replicas[replica].requests[generation] = request
        self.replicas[replica].engine.add(generation)

    def cancel(self, replica: int, request: EngineRequest) -> None:
        engine = self.replicas[replica]
        generation = engine.of(request)
        engine.engine.cancel(generation)
        del engine.requests[generation]

    def answered(self, request: EngineRequest) -> None:
        self.shown_ns[request.number] = self.clock.now_ns()

    def finished(self, request: EngineRequest) -> None:
        self.finished_ns[request.number] = self.clock.now_ns()
        self.left -= 1

    def unanswered(self, request: EngineRequest) -> None:
        raise AssertionError(f"request {request.number} is not answered, and nothing has failed")

    def run(self) -> None:
        arrivals, arrived, next_tick_ns = self.workload.arrivals_ns.tolist(), 0, METER_WINDOW_NS
        while self.left:
            arrival_ns = arrivals[arrived] if arrived < len(arrivals) else NEVER_NS
            now_ns = min(arrival_ns, next_tick_ns, *(one.ends_ns for one in self.replicas))
            self.clock.move_to(now_ns)
            for replica in self.replicas:
                if replica.ends_ns == now_ns:
                    self.end_step(replica, now_ns)
            while arrived < len(arrivals) and arrivals[arrived] == now_ns:
                self.router.arrive(self.request(arrived), now_ns)
                arrived += 1
            if now_ns == next_tick_ns:
                self.router.tick(now_ns)
                next_tick_ns += METER_WINDOW_NS
            self.router.dispatch(now_ns)
            for group in range(len(self.tables.device_groups)):
                self.begin_steps(group, now_ns)

    def request(self, number: int) -> EngineRequest:
        models, given = len(self.tables.models), self.workload.prompt_tokens
        recorded = self.profile.answers.prompt_tokens[:, self.workload.record[number]].tolist()
        prompts = recorded if given is None else [int(given[number])] * models
        return EngineRequest(number, float(self.workload.by_id[number]), prompts)

    def begin_steps(self, group: int, now_ns: int) -> None:
        sharing = np.flatnonzero(self.tables.device == group).tolist()
        if self.tables.in_turn[group]:
            self.take_turns(group, sharing, now_ns)
            return
        for number in sharing:
            replica = self.replicas[number]
            if replica.step is None and (step := replica.engine.begin_step()) is not None:
                replica.step, replica.stretch = step, 0.0
                replica.left_ns = to_ns(replica.engine.profile.step_s(step.work))
        at_work = [int(replica.step is not None) for replica in self.replicas]
        for number in sharing:
            replica = self.replicas[number]
            stretch = stretch_of(number, 0, len(sharing), sharing, at_work, self.tables.sharing)
            if replica.step is None or stretch == replica.stretch:
                continue
            if replica.stretch:
                replica.left_ns = work_left_ns(replica.left_ns, now_ns - replica.since_ns, replica.stretch)
            replica.since_ns, replica.stretch = now_ns, stretch
            replica.ends_ns = step_ends_ns(now_ns, replica.left_ns, stretch)

    def take_turns(self, group: int, sharing: list[int], now_ns: int) -> None:
        if any(self.replicas[number].step is not None for number in sharing):
            return
        later = [number for number in sharing if number > self.last[group]]
        for number in (*later, *sharing[: len(sharing) - len(later)]):
            replica = self.replicas[number]
            replica.step = replica.engine.begin_step()
            if replica.step is not None:
                replica.ends_ns = now_ns + to_ns(replica.engine.profile.step_s(replica.step.work))
                self.last[group] = number
                return

    def end_step(self, replica: VirtualEngine, now_ns: int) -> None:
        assert replica.step is not None
        told = replica.engine.end_step(replica.step)
        replica.step, replica.ends_ns = None, NEVER_NS
        for generation in told:
            request = replica.requests[generation]
            certainty = partial(self.certainty, request.model, request.number)
            self.router.tokens(request, generation.given, certainty, now_ns)
            if generation.given == generation.output_tokens and generation in replica.requests:
                del replica.requests[generation]
                self.router.ended(request, certainty, now_ns)

    def certainty(self, model: int, number: int, at: int) -> float:
        column = DECIDE_AT_TOKENS.index(None if at == DECIDES_AT_END else at)
        return float(self.profile.answers.certainty[model, self.workload.record[number], column])
