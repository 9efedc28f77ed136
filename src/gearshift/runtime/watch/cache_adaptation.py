"""The adaptation service of learned caches: a process per model next to the workers.

This module draws answers of cached models, by hashes alone, and sends them to these processes. New
versions that come back go to all replicas.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from gearshift.errors import ModelFailed, WorkerDied
from gearshift.model import SCORES
from gearshift.observability.cache_metrics import CacheMetrics
from gearshift.observability.journal import Journal
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.watch.audit import AUDITED, NEITHER, drawn
from gearshift.request import Sample
from gearshift.runtime.backends.base import all_ended
from gearshift.runtime.backends.workers_backend import ReplicaListener, WorkersBackend
from gearshift.runtime.wire.messages import (
    Adopt,
    Attended,
    Drawn,
    Event,
    InUse,
    Load,
    Message,
    OperatorToLoad,
    ReplicaToLoad,
)
from gearshift.runtime.wire.transport import FrameError, pack_tensors, shortened
from gearshift.runtime.workers.cache_attendant import ANSWERED
from gearshift.runtime.workers.worker_process import WorkerProcess

LONGEST_START_S = 600.0
SHORTEST_RESTART_WAIT_S, LONGEST_RESTART_WAIT_S, LONG_WELL_S = 1.0, 300.0, 300.0
"""After a process has run for `LONG_WELL_S`, the restart wait begins at the shortest again."""
LONGEST_STOP_S = 5.0
WARNED = (
    "cache_off", "cache_version_unusable", "cache_state_unwritten", "cache_audits_lost", "cache_audits_unwritten",
    "cache_window_lost", "cache_window_unwritten", "cache_shared",
)  # fmt: skip

UNKNOWN = -1
"""A replica whose version is not known yet; its answers are not audited."""
Place = tuple[WorkersBackend, int]
"""A replica, and the backend that it belongs to."""

log = logging.getLogger(__name__)


class CacheAdaptation:
    """Attends to the learned caches of models; those of `adapting` also learn from requests.

    `projects` has the `gearshift.toml` of each model. `settings` are those of
    `gearshift.caches.adapting.settings.Adaptation` by name; the processes run on `core`, if given.
    A process is started with the first ready replica of its model, and again when it ends.
    """

    def __init__(
        self,
        projects: Mapping[str, Path],
        *,
        adapting: Collection[str],
        settings: Mapping[str, Any],
        seed: int = 0,
        core: int | None = None,
        metrics: CacheMetrics | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._projects, self._adapting, self._settings, self._seed = dict(projects), adapting, dict(settings), seed
        self._core, self._metrics, self._journal = core, metrics or CacheMetrics(), journal or Journal()
        self._told_not_finite: set[str] = set()
        self._attended: dict[str, _Attendance] = {}

    @property
    def audits(self) -> bool:
        return float(self._settings.get("audit_share", 0.0)) > 0

    def attend(self, projects: Mapping[str, Path], backend: WorkersBackend, tables: PlanTables) -> None:
        """Attend to these models in this backend, too, from its start on."""
        self._projects |= projects
        backend.listener = _CacheListener(backend, tables, self)

    def replica_ready(self, model: str, replica: int, backend: WorkersBackend) -> None:
        if model not in self._projects:
            return
        if model not in self._attended:
            adapts = model in self._adapting
            load = Load(
                operators=(OperatorToLoad(project=str(self._projects[model])),),
                replicas=(ReplicaToLoad(replica=0, model=model),),
                adaptation={**self._settings, "adapt": adapts, "seed": self._seed},
            )
            self._attended[model] = _Attendance(model, load, self._core, self._metrics, self._journal)
            self._attended[model].start()
        self._attended[model].replica_ready(replica, backend)

    def replica_lost(self, model: str, replica: int, backend: WorkersBackend) -> None:
        if model in self._attended:
            self._attended[model].replicas.pop((backend, replica), None)

    def samples_finished(self, model: str, samples: Sequence[Sample], place: Place) -> None:
        attended = self._attended.get(model)
        if attended is None:
            return
        audit_share = self._settings.get("audit_share", 0.0)
        learn_share = self._settings.get("learn_share", 0.0) if model in self._adapting else 0.0
        for sample in samples:
            kind = drawn(sample.request.id, sample.row, self._seed, audit_share, learn_share)
            if kind != NEITHER and not sample.error and not sample.unanswered:
                attended.take(sample, attended.replicas.get(place, UNKNOWN), audited=kind == AUDITED)

    def not_finite(self, model: str, count: int) -> None:
        self._metrics.not_finite.labels(model).inc(count)
        if model not in self._told_not_finite:
            self._told_not_finite.add(model)
            log.warning("hidden outputs of model %r held NaN or infinity; such samples go on as misses", model)

    def forget(self, backend: WorkersBackend) -> None:
        for attended in self._attended.values():
            attended.replicas = {at: version for at, version in attended.replicas.items() if at[0] is not backend}

    async def stop(self) -> None:
        """End all processes; what they have sampled is written to disk."""
        await all_ended(attended.stop() for attended in self._attended.values())


class _Attendance:
    def __init__(self, model: str, load: Load, core: int | None, metrics: CacheMetrics, journal: Journal) -> None:
        self._model, self._load, self._core, self._metrics, self._journal = model, load, core, metrics, journal
        self.replicas: dict[Place, int] = {}
        """The version that each replica looks up."""
        self._process: WorkerProcess | None = None
        self._in_use: tuple[InUse, bytes] | None = None
        self._counts: dict[str, float] = {}
        self._outcomes: dict[str, int] = {}
        self._adoptions: set[asyncio.Task[None]] = set()
        self._told_off: set[int] = set()
        self._retrains = False
        self._ended = asyncio.Event()
        self._how = ""
        self._work: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._metrics.begin(self._model)
        self._metrics.attended.labels(self._model).set(0)
        self._work = asyncio.get_running_loop().create_task(self._keep_running())

    def replica_ready(self, replica: int, backend: WorkersBackend) -> None:
        self.replicas[backend, replica] = UNKNOWN
        if self._in_use is not None:
            self._adopt([(backend, replica)], *self._in_use)

    def take(self, sample: Sample, version: int, *, audited: bool) -> None:
        """Send a sample and its answer to the process, unless that lags far behind or is gone."""
        arrays: dict[str, Any] = dict(sample.payload)  # type: ignore[call-overload]
        result: Any = sample.result
        scored = isinstance(result, dict) and SCORES in result
        if scored:
            arrays[ANSWERED] = np.asarray(result[SCORES])
        headers, buffers = pack_tensors(arrays)
        left = sample.exit_segment
        message = Drawn(audited=audited, version=version, exit_segment=left, tensors=headers, scored=scored)
        if self._process is None or not self._process.send(message, buffers):
            self._metrics.dropped(self._model)

    async def stop(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        if self._process is not None:
            await self._process.stop(longest_s=LONGEST_STOP_S)
        for adoption in self._adoptions:
            adoption.cancel()
        await asyncio.gather(*self._adoptions, return_exceptions=True)

    # The process -----------------------------------------------------------------------------------------------------

    async def _keep_running(self) -> None:
        """Start the process, and again after growing waits, unless the model has no caches."""
        wait_s = SHORTEST_RESTART_WAIT_S
        while True:
            self._ended.clear()
            cores = frozenset() if self._core is None else frozenset({self._core})
            process = WorkerProcess(
                cores=cores, on_done=lambda done, body: None, on_end=self._has_ended, on_other=self._said
            )
            try:
                await process.start(self._load, longest_s=LONGEST_START_S)
            except (ModelFailed, OSError) as error:
                self._journal.write("cache_unattended", model=self._model, why=str(error))
                log.warning("learned caches of model %r are not attended to: %s", self._model, error)
                return
            except WorkerDied as error:
                self._how = str(error)
            else:
                self._process = process
                self._metrics.attended.labels(self._model).set(1)
                self._journal.write(
                    "cache_attended", model=self._model, adapts=bool((self._load.adaptation or {})["adapt"])
                )
                began = monotonic()
                await self._ended.wait()
                if monotonic() - began > LONG_WELL_S:
                    wait_s = SHORTEST_RESTART_WAIT_S
            self._process, self._counts, self._outcomes = None, {}, {}
            self._metrics.attended.labels(self._model).set(0)
            self._metrics.restarts.labels(self._model).inc()
            self._tell_lost(wait_s)
            self._retrains = False
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_RESTART_WAIT_S)

    def _tell_lost(self, wait_s: float) -> None:
        meanwhile = " while it retrained them" if self._retrains else ""
        self._journal.write(
            "cache_attendant_lost", model=self._model, how=self._how, retraining=self._retrains, again_in_s=wait_s
        )
        log.warning(
            "the process that attends to the learned caches of model %r %s%s; they stay as they are, and it is "
            "started again in %g s", self._model, self._how, meanwhile, wait_s,
        )  # fmt: skip

    def _has_ended(self, how: str) -> None:
        self._how = how
        self._ended.set()

    def _said(self, message: Message, body: memoryview) -> None:
        try:
            match message:
                case InUse():
                    self._in_use = message, bytes(body)
                    self._adopt(list(self.replicas), *self._in_use)
                case Event():
                    self._tell(message)
                case Attended():
                    self._count(message)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # it also runs user code
            raise FrameError(f"{type(message).__name__} that is none ({shortened(str(error))})") from None

    def _tell(self, message: Event) -> None:
        self._journal.write(message.event, model=self._model, **message.facts)
        self._retrains = message.event == "cache_retraining"
        if message.event == "cache_off":
            facts = message.facts
            log.warning(
                "the learned cache of model %r after %s is switched off: of %d hits audited, the model disagrees with "
                "%d", self._model, facts["block"], facts["audited"], facts["disagreed"],
            )  # fmt: skip
        elif message.event in WARNED:
            log.warning("learned caches of model %r: %s, %s", self._model, message.event, message.facts.get("why"))
        elif message.event == "cache_retrained":
            outcome, why = message.facts["outcome"], message.facts.get("why", "better on the samples that judge it")
            level = logging.INFO if outcome in ("swapped", "set", "worse") else logging.WARNING
            log.log(level, "another version of the learned caches of model %r: %s, %s", self._model, outcome, why)

    def _count(self, message: Attended) -> None:
        self._metrics.count(self._model, self._counts, message.counts)
        self._counts = message.counts
        for outcome, times in message.outcomes.items():
            grown = times - self._outcomes.get(outcome, 0)
            self._metrics.retrainings.labels(self._model, outcome).inc(max(0, grown))
        self._outcomes = message.outcomes
        for layer in message.layers:
            bounds = {"estimate": layer.disagreed / layer.audited, "low": layer.low, "high": layer.high}
            for bound, value in bounds.items():
                self._metrics.disagreement.labels(self._model, str(layer.segment), bound).set(value)

    # Versions --------------------------------------------------------------------------------------------------------

    def _adopt(self, replicas: Collection[Place], in_use: InUse, weights: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._adopted(replicas, in_use, weights))
        self._adoptions.add(task)
        task.add_done_callback(self._adoptions.discard)
        self._metrics.version.labels(self._model).set(in_use.version)
        self._told_off |= set(in_use.off)
        for segment in self._told_off:
            self._metrics.off.labels(self._model, str(segment)).set(segment in in_use.off)

    async def _adopted(self, replicas: Collection[Place], in_use: InUse, weights: bytes) -> None:
        """Have replicas use this version between two batches, unless a newer one arrives."""
        for backend, replica in replicas:
            if self._in_use is None or self._in_use[0] is not in_use:
                return  # the task of the newer version covers all replicas
            message = Adopt(replica=replica, manifest=in_use.manifest, off=in_use.off)
            try:
                answer = await backend.adopt(message, weights)
            except WorkerDied:
                continue  # it gets the version when it is ready again
            if not answer.problem and (backend, replica) in self.replicas:
                self.replicas[backend, replica] = in_use.version
            if answer.problem:
                self._journal.write("cache_version_refused", model=self._model, replica=replica, why=answer.problem)
                log.warning("a replica of model %r keeps its learned caches: %s", self._model, answer.problem)
        self._journal.write(
            "cache_version", model=self._model, version=in_use.version, off=in_use.off, replicas=len(replicas)
        )


class _CacheListener(ReplicaListener):
    def __init__(self, backend: WorkersBackend, tables: PlanTables, caches: CacheAdaptation) -> None:
        self._backend, self._caches = backend, caches
        self._models = [tables.model_of(replica) for replica in range(len(tables.replica_ids))]

    def samples_finished(self, replica: int, samples: Sequence[Sample]) -> None:
        self._caches.samples_finished(self._models[replica], samples, (self._backend, replica))

    def not_finite(self, replica: int, count: int) -> None:
        self._caches.not_finite(self._models[replica], count)

    def replica_ready(self, replica: int) -> None:
        self._caches.replica_ready(self._models[replica], replica, self._backend)

    def replica_lost(self, replica: int) -> None:
        self._caches.replica_lost(self._models[replica], replica, self._backend)

    def stopped(self) -> None:
        self._caches.forget(self._backend)
