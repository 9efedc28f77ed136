"""From a PyTorch module and samples to a model with learned caches: explore, compose, wrap."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from gearshift.caches.building.choosing import (
    as_choice,
    choose,
    explained,
    leaves_after,
    problem_of,
    with_spares,
)
from gearshift.caches.building.exploration import (
    Explored,
    Progress,
    Split,
    explore,
    split_rows,
)
from gearshift.caches.building.problem import exits_of, joint_outcome
from gearshift.caches.building.timing import TIMED_ROWS, in_turn, timed
from gearshift.caches.network.chain import Chain, Step, Steps, check_chain, weights_sha256
from gearshift.caches.network.collect import Augment, BaseAnswers, as_tensor, with_copies
from gearshift.caches.network.learned_cache import LearnedCache
from gearshift.caches.network.predictors import Factory
from gearshift.caches.network.tracing import chain_of
from gearshift.caches.network.train import Training
from gearshift.caches.running.cached_model import CachedModel
from gearshift.caches.store.compiled_spans import Ahead, Compiler, NotCompiled, described, save_compiled
from gearshift.caches.store.manifest import CHECKED_SHARE, Lookups, Manifest, Measured
from gearshift.caches.store.validation import CHECK, JUDGE, Validation
from gearshift.caches.store.weights import save_caches
from gearshift.errors import InvalidInput, require
from gearshift.models.classes import class_names

WHERE = "learned caches"
LEAST_SAMPLES = 100
CHECKED_ROWS = 8
MOST_BYTES = 8 << 30
MOST_MEASURED_S = 15.0
COPIES = 4
"""Altered copies of each sample that predictors learn from, if `augment` is given."""


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


@dataclass(frozen=True, slots=True, eq=False)
class Exploration:
    """Trained variants after every block but the last, and the split of the samples.

    `left_out` variants were not trained within `most_s`. `answers` are the base model's; `labels`
    (n,) are class numbers, if known.
    """

    chain: Chain
    answers: BaseAnswers
    explored: list[Explored]
    split: Split
    labels: NDArray[np.int64] | None
    left_out: int


@contextmanager
def _scratch() -> Iterator[Path]:
    try:
        made = TemporaryDirectory()
    except OSError as error:
        raise InvalidInput(
            f"no folder for hidden outputs can be made ({error.strerror})",
            remedy="give out=, or set TMPDIR to a folder that can be written",
        ) from None
    with made as folder:
        yield Path(folder)


def explore_module(
    module: nn.Module,
    inputs: NDArray[Any],
    labels: NDArray[Any] | None = None,
    *,
    blocks: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
    own: Mapping[str, Factory] | None = None,
    training: Training | None = None,
    augment: Augment | None = None,
    copies: int = COPIES,
    out: Path | str | None = None,
    processes: int = 1,
    most_bytes: int = MOST_BYTES,
    most_s: float = math.inf,
    seed: int = 0,
    progress: Progress = lambda what, share: None,
) -> Exploration:
    """Train the variants that `build` chooses from, with the same arguments, errors and `out`."""
    chain = chain_of(module, blocks)
    classes = check_chain(chain, as_tensor(inputs[:CHECKED_ROWS]).to(chain.device))
    known = None if labels is None else class_numbers(module, np.asarray(labels), len(inputs), classes)
    split = split_rows(len(inputs), seed)
    require(copies > 0, f"copies is {copies}", where="augment", remedy="give 1 or more")
    with ExitStack() as stack:
        folder = stack.enter_context(_scratch()) if out is None else Path(out) / "exploration"
        everything = inputs
        if augment is not None:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / "inputs.npy"
            stack.callback(path.unlink, missing_ok=True)
            everything = with_copies(inputs, split.fit, augment, copies, seed, path)
        answers, explored, left_out = explore(
            chain, everything, known, split, folder,
            variants=variants, own=own or {}, how=training or Training(), seed=seed, processes=processes,
            most_bytes=most_bytes, most_s=most_s, progress=progress,
            key=_key(weights_sha256(module), everything, known, chain.names),
        )  # fmt: skip
    return Exploration(chain, answers, explored, split, known, left_out)


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
    few = f"memory_budget_bytes is {memory_budget_bytes:g}"
    require(memory_budget_bytes >= 0, few, where=WHERE, remedy="give 0 or more")
    require(most_s > 0, f"most_s is {most_s:g}", where=WHERE, remedy="give seconds above 0")
    require(most_delay >= 0, f"most_delay is {most_delay:g}", where=WHERE, remedy="give a share, 0 or more")
    made = explore_module(
        module, inputs, labels,
        blocks=blocks, variants=variants, own=own, training=how, augment=augment, copies=copies, out=out,
        processes=processes, most_bytes=most_bytes, most_s=most_s, seed=seed, progress=progress,
    )  # fmt: skip
    chain, answers, explored, split, known = made.chain, made.answers, made.explored, made.split, made.labels
    weights, classes = weights_sha256(module), answers.probabilities.shape[1]
    progress("timing lookups", 0.92)
    timed_as, segment_s, lookup_s = timed(chain, explored, inputs[split.check][:64], lookups)
    compiler, not_compiled = None, ""
    if compiled:
        progress("compiling the module", 0.93)
        compiler = Compiler(chain, as_tensor(inputs[:1]).to(chain.device))
        try:
            segment_s = segment_s * compiler.share_of_plain()
        except NotCompiled as error:
            compiler, not_compiled = None, str(error)
    entries, problem, origins = problem_of(
        chain, explored, segment_s, lookup_s,
        how=how, target=accuracy, memory=memory_budget_bytes, most_delay=most_delay, beside=timed_as == "beside",
    )  # fmt: skip
    progress("composing", 0.96)
    found = choose(problem, confidence, seed)
    chosen, judged = found.variants, found.judged
    caches = {}
    for v in chosen:
        cache = explored[origins[v]].trained.cache.requires_grad_(False)
        caches[entries[v].layer] = _at_threshold(cache, _threshold_of(explored[origins[v]], entries[v].level))
    right_rate = [float(explored[origin].trained.right.mean()) for origin in origins]
    told = with_spares(explained(entries, judged, chosen, found.price), right_rate, segment_s.tolist())
    spares = {
        entry.layer: _at_threshold(explored[origins[v]].trained.cache.requires_grad_(False), math.inf)
        for v, entry in enumerate(told)
        if entry.spare
    }
    part = np.zeros(len(inputs), dtype=np.uint8)
    part[split.judge], part[split.check] = JUDGE, CHECK
    validation = Validation(inputs, answers.best if known is None else known, answers.probabilities, part)
    left = np.array([*leaves_after(problem)[list(chosen)], len(chain) - 1])
    exits = np.bincount(left[exits_of(judged, chosen)])
    ahead: Mapping[tuple[int, int], Ahead] = {}
    if compiler is not None:
        progress("compiling segments", 0.97)
        try:
            ahead = {span: compiler.span(*span) for span in Steps(chain).ends(caches).items()}
        except NotCompiled as error:
            not_compiled = str(error)
    model = CachedModel(chain, caches, logits=answers.logits, lookups=timed_as, compiled=ahead)
    progress("measuring", 0.99)
    whole = compiler.span(0, len(chain) - 1).run if compiler is not None and ahead else None
    manifest = Manifest(
        weights_sha256=weights,
        blocks=chain.names,
        blocks_named=blocks is not None,
        logits=answers.logits,
        classes=classes,
        target=accuracy,
        confidence=confidence,
        lower_bound=found.lower_bound,
        samples=judged.samples,
        memory_budget_bytes=None if math.isinf(memory_budget_bytes) else memory_budget_bytes,
        most_delay=None if math.isinf(most_delay) else most_delay,
        lookups=timed_as,
        device=chain.device.type,
        segment_s=tuple(segment_s.tolist()),
        latency_s=joint_outcome(judged, chosen).latency_s,
        accuracy=found.accuracy,
        exits=tuple((np.append(exits, np.zeros(len(chain) - len(exits))) / judged.samples).tolist()),
        variants=tuple(told),
        choices=tuple(as_choice(one) for one in found.choices),
        measured=_measured(model, inputs[split.check[:TIMED_ROWS]], whole) if caches or ahead else None,
        compiled=described(ahead, compiler.took_s) if compiler is not None and ahead else None,
    )
    built = Built(model, manifest, spares, validation, ahead, not_compiled, made.left_out)
    return built if out is None else replace(built, manifest=built.save(out))


def class_numbers(module: nn.Module, labels: NDArray[Any], n: int, classes: int) -> NDArray[np.int64]:
    """Convert labels (n,) to class numbers by the module's `classes_`, if it has them."""
    require(labels.shape == (n,), f"labels have shape {labels.shape}, needs ({n},)", where=WHERE)
    known = class_names(np.asarray(getattr(module, "classes_", np.arange(classes))))
    place = {name: i for i, name in enumerate(known.tolist())}
    numbers = np.array([place.get(name, -1) for name in class_names(labels).tolist()], dtype=np.int64)
    require(
        bool(((numbers >= 0) & (numbers < classes)).all()),
        f"labels are not among the model's {classes} classes",
        where=WHERE,
        remedy=f"give whole numbers from 0 to {classes - 1}, or name the classes in the module's classes_",
    )
    return numbers


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


def _key(weights: str, inputs: NDArray[Any], labels: NDArray[np.int64] | None, blocks: tuple[str, ...]) -> str:
    digest = hashlib.sha256(f"{weights} {inputs.dtype} {inputs.shape} {blocks}".encode())
    digest.update(np.ascontiguousarray(inputs).data)
    digest.update(b"" if labels is None else labels.tobytes())
    return digest.hexdigest()


def _measured(model: CachedModel, rows: NDArray[Any], whole: Step | None) -> Measured:
    times = in_turn(model, rows, *([] if whole is None else [whole]), most_s=MOST_MEASURED_S)
    module_s, folded_s, cached_s, *others = times.mean(axis=1).tolist()
    compiled_s = others[0] if others else None
    named = {"module_s": module_s, "folded_s": folded_s, "cached_s": cached_s, "compiled_s": compiled_s}
    return Measured(rows=times.shape[1], **named)


def _threshold_of(one: Explored, level: float) -> float:
    return one.trained.thresholds[one.trained.levels.index(level)]


def _at_threshold(cache: LearnedCache, threshold: float) -> LearnedCache:
    threshold_tensor: Tensor = cache.threshold
    threshold_tensor.fill_(threshold)
    return cache
