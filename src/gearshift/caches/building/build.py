"""From a PyTorch module and samples to a model with learned caches: explore, compose, wrap."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gearshift.caches.building.choosing import (
    Chosen,
    as_choice,
    choose,
    explained,
    leaves_after,
    problem_of,
    with_spares,
)
from gearshift.caches.building.evaluation import TIMED_ROWS, in_turn, timed
from gearshift.caches.building.exploration import (
    CHECKED_ROWS,
    COPIES,
    MOST_BYTES,
    WHERE,
    Exploration,
    Progress,
    explore_module,
)
from gearshift.caches.building.problem import Problem, exits_of, joint_outcome
from gearshift.caches.network.chain import Chain, Step, Steps, weights_sha256
from gearshift.caches.network.collect import Augment, as_tensor
from gearshift.caches.network.learned_cache import Factory, LearnedCache
from gearshift.caches.network.train import Explored, Training
from gearshift.caches.running.cached_model import CachedModel
from gearshift.caches.store.compiled_spans import Ahead, Compiler, NotCompiled, described, save_compiled
from gearshift.caches.store.manifest import CHECKED_SHARE, Lookups, Manifest, Measured, Variant
from gearshift.caches.store.validation import CHECK, JUDGE, Validation
from gearshift.caches.store.weights import save_caches
from gearshift.errors import require

LEAST_SAMPLES = 100
MOST_MEASURED_S = 15.0


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A model with learned caches, and the manifest of what was explored, chosen and expected.

    `spares` are caches by layer that only adaptation may use, `validation` the samples that it
    mixes with new ones. `compiled` are spans of segments between caches; `not_compiled` says why
    none were compiled although asked for. `left_out` is the number of variants that were not
    trained within `most_s`.
    """

    model: CachedModel
    manifest: Manifest
    spares: Mapping[int, LearnedCache]
    validation: Validation
    compiled: Mapping[tuple[int, int], Ahead] = field(default_factory=dict)
    not_compiled: str = ""
    left_out: int = 0

    def save(self, folder: Path | str) -> Manifest:
        """Write caches, samples and manifest, not the base weights; return the manifest."""
        self.validation.save(Path(folder))
        if self.manifest.compiled is not None:
            save_compiled(Path(folder), self.compiled, self.manifest.compiled)
        return save_caches(Path(folder), self.manifest, {**self.spares, **self.model.caches})


def build(
    module: nn.Module,
    inputs: NDArray[Any],
    labels: NDArray[Any] | None = None,
    *,
    accuracy: float = 0.97,
    confidence: float | None = None,
    blocks: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
    own: Mapping[str, Factory] | None = None,
    memory_budget_bytes: float = math.inf,
    most_delay: float = math.inf,
    training: Training | None = None,
    augment: Augment | None = None,
    copies: int = COPIES,
    lookups: Lookups = "inline",
    compiled: bool = False,
    out: Path | str | None = None,
    processes: int = 1,
    most_bytes: int = MOST_BYTES,
    most_s: float = math.inf,
    seed: int = 0,
    progress: Progress = lambda what, share: None,
) -> Built:
    """Build learned caches for `module` from `inputs` (n, ...) and, if known, `labels` (n,).

    The module must not have been trained on these samples.

    `accuracy` is the share of samples that must be answered as the module answers them: the mean
    on samples that did not choose the caches, or with a `confidence` its lower bound on them.
    `blocks` names the blocks to look after, by default they are found. `variants` are the
    predictors to try, `own` makes the user's, and `training` says how they are trained.

    `augment` alters rows of inputs, drawing from the generator that it is given. Predictors then
    also learn from this many `copies` of each sample and the module's answers to them; everything
    else uses only the samples as given.

    `lookups` are "inline", where they delay every row that misses, or "beside" the module, where
    one runs at a time and costs only its own delay. `most_delay` bounds the inline delay as a
    share of the module's time, which is how much the slowest answers may lose.

    `compiled` compiles the segments between caches for a single row, which takes minutes and a C++
    compiler, and chooses caches for that. If nothing can be compiled, `Built.not_compiled` says
    why.

    Variants are trained in the order of what they may save, and none is begun after `most_s`
    seconds; a later run with the same `out` trains the rest. With `out`, everything is written
    there, and an interrupted run resumes. With several `processes`, call this under `if __name__
    == "__main__":`.

    Raises `InvalidInput` for a module that is not a chain of blocks or does not answer class
    scores, for unusable hidden outputs, and for too few samples, with the number needed.
    """
    inputs, how = np.asarray(inputs), training or Training()
    as_tensor(inputs if inputs.ndim == 0 else inputs[:CHECKED_ROWS])
    _require_samples(len(inputs), accuracy, confidence)
    _require_bounds(memory_budget_bytes, most_delay, most_s)
    made = explore_module(
        module, inputs, labels,
        blocks=blocks, variants=variants, own=own, training=how, augment=augment, copies=copies, out=out,
        processes=processes, most_bytes=most_bytes, most_s=most_s, seed=seed, progress=progress,
    )  # fmt: skip
    chain = made.chain
    times = _timed(made, inputs, lookups, compiled=compiled, progress=progress)
    entries, problem, origins = problem_of(
        chain, made.explored, times.segment_s, times.lookup_s,
        how=how, target=accuracy, memory=memory_budget_bytes, most_delay=most_delay, beside=times.lookups == "beside",
    )  # fmt: skip
    progress("composing", 0.96)
    found = choose(problem, confidence, seed)
    told, caches, spares = _networks(entries, [made.explored[origin] for origin in origins], found, times)
    ahead, not_compiled = _compiled(chain, caches, times, progress)
    model = CachedModel(chain, caches, logits=made.answers.logits, lookups=times.lookups, compiled=ahead)
    progress("measuring", 0.99)
    compiler = times.compiler if ahead else None
    whole = None if compiler is None else compiler.span(0, len(chain) - 1).run
    manifest = Manifest(
        weights_sha256=weights_sha256(module),
        blocks=chain.names,
        blocks_named=blocks is not None,
        logits=made.answers.logits,
        classes=made.answers.probabilities.shape[1],
        target=accuracy,
        confidence=confidence,
        lower_bound=found.lower_bound,
        samples=found.judged.samples,
        memory_budget_bytes=None if math.isinf(memory_budget_bytes) else memory_budget_bytes,
        most_delay=None if math.isinf(most_delay) else most_delay,
        lookups=times.lookups,
        device=chain.device.type,
        segment_s=tuple(times.segment_s.tolist()),
        latency_s=joint_outcome(found.judged, found.variants).latency_s,
        accuracy=found.accuracy,
        exits=_exits(problem, found, len(chain)),
        variants=told,
        choices=tuple(as_choice(one) for one in found.choices),
        measured=_measured(model, inputs[made.split.check[:TIMED_ROWS]], whole) if caches or ahead else None,
        compiled=None if compiler is None else described(ahead, compiler.took_s),
    )
    built = Built(model, manifest, spares, _validation(inputs, made), ahead, not_compiled, made.left_out)
    return built if out is None else replace(built, manifest=built.save(out))


@dataclass(frozen=True, slots=True, eq=False)
class _Times:
    """How lookups run, and seconds of segments (segments,) and lookups.

    With a `compiler`, segments are as compiled; `not_compiled` says why there is none.
    """

    lookups: Lookups
    segment_s: NDArray[np.float64]
    lookup_s: list[float]
    compiler: Compiler | None = None
    not_compiled: str = ""


def _timed(made: Exploration, inputs: NDArray[Any], lookups: Lookups, *, compiled: bool, progress: Progress) -> _Times:
    progress("timing lookups", 0.92)
    times = _Times(*timed(made.chain, made.explored, inputs[made.split.check][:64], lookups))
    if not compiled:
        return times
    progress("compiling the module", 0.93)
    compiler = Compiler(made.chain, as_tensor(inputs[:1]).to(made.chain.device))
    try:
        return replace(times, segment_s=times.segment_s * compiler.share_of_plain(), compiler=compiler)
    except NotCompiled as error:
        return replace(times, not_compiled=str(error))


def _networks(
    entries: Sequence[Variant], explored: Sequence[Explored], found: Chosen, times: _Times
) -> tuple[tuple[Variant, ...], dict[int, LearnedCache], dict[int, LearnedCache]]:
    """Return all variants with why each is chosen or not, the caches in use, and spare ones.

    `explored` has the trained variant of each entry.
    """
    caches = {}
    for v in found.variants:
        trained = explored[v].trained
        threshold = trained.thresholds[trained.levels.index(entries[v].level)]
        caches[entries[v].layer] = _at_threshold(trained.cache, threshold)
    right_rate = [float(one.trained.right.mean()) for one in explored]
    reasons = explained(entries, found.judged, found.variants, found.price)
    told = with_spares(reasons, right_rate, times.segment_s.tolist())
    spare = [v for v, entry in enumerate(told) if entry.spare]
    return tuple(told), caches, {told[v].layer: _at_threshold(explored[v].trained.cache, math.inf) for v in spare}


def _at_threshold(cache: LearnedCache, threshold: float) -> LearnedCache:
    cache.requires_grad_(False).threshold.fill_(threshold)
    return cache


def _compiled(
    chain: Chain, caches: Mapping[int, LearnedCache], times: _Times, progress: Progress
) -> tuple[Mapping[tuple[int, int], Ahead], str]:
    """Return the compiled spans between `caches`, or why there are none although asked for."""
    compiler = times.compiler
    if compiler is None:
        return {}, times.not_compiled
    progress("compiling segments", 0.97)
    try:
        return {span: compiler.span(*span) for span in Steps(chain).ends(caches).items()}, ""
    except NotCompiled as error:
        return {}, str(error)


def _exits(problem: Problem, found: Chosen, segments: int) -> tuple[float, ...]:
    left = np.array([*leaves_after(problem)[list(found.variants)], segments - 1])
    exits = np.bincount(left[exits_of(found.judged, found.variants)], minlength=segments)
    return tuple((exits / found.judged.samples).tolist())


def _validation(inputs: NDArray[Any], made: Exploration) -> Validation:
    part = np.zeros(len(inputs), dtype=np.uint8)
    part[made.split.judge], part[made.split.check] = JUDGE, CHECK
    labels = made.answers.best if made.labels is None else made.labels
    return Validation(inputs, labels, made.answers.probabilities, part)


def _measured(model: CachedModel, rows: NDArray[Any], whole: Step | None) -> Measured:
    times = in_turn(model, rows, *(() if whole is None else (whole,)), most_s=MOST_MEASURED_S)
    module_s, folded_s, cached_s, *compiled_s = times.mean(axis=1).tolist()
    return Measured(
        rows=times.shape[1],
        module_s=module_s,
        folded_s=folded_s,
        cached_s=cached_s,
        compiled_s=compiled_s[0] if compiled_s else None,
    )


def samples_to_show(accuracy: float, confidence: float) -> int:
    """Return the fewest samples that can show an accuracy below 1 with this confidence."""
    tested = math.ceil(math.log(1 - confidence) / math.log(accuracy))
    return max(LEAST_SAMPLES, math.ceil(2 * tested / CHECKED_SHARE) + 10)


def _require_samples(n: int, accuracy: float, confidence: float | None) -> None:
    surely = "; no samples show that a learned cache is never mistaken" if accuracy == 1 else ""
    told = f"accuracy is {accuracy:g}{surely}"
    require(0 < accuracy < 1, told, where=WHERE, remedy="give a share above 0 and below 1")
    needed = LEAST_SAMPLES
    if confidence is not None:
        given = f"confidence is {confidence:g}"
        require(0 < confidence < 1, given, where=WHERE, remedy="give a share above 0 and below 1")
        needed = samples_to_show(accuracy, confidence)
    asked = "" if confidence is None else f" to show accuracy {accuracy:g} with confidence {confidence:g}"
    require(n >= needed, f"{n} samples are too few{asked}", where=WHERE, remedy=f"give at least {needed}")


def _require_bounds(memory_budget_bytes: float, most_delay: float, most_s: float) -> None:
    few = f"memory_budget_bytes is {memory_budget_bytes:g}"
    require(memory_budget_bytes >= 0, few, where=WHERE, remedy="give 0 or more")
    require(most_s > 0, f"most_s is {most_s:g}", where=WHERE, remedy="give seconds above 0")
    require(most_delay >= 0, f"most_delay is {most_delay:g}", where=WHERE, remedy="give a share, 0 or more")
