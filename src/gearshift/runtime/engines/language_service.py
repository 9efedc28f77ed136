"""The service of one pipeline of language models: its start and end, who is let in, and what operators see."""

from collections.abc import Mapping, Sequence
from functools import partial

from gearshift.clock import Clock, WallClock
from gearshift.errors import QueueFull
from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.answers.answer_stream import AnswerStream, Reader
from gearshift.runtime.engines.answers.drift import AnswerDrift
from gearshift.runtime.engines.identities import Identities
from gearshift.runtime.engines.looks import Looks
from gearshift.runtime.engines.open_answers import OpenAnswers
from gearshift.runtime.engines.requests.asked import Asked
from gearshift.runtime.engines.routing.first_token_promise import FirstTokenPromise
from gearshift.runtime.engines.routing.rate_limits import RateLimits
from gearshift.runtime.engines.served_engines import CertaintyOf, Engines
from gearshift.runtime.faults.failure_log import OwnErrors
from gearshift.runtime.service.admission import Accepting, Admission
from gearshift.runtime.service.answers import QUEUE_FULL
from gearshift.runtime.service.room import HeldBytes, Room
from gearshift.runtime.watch.drift import LiveTrace


class LanguageService:
    """Serves one pipeline of language models.

    `certainty_of` makes a certainty of tokens, which with `likeliest_other` needs the likeliest
    other tokens too. At most `most_waiting` requests wait for engines;
    `promise` refuses those whose first token would be late. `held` counts bytes together with another
    service, whose place this one takes. Where a deadline passes before a stage has decided, what there
    is is given; if there is nothing, it is refused, unless the promise says otherwise. A request waits
    up to `longest_retry_s` for engines that ask for a pause; one that is silent for much longer than
    profiled, and for `shortest_hang_s`, has failed. `before_of` has what the endpoint of each model
    said when it was profiled, as `Identity` has it; `drift` compares answers with the recorded ones.
    """

    def __init__(
        self,
        tables: EngineTables,
        engines: Engines,
        *,
        certainty_of: CertaintyOf,
        likeliest_other: bool = False,
        most_waiting: int = 10_000,
        most_held_bytes: int = 256 << 20,
        held: HeldBytes | None = None,
        promise: FirstTokenPromise | None = None,
        limits: RateLimits | None = None,
        longest_retry_s: float = 30.0,
        shortest_hang_s: float = 10.0,
        before_of: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
        drift: AnswerDrift | None = None,
        clock: Clock | None = None,
        metrics: LanguageMetrics | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.tables = tables
        self._clock, self._journal = clock or WallClock(), journal or Journal()
        self.metrics = metrics or LanguageMetrics(tables.pipeline, tables.models, tables.replicas)
        self.held = held or HeldBytes(most_held_bytes)
        self._identities = Identities(tables, engines, before_of or {}, self.metrics, self._journal)
        errors = OwnErrors()
        refused = self.metrics.refused
        full = partial(refused, QUEUE_FULL)
        self.room = room = Room(self, most_waiting, self.held, full, drain_ns=lambda: self.router.drain_ns)
        self._accepting = Accepting(self._journal, lambda: self.open_requests)
        admission = Admission(
            self._accepting,
            room,
            room,
            lacking=self._lacking,
            refused=refused,
            no_worker="no_engine",
            nobody="no engine answers",
        )
        self.require_room, self.reading = admission.require_room, admission.reading
        self.answers = OpenAnswers(
            tables,
            engines,
            self._identities,
            room=room,
            certainty_of=certainty_of,
            drift=drift,
            least_top=2 if likeliest_other else 0,
            promise=promise or FirstTokenPromise(),
            limits=limits,
            longest_retry_s=longest_retry_s,
            shortest_hang_s=shortest_hang_s,
            clock=self._clock,
            metrics=self.metrics,
            journal=self._journal,
            errors=errors,
        )
        self.router, self.certainties = self.answers.router, self.answers.certainties
        self.looks = Looks(
            self.answers, engines, clock=self._clock, metrics=self.metrics, journal=self._journal, errors=errors
        )
        self._placed = sorted(set(tables.replica_model.tolist()))
        if not self.metrics.is_watching:
            self._report()

    # Life ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to accept requests; the engines are there."""
        self.looks.tick()
        self._report()
        self._accepting.start(len(self.tables.replicas))

    def _report(self) -> None:
        tables = self.tables
        self.metrics.watch(self, len(tables.stage_count) - 1, tables.models, tables.replicas)
        for name in self.drifting_models:
            self.metrics.drift.labels(name).set(1)

    def take_over_from(self, before: "LanguageService") -> None:
        """Begin in the gear for the load of `before`, with what it has learned of prompts and answers.

        Nothing of `before` changes; call `start` next, then its `hand_over_to`.
        """
        tables = self.tables
        if tables.load_unit == before.tables.load_unit:
            self.router.begin_at(before.load)
        if tables.models == before.tables.models:
            self.answers.sizes = before.answers.sizes
        self.certainties.go_on_from(before.certainties)

    def hand_over_to(self, after: "LanguageService") -> None:
        """Leave the record of arrivals to the service that has begun; only that one judges answers from now on."""
        self.looks.hand_over_to(after.looks)
        self.certainties.drift = None

    async def drain(self, longest_s: float) -> bool:
        """Refuse new requests and answer the rest; False if some failed after `longest_s`."""
        return await self._accepting.drain(longest_s, [self.answers.none_open], self.answers.fail_all)

    def stop(self) -> None:
        """End at once: unanswered requests fail."""
        self._accepting.end()
        self.answers.fail_all()
        self.looks.stop()
        self._journal.write("stop")

    def refuse_new(self) -> None:
        self._accepting.refuse_new()

    def undo_drain(self) -> None:
        self._accepting.undo_drain()

    # Requests ------------------------------------------------------------------------------------

    def _lacking(self) -> str:
        """The first model, where no engine is there: any other would answer in its place."""
        return self.tables.models[0] if all(self.router.available.is_lost) else ""

    def submit(self, asked: Asked, reader: Reader) -> AnswerStream:
        """Accept a request; `reader` gets its answer, after this has returned. Raises as `require_room`."""
        self.require_room(1, asked.held_bytes)
        self.trace.arrived += 1
        try:
            return self.answers.open(asked, reader)
        except QueueFull:
            self.metrics.refused("late")
            raise

    def withdraw(self, stream: AnswerStream) -> None:
        """The client has left: nobody works on its request any more, and its reader hears nothing."""
        self.answers.withdraw(stream)

    # What replicas report (`engine_replica.OnChange`) --------------------------------------------

    def lost(self, replica: int) -> None:
        """The replica is not there: it gets nothing more."""
        if not self.router.available.is_lost[replica]:
            self.metrics.restarts.labels(self.tables.replicas[replica]).inc()
            self._journal.write("lost", replica=self.tables.replicas[replica])
            self.router.lost(replica, self._clock.now_ns())
            self.answers.dispatch_soon()

    def found(self, replica: int, *, restarted: bool = False) -> None:
        self._journal.write("found", replica=self.tables.replicas[replica])
        self.router.found(replica, self._clock.now_ns(), restarted=restarted)
        self.answers.dispatch_soon()

    def said(self, replica: int, what: str, value: str) -> None:
        self._identities.said(replica, what, value)

    # For operators -------------------------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        return self._accepting.now

    def now_ns(self) -> int:
        return self._clock.now_ns()

    @property
    def ready(self) -> bool:
        """Whether requests are let in and answered, perhaps by fewer models than planned."""
        return self.accepting and any(map(self.router.available.answers, self._placed))

    @property
    def degraded(self) -> list[str]:
        """Models without an engine that answers, so that others answer in their place."""
        return [self.tables.models[model] for model in self._placed if not self.router.available.answers(model)]

    @property
    def started(self) -> bool:
        return self._accepting.started

    @property
    def gear(self) -> int:
        return self.router.gear

    @property
    def pinned(self) -> bool:
        return self.router.pinned

    @property
    def load(self) -> float:
        return self.router.load

    @property
    def rate_qps(self) -> float:
        return self.looks.rate_qps

    @property
    def trace(self) -> LiveTrace:
        return self.looks.trace

    @property
    def waiting(self) -> int:
        return self.router.waiting

    @property
    def open_requests(self) -> int:
        return len(self.answers)

    @property
    def drifting_models(self) -> list[str]:
        """Models whose answers are not as recorded."""
        return self.certainties.drifting_models

    def outstanding(self, replica: int) -> int:
        return self.router.outstanding[replica]

    def replicas_ready(self, model: int) -> int:
        """Engines of the model that are there, and do not fail."""
        begin, end = self.tables.replica_begin[model : model + 2].tolist()
        return sum(map(self.replica_ready, range(begin, end)))

    def replica_ready(self, replica: int) -> bool:
        available = self.router.available
        return not (available.is_lost[replica] or available.ejections.is_failing(replica))

    def pin(self, gear: int | None) -> None:
        """Keep a gear in force, or let the load choose again."""
        before = self.router.gear
        if gear is None:
            self._journal.write("free", gear=before)
            self.router.pinned = False
            return
        self._journal.write("pin", gear=gear)
        self.router.pin(gear, self._clock.now_ns())
        if gear != before:
            self.looks.shifted(before)
        self.answers.dispatch_soon()
