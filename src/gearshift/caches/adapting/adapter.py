"""Adapt and audit learned caches, on a sample of requests and at times that the caller gives.

Gati section 5.3: sampled inputs are kept in a window and run through the whole base model in the
background. From time to time the networks are trained further on them and on samples of the build,
and swapped in if that is better. Labels always come from the base model, never from a cache, and
an audited sample is never learnt from.
"""

import logging
from collections.abc import Callable, Sequence
from itertools import islice
from time import perf_counter
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.caches.adapting.auditor import AuditCounts, Auditor
from gearshift.caches.adapting.class_mix import ClassMix
from gearshift.caches.adapting.retrain import Retrained
from gearshift.caches.adapting.schedule import Schedule
from gearshift.caches.adapting.settings import Adaptation, Counts, Tell
from gearshift.caches.adapting.successor import Verdict, VersionInUse, manifest_of, successor, trained_further
from gearshift.caches.adapting.training_samples import Recent, TrainingSamples, role_of
from gearshift.caches.network.train import TrainingDiverged
from gearshift.caches.running.cached_model import EXIT_SEGMENT, SCORES, Answer, CachedModel
from gearshift.caches.store.manifest import CLASS_MIX, Adapted
from gearshift.caches.store.validation import Validation, read_validation
from gearshift.caches.store.versions import Off, State, drop, prune
from gearshift.errors import GearshiftError, InvalidInput
from gearshift.policies.watch.audit import AUDITED, LEARNT, drawn

MOST_TO_LEARN = 1000
SAVED_EVERY = 0.25
"""The window is saved for a restart after each such share of the interval."""

NAMED_AT_ONCE = 64
log = logging.getLogger(__name__)
Outcome = Literal["swapped", "set", "worse", "diverged", "out_of_memory", "failed"]


class Adapter:
    """Audit the learned caches of `model` and adapt them; the model uses a new version at once.

    `tell` receives every event. `changed` is called when another version is in use or a cache is
    switched off. Counts and samples are written to the folder only while `keeps()` is true,
    because only one process may write them. Made by `open_adapter`.
    """

    def __init__(
        self,
        model: CachedModel,
        settings: Adaptation,
        validation: Validation | None,
        *,
        now_s: float,
        seed: int,
        tell: Tell,
        changed: Callable[[], None],
        keeps: Callable[[], bool],
    ) -> None:
        self.model, self.settings = model, settings
        self._validation, self._seed, self._tell, self._changed = validation, seed, tell, changed
        self._keeps = keeps
        self.counts = Counts()
        generator = np.random.default_rng([seed, 53])
        self._samples = TrainingSamples(model.chain, settings, validation, self.counts, generator, logits=model.logits)
        self.window = self._samples.window
        self._auditor = Auditor(model, self._samples, self.counts)
        self._schedule = Schedule(settings)
        self.window.retrained_s = self._saved_s = now_s
        self._unsaved, self._answers = False, 0
        self._due_since_s: float | None = None
        self.in_use = VersionInUse(model)
        self.folder, self._unusable = self.in_use.folder, ""
        self._classes: ClassMix | None = None

    # Samples ---------------------------------------------------------------------------------------------------------

    def answered(self, rows: NDArray[Any], answer: Answer, now_s: float) -> None:
        last = len(self.model.chain) - 1
        for row, scores, exit_segment in zip(rows, answer[SCORES], answer[EXIT_SEGMENT].tolist(), strict=True):
            self._answers += 1
            kind = drawn(self._answers, 0, self._seed, self.settings.audit_share, self.settings.learn_share)
            if kind == AUDITED:
                self.audit(row, exit_segment, int(scores.argmax()))
            elif kind == LEARNT and self.settings.adapt:
                self.learn(row, exit_segment, now_s, scores if exit_segment == last else None)

    def learn(
        self, row: NDArray[Any], exit_segment: int, now_s: float, probabilities: NDArray[Any] | None = None
    ) -> None:
        """`probabilities` (classes,) are the base model's, if it ran to the end."""
        self._schedule.watch(left_early=exit_segment < len(self.model.chain) - 1)
        if not self.in_use.networks:
            return
        if self._validation is not None and row.shape != self._validation.inputs.shape[1:]:
            self.counts.unusable += 1  # its shape differs from the samples of the build
            return
        if self.window.waiting >= MOST_TO_LEARN:
            self.counts.dropped += 1
            return
        self.counts.learnt += 1
        self._schedule.fresh += 1
        self._unsaved = True
        role = role_of(row, self._seed)
        known = None if probabilities is None else np.array(probabilities, dtype=np.float32)
        usable = known is not None and known.shape == (self.in_use.manifest.classes,) and bool(np.isfinite(known).all())
        self.window.add(Recent(np.array(row), now_s, role, known if usable else None), now_s)

    def audit(self, row: NDArray[Any], exit_segment: int, label: int) -> None:
        self._schedule.watch(left_early=exit_segment < len(self.model.chain) - 1)
        self._auditor.add(row, exit_segment, label)

    # Work ------------------------------------------------------------------------------------------------------------

    def step(self, now_s: float) -> bool:
        """Do a slice of work; return False if there is none.

        A due retraining waits only for samples that were there when it became due.
        """
        if self._unsaved and now_s - self._saved_s >= SAVED_EVERY * self.settings.interval_s:
            self._saved_s = now_s
            self.save()
        audited = self._auditor.waits
        self._unsaved |= audited
        for layer in self._auditor.breaches():
            self._switch_off(layer, now_s)
        self.window.trim(now_s)
        named = self._name_some()
        reason = self.due(now_s)
        self._due_since_s = (now_s if self._due_since_s is None else self._due_since_s) if reason else None
        if self.settings.adapt and self._samples.look(until_s=self._due_since_s):
            return True
        if reason:
            self.retrain(reason, now_s)
        return audited or named or bool(reason)

    def _name_some(self) -> bool:
        named = list(islice(self.window.named(), NAMED_AT_ONCE))
        for answer, at_s in named if self._follows else ():
            if self._classes is not None:
                self._classes.add(answer, at_s)
        return len(named) == NAMED_AT_ONCE

    @property
    def _follows(self) -> bool:
        """Never with a confidence: samples of the build cannot show one for another class mix."""
        return self.settings.follow_classes and self.in_use.manifest.confidence is None

    def due(self, now_s: float) -> str:
        reason = self._schedule.due(now_s, self._samples, self._classes)
        return reason if reason and self._keeps() else ""

    def retrain(self, reason: str, now_s: float) -> Outcome:
        """Retrain, and swap in the result if it is better on recent samples that were held back.

        For `CLASS_MIX` nothing is trained. A failure is reported, and the version in use stays.
        """
        trains = reason != CLASS_MIX
        self._tell("cache_retraining", reason=reason, samples=len(self.window), version=self.model.version)
        began = perf_counter()
        if trains:
            self.window.retrained_s = self._saved_s = now_s
            self.save()  # before training, which a kill would repeat at each restart
        outcome, facts = self._attempt(reason, now_s)
        if trains:
            self._schedule.fresh, self._schedule.sooner = 0, ""
        if self._classes is not None and (not trains or outcome == "swapped"):
            self._classes.taken()
        self._due_since_s = None
        if trains or outcome == "set":
            self._schedule.watch_anew()
        took_s = perf_counter() - began
        self.counts.retraining_s += took_s
        self.counts.outcomes[outcome] = self.counts.outcomes.get(outcome, 0) + 1
        self._tell("cache_retrained", outcome=outcome, took_s=round(took_s, 3), version=self.model.version, **facts)
        if outcome in ("swapped", "set"):
            self._changed()
        if trains:
            self.save()
        else:  # frequent, and the window may be large
            self._save_audits()
        return outcome

    def _attempt(self, reason: str, now_s: float) -> tuple[Outcome, dict[str, object]]:
        try:
            return self._replaced(reason, now_s)
        except TrainingDiverged as error:
            return "diverged", {"why": str(error)}
        except (MemoryError, RuntimeError) as error:
            no_memory = isinstance(error, MemoryError) or "memory" in str(error)
            return "out_of_memory" if no_memory else "failed", {"why": " ".join(str(error).split())[:300]}
        except (GearshiftError, OSError) as error:
            return "failed", {"why": str(error)}
        except Exception as error:  # whatever failed, audits of the version in use continue
            log.exception("a retraining of learned caches failed")
            return "failed", {"why": f"{type(error).__name__}: {error}"}

    def _switch_off(self, layer: int, now_s: float) -> None:
        audited = self._auditor.audit.layers[layer]
        off = Off(
            layer=layer,
            block=self.model.chain.names[layer],
            audited=audited.audited,
            disagreed=audited.disagreed,
            low=audited.interval[0],
            at_s=now_s,
        )
        try:
            self.in_use.switch_off(off)
        except (InvalidInput, OSError) as error:
            self._tell("cache_state_unwritten", why=str(error))
        self._pass_by([layer])
        self._save_audits()
        self._schedule.sooner = "audit"
        facts = msgspec.structs.asdict(off)
        self._tell("cache_off", **facts, target=self.in_use.manifest.target, version=self.model.version)
        self._changed()

    def _pass_by(self, layers: Sequence[int]) -> None:
        for layer in layers:
            self._auditor.audit.switched_off(layer)
        self.in_use.pass_by(layers)

    # Retraining ------------------------------------------------------------------------------------------------------

    def _replaced(self, reason: str, now_s: float) -> tuple[Outcome, dict[str, object]]:
        if self._classes is None:
            raise InvalidInput("it audits alone", where="learned caches", remedy="open the adapter with adapt")
        trains = reason != CLASS_MIX
        current, samples, classes = self.in_use, self._samples, self._classes
        trained = None
        if trains:
            device = self.model.chain.device
            trained = trained_further(current, samples, classes, self.settings, now_s, self._seed, device)
        made = successor(current, samples, classes, now_s, self._seed, trained, follows=self._follows)
        if made.found is None:
            return "worse", made.facts
        self._swap_in(made.found, made, reason, now_s)
        return "swapped" if trains else "set", made.facts

    def _swap_in(self, found: Retrained, made: Verdict, reason: str, now_s: float) -> None:
        """Write a version and use it; one for a class mix replaces the last of that kind."""
        same, replaced, last = reason == CLASS_MIX, self.model.version, self.in_use.manifest.adapted
        from_same = same and last is not None and last.reason == CLASS_MIX
        adapted = Adapted(
            number=0,
            before=last.before if from_same and last is not None else replaced,
            at_s=now_s,
            reason=reason,
            trained=0 if same else self._samples.trained,
            accuracy_before=made.before.agreement,
            latency_s_before=made.before.latency_s,
            class_mix=tuple(made.mix.answers.tolist()),
        )
        manifest = manifest_of(self.in_use.manifest, found, made, adapted)
        self.in_use.replace(manifest, found.networks, stay_off=same)
        self._taken(same_weights=same)
        if from_same:
            drop(self.folder, replaced)
        prune(self.folder, self.settings.most_versions)

    # Versions --------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Follow a rollback or a cache switched off by another process; report a failure."""
        try:
            state = self.in_use.unknown_state()
            if state is not None:
                self._follow(state)
            self._unusable = ""
        except (InvalidInput, OSError) as error:
            if self._unusable != str(error):
                self._unusable = str(error)
                self._tell("cache_version_unusable", why=self._unusable)

    def _follow(self, state: State) -> None:
        if state.current == self.model.version and set(state.layers_off) > set(self.in_use.known[1]):
            self.in_use.known = state.current, state.layers_off  # another server has switched a cache off
            self._pass_by([layer for layer in state.layers_off if layer not in self.model.layers_off])
        else:
            self.take_version(state.current, state.layers_off)
            if self._classes is not None and self.in_use.manifest.adapted is not None:
                self._classes.due = True  # it was set for an earlier class mix
            self._unsaved = True
            self._tell("cache_rolled_back", version=state.current)
        self._changed()

    def take_version(self, number: int, off: Sequence[int]) -> None:
        """Use a version in the folder; raises `InvalidInput` if broken or of another build."""
        self.in_use.take(number, off)
        self._taken(same_weights=False)

    def _taken(self, *, same_weights: bool) -> None:
        self._samples.use(self.in_use.networks, same_weights=same_weights)
        self._auditor.use(self._auditor.audit if same_weights else AuditCounts(self.in_use.manifest.target))

    def content(self) -> tuple[bytes, bytes]:
        return self.in_use.content()

    def audited(self) -> dict[int, tuple[int, int, float, float]]:
        return {layer: (one.audited, one.disagreed, *one.interval) for layer, one in self._auditor.audit.layers.items()}

    # State -----------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write audit counts and the window for a restart; a failure is reported, not raised."""
        self._unsaved = False
        self._save_audits()
        if not self.settings.adapt or not self._keeps():
            return  # only a server that adapts owns the window in the folder
        try:
            self.window.save(self.folder)
        except (InvalidInput, OSError, ValueError, MemoryError) as error:
            self._tell("cache_window_unwritten", why=str(error) or "no memory is left")

    def _save_audits(self) -> None:
        if self._unusable or not self._keeps():
            return  # another build or another process owns the folder; already reported
        try:
            self._auditor.audit.save(self.folder, self.in_use.built, self.model.version)
        except (InvalidInput, OSError) as error:
            self._tell("cache_audits_unwritten", why=str(error))

    def follow(self, built: Validation) -> None:
        answers, adapted = built.probabilities.argmax(axis=1), self.in_use.manifest.adapted
        mix = () if adapted is None else adapted.class_mix
        self._classes = ClassMix(answers, built.labels, self.in_use.manifest.classes, mix)
        of_the_build = not mix or np.allclose(mix, self._classes.built.answers)
        self._classes.due = not of_the_build and not self._follows  # return to the build's mix

    def restore(self, now_s: float) -> None:
        keeps = self._keeps()
        if not keeps:
            self._tell("cache_shared", why="another process keeps its counts and samples there; ours begin anew")
        elif why := self._auditor.audit.load(self.folder, self.in_use.built, self.model.version, self.in_use.networks):
            self._tell("cache_audits_lost", why=why)
        for layer in self.model.layers_off:
            self._auditor.audit.switched_off(layer)
        if self._classes is not None and keeps:
            self._restore_window(now_s)

    def _restore_window(self, now_s: float) -> None:
        shape = None if self._validation is None else self._validation.inputs.shape[1:]
        if why := self.window.load(self.folder, now_s, shape, self.in_use.manifest.classes):
            self._tell("cache_window_lost", why=why)
        self._schedule.fresh = sum(sample.at_s > self.window.retrained_s for sample in self.window)
        for _ in self.window.named():
            pass  # already counted in the mix of the version in use


def open_adapter(
    model: CachedModel,
    settings: Adaptation | None = None,
    *,
    now_s: float = 0.0,
    seed: int = 0,
    tell: Tell = lambda event, **facts: None,
    changed: Callable[[], None] = lambda: None,
    keeps: Callable[[], bool] = lambda: True,
) -> Adapter:
    """Open an adapter for a model that was loaded from a folder; it resumes saved state.

    While `keeps()` is false, which may change, only versions and switched-off caches are read or
    written there.

    Raises `InvalidInput` if the model was not loaded from a folder, if the folder now holds
    another build, or if the samples that the caches were built from are missing.
    """
    settings = settings or Adaptation()
    validation = whole = None
    if settings.adapt:
        whole = read_validation(model.loaded_from().folder)
        validation = whole.some(settings.most_validation, seed)
    adapter = Adapter(model, settings, validation, now_s=now_s, seed=seed, tell=tell, changed=changed, keeps=keeps)
    adapter.take_version(model.version, model.layers_off)
    if whole is not None:
        adapter.follow(whole)
    adapter.restore(now_s)
    return adapter
