"""A plan of language models, simulated request by request with plain engines."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gearshift.clock import NEVER_NS, to_ns
from gearshift.decisions import Decision, LogRow
from gearshift.gear import METER_BACKLOG
from gearshift.language_workload import LanguageWorkload
from gearshift.policies.engines.deciding import DECIDES_BY_ID, decides_now, first_stage
from gearshift.policies.engines.outstanding import (
    expected_output_tokens,
    model_drain_ns,
    outstanding_load,
    replica_with_room,
)
from gearshift.policies.gear_shift import gear_asked_for, gear_in_force
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.policies.next_step import ANSWER, NOT_IN_CASCADE, next_step
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.profiles.engines.language_profile import BIN_EDGES, DECIDE_AT_TOKENS, LanguageProfile
from gearshift.profiles.engines.stepping import Engine, Generation, Step
from gearshift.simulator.engines.language_simulation import LanguageSimulation

ANY_NUMBER = 1 << 30


@dataclass(slots=True, eq=False)
class Request:
    number: int
    model: int = -1
    visited: int = 0
    expected: int = 0
    answered: bool = False


@dataclass(slots=True, eq=False)
class Replica:
    engine: Engine
    requests: dict[Generation, Request] = field(default_factory=dict)
    step: Step | None = None
    ends_ns: int = NEVER_NS
    left_ns: int = 0
    since_ns: int = 0
    stretch: float = 0.0


class PlainSimulation:
    def __init__(self, tables: EngineTables, profile: LanguageProfile, workload: LanguageWorkload) -> None:
        self.tables: Any = tables
        self.profile, self.workload = profile, workload
        n, models = len(workload), len(tables.models)
        self.requests = [Request(i) for i in range(n)]
        self.replicas = [Replica(Engine(engine)) for engine in tables.engines]
        self.queues: list[deque[Request]] = [deque() for _ in tables.models]
        self.outstanding = [0] * len(self.replicas)
        self.work_ns = [0] * len(self.replicas)
        self.last_of = [-1] * len(tables.device_groups)
        self.busy_since_ns = [NEVER_NS] * len(tables.device_groups)
        self.gear = self.eased = self.arrived = self.done = self.most_waiting = 0
        self.log: list[LogRow] = []
        self.shifts: list[tuple[int, int]] = []
        self.model = np.zeros(n, dtype=np.int8)
        self.of_gear = np.zeros(n, dtype=np.int16)
        self.answered_ns = np.zeros(n, dtype=np.int64)
        self.finished_ns = np.zeros(n, dtype=np.int64)
        self.decided_at = np.zeros(n, dtype=np.int32)
        self.discarded = np.zeros((n, models), dtype=np.int32)
        self.preempted = np.zeros(n, dtype=np.int32)
        self.busy_ns = np.zeros(len(tables.device_groups), dtype=np.int64)
        self.steps = np.zeros(len(self.replicas), dtype=np.int64)

    def run(self, log: bool) -> LanguageSimulation:
        arrivals = self.workload.arrivals_ns.tolist()
        next_tick_ns = METER_WINDOW_NS
        while self.done < len(arrivals):
            arrival_ns = arrivals[self.arrived] if self.arrived < len(arrivals) else NEVER_NS
            now_ns = min(arrival_ns, next_tick_ns, *(one.ends_ns for one in self.replicas))
            for number, replica in enumerate(self.replicas):
                if replica.ends_ns == now_ns:
                    self.end_step(number, now_ns)
            while self.arrived < len(arrivals) and arrivals[self.arrived] == now_ns:
                request = self.requests[self.arrived]
                self.arrived += 1
                self.enqueue(request, *self.first(request), now_ns)
            if next_tick_ns == now_ns:
                self.tick(now_ns)
                next_tick_ns += METER_WINDOW_NS
            self.dispatch(now_ns)
            self.begin_steps(now_ns)
        return LanguageSimulation(
            tables=self.tables,
            workload=self.workload,
            model=self.model,
            gear=self.of_gear,
            answered_ns=self.answered_ns,
            finished_ns=self.finished_ns,
            output_tokens=np.array([self.tokens(i, int(model))[1] for i, model in enumerate(self.model)]),
            decided_at_token=self.decided_at,
            discarded_tokens=self.discarded,
            preempted=self.preempted,
            busy_ns=self.busy_ns,
            steps=self.steps,
            shifts=np.array(self.shifts, dtype=np.int64).reshape(-1, 2),
            log=self.log if log else [],
            most_waiting=self.most_waiting,
        )

    def tokens(self, request: int, model: int) -> tuple[int, int]:
        """The tokens of the prompt, and of the answer."""
        workload, answers = self.workload, self.profile.answers
        record = workload.record[request]
        prompt = answers.prompt_tokens[model, record]
        output = answers.output_tokens[model, record]
        if workload.prompt_tokens is not None:
            prompt = workload.prompt_tokens[request]
        if workload.output_tokens is not None:
            output = workload.output_tokens[request]
        return int(prompt), int(output)

    def first(self, request: Request) -> tuple[int, int]:
        """The model and the stage at which it begins."""
        tables, base = self.tables, self.gear * self.tables.most_stages
        by_id = float(self.workload.by_id[request.number])
        stage = first_stage(by_id, int(tables.stage_count[self.gear]), tables.thresholds, tables.decide_at, base)
        return int(tables.stage_models[base + stage]), stage

    def stage_of(self, model: int) -> int:
        begin = self.gear * self.tables.most_stages
        row = self.tables.stage_models[begin : begin + self.tables.stage_count[self.gear]].tolist()
        return row.index(model) if model in row else NOT_IN_CASCADE

    def enqueue(self, request: Request, model: int, stage: int, now_ns: int) -> None:
        bins, tables = len(BIN_EDGES), self.tables
        request.model = model
        request.expected = int(
            expected_output_tokens(
                self.tokens(request.number, model)[0],
                ANY_NUMBER,
                BIN_EDGES,
                tables.expected_output[model * bins :],
                0,
                bins,
            )
        )
        self.queues[model].append(request)
        self.most_waiting = max(self.most_waiting, sum(map(len, self.queues)))
        self.log.append((now_ns, Decision.ENQUEUE, request.number, model, stage))

    def dispatch(self, now_ns: int) -> None:
        tables, base = self.tables, self.gear * len(self.replicas)
        for model, queue in enumerate(self.queues):
            begin, end = int(tables.replica_begin[model]), int(tables.replica_begin[model + 1])
            while queue:
                number = replica_with_room(
                    begin,
                    end,
                    base,
                    self.outstanding,
                    self.work_ns,
                    tables.most_outstanding,
                    tables.shares,
                    [False] * len(self.replicas),
                )
                if number < 0:
                    break
                self.send(queue.popleft(), number, now_ns)

    def send(self, request: Request, number: int, now_ns: int) -> None:
        replica = self.replicas[number]
        generation = Generation(*self.tokens(request.number, request.model))
        replica.requests[generation] = request
        replica.engine.add(generation)
        self.outstanding[number] += 1
        self.work_ns[number] += self.prompt_ns(request, number) + self.expected_ns(request, number)
        self.log.append((now_ns, Decision.SEND, request.number, number, self.outstanding[number]))

    def prompt_ns(self, request: Request, replica: int) -> int:
        return self.tokens(request.number, request.model)[0] * int(self.tables.prompt_token_ns[replica])

    def expected_ns(self, request: Request, replica: int) -> int:
        return request.expected * int(self.tables.output_token_ns[replica])

    def begin_steps(self, now_ns: int) -> None:
        for group in range(len(self.busy_since_ns)):
            members = [int(number) for number in np.flatnonzero(self.tables.device == group)]
            if self.tables.in_turn[group]:
                self.take_turns(group, members, now_ns)
                continue
            for number in members:
                self.begin(number)
            self.share(group, members, now_ns)

    def begin(self, number: int) -> bool:
        """Whether its next step is there, if it had none before."""
        replica = self.replicas[number]
        if replica.step is not None or (step := replica.engine.begin_step()) is None:
            return False
        replica.step, replica.stretch = step, 0.0
        replica.left_ns = to_ns(replica.engine.profile.step_s(step.work))
        self.steps[number] += 1
        return True

    def take_turns(self, group: int, members: list[int], now_ns: int) -> None:
        if any(self.replicas[number].step is not None for number in members):
            return
        last = self.last_of[group]
        for number in [*(one for one in members if one > last), *(one for one in members if one <= last)]:
            if self.begin(number):
                replica = self.replicas[number]
                replica.ends_ns = now_ns + replica.left_ns
                self.busy_ns[group] += replica.left_ns
                self.last_of[group] = number
                return

    def share(self, group: int, members: list[int], now_ns: int) -> None:
        """Replicas on the same devices have an equal part of the time, and slow each other beyond that."""
        at_work = [number for number in members if self.replicas[number].step is not None]
        for number in at_work:
            replica, others = self.replicas[number], [one for one in at_work if one != number]
            factors = [float(self.tables.sharing[number * len(self.replicas) + one]) for one in others]
            stretch = max(1.0, len(at_work) * max(factors)) if others else 1.0
            if stretch != replica.stretch:
                if replica.stretch:
                    done_ns = int((now_ns - replica.since_ns) / replica.stretch)
                    replica.left_ns = max(0, replica.left_ns - done_ns)
                replica.since_ns, replica.stretch = now_ns, stretch
                replica.ends_ns = now_ns + int(replica.left_ns * stretch)
        since_ns = self.busy_since_ns[group]
        if at_work and since_ns == NEVER_NS:
            self.busy_since_ns[group] = now_ns
        elif not at_work and since_ns != NEVER_NS:
            self.busy_ns[group] += now_ns - since_ns
            self.busy_since_ns[group] = NEVER_NS

    def end_step(self, number: int, now_ns: int) -> None:
        replica = self.replicas[number]
        assert replica.step is not None
        told = replica.engine.end_step(replica.step)
        replica.step, replica.ends_ns = None, NEVER_NS
        for generation in told:
            request = replica.requests[generation]
            ended = generation.given == generation.output_tokens
            if generation.given == 1:
                self.work_ns[number] -= self.prompt_ns(request, number)
            following = ANSWER if request.answered else self.decide(request, generation, ended, now_ns)
            if following != ANSWER:
                self.discarded[request.number, request.model] = generation.given
                self.log.append((now_ns, Decision.CANCEL, request.number, number, generation.given))
                self.leave(number, request, generation)
                self.enqueue(request, following, self.stage_of(following), now_ns)
            elif ended:
                self.leave(number, request, generation)
                self.finished_ns[request.number] = now_ns
                self.done += 1

    def leave(self, number: int, request: Request, generation: Generation) -> None:
        replica = self.replicas[number]
        replica.engine.cancel(generation)
        del replica.requests[generation]
        self.outstanding[number] -= 1
        self.work_ns[number] -= self.expected_ns(request, number)
        self.preempted[request.number] += generation.preempted

    def decide(self, request: Request, generation: Generation, ended: bool, now_ns: int) -> int:
        """The model that the request goes on to; `ANSWER` where it stays."""
        tables, base, i = self.tables, self.gear * self.tables.most_stages, request.number
        stage, stages = self.stage_of(request.model), int(tables.stage_count[self.gear])
        if stage != NOT_IN_CASCADE:
            if not decides_now(stage, stages, generation.given, ended, tables.decide_at, base):
                return ANSWER
            at = int(tables.decide_at[base + stage])
            if stage < stages - 1 and at != DECIDES_BY_ID:
                request.visited |= 1 << request.model
                column = DECIDE_AT_TOKENS.index(None if at < 0 else at)
                sure = float(self.profile.answers.certainty[request.model, self.workload.record[i], column])
                following = next_step(
                    stage, sure, request.visited, stages, tables.stage_models, tables.thresholds, base
                )
                if following != ANSWER:
                    return int(following)
        request.answered = True
        self.model[i], self.of_gear[i] = request.model, self.gear
        self.answered_ns[i], self.decided_at[i] = now_ns, generation.given
        self.log.append((now_ns, Decision.ANSWER, i, request.model, self.gear))
        return ANSWER

    def tick(self, now_ns: int) -> None:
        tables = self.tables
        waiting = [request for queue in self.queues for request in queue]
        in_engines = [each for replica in self.replicas for each in replica.requests.items()]
        unread = [request for generation, request in in_engines if generation.given == 0]
        prompts = sum(self.tokens(one.number, one.model)[0] for one in (*waiting, *unread))
        load = outstanding_load(tables.load_unit, len(waiting) + len(in_engines), prompts, self.drain_ns())
        asked = gear_asked_for(METER_BACKLOG, self.gear, load, 0, 0.0, tables.range_starts, len(tables.range_starts))
        gear, self.eased = gear_in_force(self.gear, asked, self.eased, load, tables.range_starts, tables.upshift_margin)
        if gear != self.gear:
            self.shift(gear, now_ns)

    def drain_ns(self) -> int:
        tables, longest = self.tables, 0
        for model, queue in enumerate(self.queues):
            begin, end = int(tables.replica_begin[model]), int(tables.replica_begin[model + 1])
            waiting_ns = sum(self.prompt_ns(one, begin) + self.expected_ns(one, begin) for one in queue)
            base = self.gear * len(self.replicas)
            longest = max(longest, int(model_drain_ns(begin, end, base, waiting_ns, self.work_ns, tables.shares)))
        return longest

    def shift(self, gear: int, now_ns: int) -> None:
        """Requests that have run nowhere yet are put anew by the new gear."""
        self.log.append((now_ns, Decision.SHIFT, self.gear, gear, 0))
        self.gear = gear
        self.shifts.append((now_ns, gear))
        for model, queue in enumerate(self.queues):
            for request in list(queue):
                following, stage = self.first(request)
                if request.visited == 0 and following != model:
                    queue.remove(request)
                    self.enqueue(request, following, stage, now_ns)
