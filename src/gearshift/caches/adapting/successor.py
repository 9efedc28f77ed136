"""The version of learned caches in use while they are adapted, and candidates that may replace it."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec
import torch

from gearshift.caches.adapting.class_mix import ClassMix, Mix, mix_of
from gearshift.caches.adapting.retrain import (
    STRICTER,
    Counted,
    Judged,
    Retrained,
    contradicted,
    judge,
    offers_of,
    retrain,
    shown,
    weak_class,
    with_prior,
    worse,
)
from gearshift.caches.adapting.settings import Adaptation
from gearshift.caches.adapting.training_samples import CHECK, HOLD, JUDGE, TrainingSamples
from gearshift.caches.network.learned_cache import LearnedCache
from gearshift.caches.network.train import Training
from gearshift.caches.running.cached_model import CachedModel
from gearshift.caches.store.manifest import MANIFEST, Adapted, Manifest, read_manifest
from gearshift.caches.store.versions import (
    Off,
    State,
    drop,
    read_state,
    require_built,
    switch_off,
    switch_to,
    version_folder,
)
from gearshift.caches.store.weights import add_version, in_use, networks_of, weights_of
from gearshift.errors import InvalidInput


class VersionInUse:
    """Manifest and `networks` by layer, with spare ones; call `take` first.

    `known` is the version in use, and the layers switched off, as the folder last said.
    """

    manifest: Manifest
    known: tuple[int, tuple[int, ...]]

    def __init__(self, model: CachedModel) -> None:
        origin = model.loaded_from()
        self.model, self._own = model, origin.own
        self.folder, self.built = origin.folder, origin.built
        self.networks: dict[int, LearnedCache] = {}
        self._weights = b""

    def take(self, number: int, off: Sequence[int]) -> None:
        """Use a version in the folder; raises `InvalidInput` if broken or of another build."""
        home = version_folder(self.folder, number)
        manifest = read_manifest(home)
        weights = weights_of(home, manifest)
        require_built(self.folder, self.built)
        networks = networks_of(manifest, weights, self._own, where=str(home / MANIFEST))
        self._use(manifest, networks, weights, off, number)

    def replace(self, manifest: Manifest, networks: dict[int, LearnedCache], *, stay_off: bool) -> None:
        """Write another version and use it; raises `InvalidInput` if another process chose one."""
        written = add_version(self.folder, manifest, networks, built=self.built)
        assert written.adapted is not None
        number = written.adapted.number
        try:
            state = switch_to(self.folder, number, built=self.built, stay_off=stay_off, instead_of=self.known)
        except InvalidInput:
            drop(self.folder, number)
            raise
        weights = weights_of(version_folder(self.folder, number), written)
        self._use(written, networks, weights, state.layers_off, number)

    def switch_off(self, off: Off) -> None:
        """Write that a cache is switched off, unless another version is in use by now."""
        state = switch_off(self.folder, self.model.version, off, built=self.built)
        if state.current == self.model.version:
            self.known = state.current, tuple(sorted({*self.known[1], off.layer}))

    def pass_by(self, layers: Collection[int]) -> None:
        """Look up no caches after these layers from now on."""
        off = {*self.model.layers_off, *layers}
        self.model.use(in_use(self.manifest, self.networks), off, version=self.model.version)

    def unknown_state(self) -> State | None:
        """Return the folder's state if it differs from the known one.

        Raises `InvalidInput` if the folder holds another build.
        """
        state = read_state(self.folder)
        require_built(self.folder, self.built)
        return None if (state.current, state.layers_off) == self.known else state

    def content(self) -> tuple[bytes, bytes]:
        return msgspec.json.encode(self.manifest), self._weights

    def _use(
        self, manifest: Manifest, networks: dict[int, LearnedCache], weights: bytes, off: Sequence[int], number: int
    ) -> None:
        self.manifest, self._weights, self.known = manifest, weights, (number, tuple(sorted(off)))
        self.networks = {layer: network.to(self.model.chain.device) for layer, network in networks.items()}
        self.model.use(in_use(manifest, self.networks), off, version=number)


LEAST_HELD = 10
"""Fewest held-back samples of the current mix that judge a training; below, all held back do."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verdict:
    """The candidate `found`, None if nothing is better, and the samples that judged it."""

    found: Retrained | None
    before: Judged
    after: Judged
    by: Counted
    mix: Mix
    facts: dict[str, object]


def trained_further(
    current: VersionInUse,
    training_samples: TrainingSamples,
    classes: ClassMix,
    settings: Adaptation,
    now_s: float,
    seed: int,
    device: torch.device,
) -> dict[int, LearnedCache]:
    """Train the networks further.

    Raises `TrainingDiverged`, and `InvalidInput` as `TrainingSamples.fit`.
    """
    fit, how = training_samples.fit(now_s), Training(epochs=settings.epochs, learning_rate=settings.learning_rate)
    start = with_prior(current.networks, classes.prior(mix_of(fit.classes, current.manifest.classes)))
    return retrain(start, fit, training_samples.selectors(now_s), how, seed, device)


def successor(
    current: VersionInUse,
    training_samples: TrainingSamples,
    classes: ClassMix,
    now_s: float,
    seed: int,
    trained: dict[int, LearnedCache] | None = None,
    *,
    follows: bool,
) -> Verdict:
    """Choose the best caches from networks `trained`, or else in use, for the current class mix.

    If it `follows` that mix; otherwise for that of the build.

    Choices for ever less of the allowed disagreement are judged in order, until one is good.
    Raises `InvalidInput` if samples to judge by have not run yet.
    """
    manifest, networks = current.manifest, current.networks if trained is None else trained
    mix = classes.now() if follows else classes.built
    now, then, held = _judges(current, training_samples, classes, mix, now_s, trained)
    samples = training_samples.counted(networks, (JUDGE, CHECK), now_s, mix, classes.built)
    off = current.model.layers_off if trained is None else ()
    offers = offers_of(with_prior(networks, classes.prior(mix.answers)), samples, manifest, seed, off)
    before, refused = judge(current.model.caches, now, manifest), list[Verdict]()
    for allowed in STRICTER:
        found = offers.chosen(1 - allowed * (1 - manifest.target))
        after = judge(found.in_use, then, manifest)
        facts: dict[str, object] = {
            "agreement": round(after.agreement, 4),
            "agreement_before": round(before.agreement, 4),
            "latency_s": after.latency_s,
            "latency_s_before": before.latency_s,
            "judged_by": len(then.predictions),
            "allowed": allowed,
            "most_frequent": int(mix.answers.argmax()),
            "most_frequent_share": round(float(mix.answers.max()), 3),
        }
        why = worse(before, after, manifest, then.like) or _spoken_against(current, found, held)
        if not why and not follows:
            weak = weak_class(found.in_use, training_samples.judging_classes(networks), manifest)
            why = "" if weak is None else f"agrees on {weak[1]:.2%} of class {weak[0]} among the samples of the build"
        if not why:
            return Verdict(found=found, before=before, after=after, by=then, mix=mix, facts=facts)
        refused.append(Verdict(found=None, before=before, after=after, by=then, mix=mix, facts={"why": why, **facts}))
    return refused[0]


def manifest_of(current: Manifest, found: Retrained, made: Verdict, adapted: Adapted) -> Manifest:
    """Return the manifest of the version `found`, made from the one in use; it has no number yet."""
    return msgspec.structs.replace(
        current,
        variants=found.variants,
        choices=(),
        lower_bound=shown(made.after, made.by.like, current.confidence),
        samples=len(made.by.predictions),
        accuracy=made.after.agreement,
        latency_s=made.after.latency_s,
        exits=made.after.exits,
        adapted=adapted,
        measured=None,
        compiled=None,
    )


def _judges(
    current: VersionInUse,
    training_samples: TrainingSamples,
    classes: ClassMix,
    mix: Mix,
    now_s: float,
    trained: dict[int, LearnedCache] | None,
) -> tuple[Counted, Counted, Counted | None]:
    """Return samples that judge the version in use, samples for its successor, and a veto or None.

    Trained networks are judged by samples that were held back. A new setting alone is judged by
    samples of the build too, since few are held back of a mix that has just begun; those can only
    veto it.
    """
    if trained is None:
        both = training_samples.counted(current.networks, (HOLD,), now_s, mix, classes.built)
        return both, both, training_samples.held_back(current.networks, now_s, mix.since_s)
    since_s = mix.since_s if training_samples.held_since(mix.since_s) >= LEAST_HELD else -math.inf
    now, then = (training_samples.held_back(one, now_s, since_s) for one in (current.networks, trained))
    if now is None or then is None:
        raise InvalidInput("no sample is held back yet", where="adaptation", remedy="sample more, or wait longer")
    return now, then, None


def _spoken_against(current: VersionInUse, found: Retrained, held: Counted | None) -> str:
    if held is None:
        return ""
    now, then = (judge(one, held, current.manifest) for one in (current.model.caches, found.in_use))
    return contradicted(now, then, current.manifest.target, held.like)
