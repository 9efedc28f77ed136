"""The work that waits for each model and is at each replica, in expected nanoseconds."""

from collections import OrderedDict

from gearshift.policies.engines.outstanding import expected_output_tokens
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.requests.engine_request import NOWHERE, EngineRequest, Hedge
from gearshift.runtime.engines.routing.waiting import WaitingQueue


class Work:
    """`queues` and `waiting_ns` are by model; `sent`, `outstanding`, `work_ns` and `done_ns` by replica."""

    def __init__(self, tables: EngineTables) -> None:
        models, replicas = len(tables.models), len(tables.replicas)
        self._begin: list[int] = tables.replica_begin.tolist()
        self._reading_ns: list[int] = tables.reading_ns.tolist()
        self._prompt_token_ns: list[int] = tables.prompt_token_ns.tolist()
        self._output_token_ns: list[int] = tables.output_token_ns.tolist()
        self._edges: list[int] = tables.bin_edges.tolist()
        self._bins = bins = len(tables.expected_output) // models
        self._expected = [tables.expected_output[m * bins : (m + 1) * bins].tolist() for m in range(models)]
        self.queues = [WaitingQueue() for _ in range(models)]
        self.waiting_ns = [0] * models
        self.sent: list[OrderedDict[EngineRequest, None]] = [OrderedDict() for _ in range(replicas)]
        self.outstanding, self.work_ns, self.done_ns = [0] * replicas, [0] * replicas, [0] * replicas
        self.prompt_tokens = 0
        """The tokens of prompts without a first token yet."""

    def enqueue(self, request: EngineRequest, model: int, stage: int, *, first: bool) -> None:
        request.model, request.stage, request.tokens = model, stage, 0
        self._expect(request, self._begin[model])
        self.waiting_ns[model] += request.prompt_ns + request.output_ns
        self.prompt_tokens += request.prompt_tokens[model]
        self.queues[model].add(request, first=first)

    def unqueue(self, request: EngineRequest) -> None:
        model = request.model
        self.queues[model].remove(request)
        self.waiting_ns[model] -= request.prompt_ns + request.output_ns
        self.prompt_tokens -= request.prompt_tokens[model]

    def send(self, request: EngineRequest, replica: int) -> None:
        self.unqueue(request)
        self.prompt_tokens += request.prompt_tokens[request.model]
        self._expect(request, replica)
        request.replica = replica
        request.visited |= 1 << request.model
        self.work_ns[replica] += request.prompt_ns + request.output_ns
        self.outstanding[replica] += 1
        self.sent[replica][request] = None

    def progressed(self, request: EngineRequest, tokens: int) -> None:
        """It has so many tokens in all now."""
        if request.tokens == 0:
            self.done_ns[request.replica] += request.prompt_ns
            self.prompt_is_done(request)
        more = request.choices * (tokens - request.tokens)
        self.done_ns[request.replica] += more * self._output_token_ns[request.replica]
        request.tokens = tokens

    def prompt_is_done(self, request: EngineRequest) -> None:
        self.prompt_tokens -= request.prompt_tokens[request.model]
        self.work_ns[request.replica] -= request.prompt_ns
        request.prompt_ns = 0

    def take_from_engine(self, request: EngineRequest) -> None:
        replica = request.replica
        if request.tokens == 0:
            self.prompt_is_done(request)
        self.work_ns[replica] -= request.output_ns
        self.outstanding[replica] -= 1
        del self.sent[replica][request]
        request.replica = NOWHERE

    def hedge(self, hedge: Hedge) -> None:
        """A second engine is asked as well."""
        self.work_ns[hedge.replica] += hedge.prompt_ns + hedge.output_ns
        self.outstanding[hedge.replica] += 1

    def end_hedge(self, hedge: Hedge) -> None:
        self.work_ns[hedge.replica] -= hedge.prompt_ns + hedge.output_ns
        self.outstanding[hedge.replica] -= 1

    def adopt(self, request: EngineRequest, hedge: Hedge) -> None:
        """The request, which has left its engine, runs where it was asked as well."""
        request.model, request.replica, request.stage = hedge.model, hedge.replica, hedge.stage
        request.prompt_ns, request.output_ns, request.tokens = hedge.prompt_ns, hedge.output_ns, 0
        request.visited |= 1 << hedge.model
        self.prompt_tokens += request.prompt_tokens[hedge.model]
        self.sent[hedge.replica][request] = None

    def expect(self, request: EngineRequest, replica: int, model: int) -> tuple[int, int, int]:
        """The work of its prompt and of its answer at a replica of the model, and the answer's expected tokens."""
        prompt = request.prompt_tokens[model]
        expected = expected_output_tokens(
            prompt, request.most_tokens, self._edges, self._expected[model], 0, self._bins
        )
        output_ns = request.choices * expected * self._output_token_ns[replica]
        return self.prompt_ns_of(request, replica, model), output_ns, expected

    def prompt_ns_of(self, request: EngineRequest, replica: int, model: int) -> int:
        return self._reading_ns[replica] + request.prompt_tokens[model] * self._prompt_token_ns[replica]

    def _expect(self, request: EngineRequest, replica: int) -> None:
        """Set the work of the request at this replica's rates."""
        request.prompt_ns, request.output_ns, _ = self.expect(request, replica, request.model)
