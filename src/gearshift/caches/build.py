"""From a PyTorch module and samples to a model with learned caches: explore, compose, wrap."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from gearshift.caches.cached_model import CachedModel
from gearshift.caches.chain import Chain, chain_of, check_chain, weights_sha256
from gearshift.caches.collect import as_tensor
from gearshift.caches.compose import Composition, compose_all
from gearshift.caches.explore import (
    TRAINED_SHARE,
    Explored,
    Progress,
    explore,
    measure_lookup,
    measure_segments,
    split_rows,
)
from gearshift.caches.manifest import Choice, Manifest, Variant
from gearshift.caches.networks import Factory, LearnedCache
from gearshift.caches.problem import Problem, exits_of, joint_outcome, wrong_of
from gearshift.caches.store import save_caches
from gearshift.caches.train import Training
from gearshift.errors import require
from gearshift.result import lower_confidence_bound

WHERE = "learned caches"
LEAST_SAMPLES = 100
CHECKED_ROWS = 8
MOST_BYTES = 8 << 30
SHARES = (0.25, 0.5, 0.75, 1.0)
"""Of the loss allowed: the compositions that are tested one after another, where a confidence is asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A model with learned caches, and the manifest that says what was explored, chosen and expected."""

    model: CachedModel
    manifest: Manifest

    def save(self, folder: Path | str) -> Manifest:
        """Write caches and manifest to `folder`; the manifest as written.  The base model's weights stay outside."""
        return save_caches(Path(folder), self.manifest, self.model.caches)


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
    training: Training | None = None,
    out: Path | str | None = None,
    processes: int = 1,
    most_bytes: int = MOST_BYTES,
    seed: int = 0,
    progress: Progress = lambda what, share: None,
) -> Built:
    """Learned caches for `module`, made from `inputs` (n, ...) that it was not trained on, and `labels` (n,) if known.

    `accuracy` is the share of samples that must be answered as the module answers them; with a `confidence`, its lower
    bound on samples that chose nothing.  `blocks` names the blocks to look after, else they are found; `variants` the
    predictors to try, of which `own` makes the user's; `training` how they are trained.  With `out`, everything is
    written there, and a run that was broken off goes on where it ended.  With several `processes`, call it under
    `if __name__ == "__main__":`.

    Raises `InvalidInput` for a module that is no chain of blocks or answers no class scores, for hidden outputs that
    are unusable, and for samples that are too few, naming how many it needs.
    """
    inputs, how = np.asarray(inputs), training or Training()
    _require_samples(len(inputs), accuracy, confidence)
    chain = chain_of(module, blocks)
    classes = check_chain(chain, as_tensor(inputs[:CHECKED_ROWS]).to(chain.device))
    known = None if labels is None else class_numbers(module, np.asarray(labels), len(inputs), classes)
    split = split_rows(len(inputs), seed)
    weights = weights_sha256(module)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) if out is None else Path(out) / "exploration"
        answers, explored = explore(
            chain, inputs, known, split, folder,
            variants=variants, own=own or {}, how=how, seed=seed, processes=processes, most_bytes=most_bytes,
            key=_key(weights, inputs, known, chain.names), progress=progress,
        )  # fmt: skip
    progress("timing lookups", 0.92)
    segment_s = measure_segments(chain, inputs[split.check][:64])
    entries, problem, origins = _problem(chain, segment_s, explored, how, accuracy, memory_budget_bytes)
    progress("composing", 0.96)
    choices, judged, bound = choose(problem, confidence, seed)
    chosen = choices[-1].chosen
    caches = {}
    for v in chosen:
        cache = explored[origins[v]].trained.cache.requires_grad_(False)
        caches[entries[v].layer] = _at_threshold(cache, _threshold_of(explored[origins[v]], entries[v].level))
    outcome = joint_outcome(judged, chosen)
    exits = np.bincount(np.array([*problem.layer[list(chosen)], len(chain) - 1])[exits_of(judged, chosen)])
    manifest = Manifest(
        weights_sha256=weights,
        blocks=chain.names,
        blocks_named=blocks is not None,
        logits=answers.logits,
        classes=classes,
        target=accuracy,
        confidence=confidence,
        lower_bound=bound,
        samples=judged.samples,
        segment_s=tuple(segment_s.tolist()),
        latency_s=outcome.latency_s,
        accuracy=outcome.accuracy,
        exits=tuple((np.append(exits, np.zeros(len(chain) - len(exits))) / judged.samples).tolist()),
        variants=_explained(entries, problem, chosen),
        choices=tuple(_choice(one) for one in choices),
    )
    built = Built(CachedModel(chain, caches, logits=answers.logits), manifest)
    return built if out is None else Built(built.model, built.save(out))


def choose(
    problem: Problem, confidence: float | None, seed: int
) -> tuple[tuple[Composition, ...], Problem, float | None]:
    """Every method's choice, the last to be used; the samples that judge it; and the lower bound of its accuracy.

    With a confidence, choices are made on half of the validation samples, for rising shares of the loss allowed, and
    tested on the other half in that order until one fails: each test may then use the whole level (fixed sequence).
    Raises `InvalidInput` where the first one fails.
    """
    if confidence is None:
        return compose_all(problem), problem, None
    order = np.random.default_rng([seed, 2]).permutation(problem.samples)
    choosing, testing = (_of_samples(problem, half) for half in np.array_split(order, 2))
    kept: tuple[tuple[Composition, ...], float] | None = None
    for share in SHARES:
        choices = compose_all(replace(choosing, target=1 - (1 - problem.target) * share))
        right = 1 - wrong_of(testing, choices[-1].chosen) / testing.samples
        bound = lower_confidence_bound(right, testing.samples, confidence)
        if bound < problem.target:
            break
        kept = choices, bound
    if kept is None:
        require(
            False,
            f"accuracy {problem.target:g} cannot be shown with confidence {confidence:g}: the most careful choice "
            f"agrees on {right:.2%} of {testing.samples} samples",
            where=WHERE,
            remedy="give more samples, or ask for less",
        )
        raise AssertionError
    return kept[0], testing, kept[1]


def class_numbers(module: nn.Module, labels: NDArray[Any], n: int, classes: int) -> NDArray[np.int64]:
    """Labels (n,) as numbers of classes; names are looked up in the module's `classes_`."""
    require(labels.shape == (n,), f"labels have shape {labels.shape}, needs ({n},)", where=WHERE)
    names = getattr(module, "classes_", None)
    if names is not None:
        listed = np.asarray(names).astype(str).tolist()
        place = {name: i for i, name in enumerate(listed)}
        labels = np.array([place.get(str(label), -1) for label in labels.tolist()])
    usable = labels.dtype.kind in "iu" and bool(((labels >= 0) & (labels < classes)).all())
    require(
        usable,
        f"labels are not among the model's {classes} classes",
        where=WHERE,
        remedy=f"give whole numbers from 0 to {classes - 1}, or name the classes in the module's classes_",
    )
    return labels.astype(np.int64)


def _require_samples(n: int, accuracy: float, confidence: float | None) -> None:
    require(0 < accuracy <= 1, f"accuracy is {accuracy:g}", where=WHERE, remedy="give a share above 0, up to 1")
    needed = LEAST_SAMPLES
    if confidence is not None:
        given = f"confidence is {confidence:g} and accuracy {accuracy:g}"
        require(0 < confidence < 1 and accuracy < 1, given, where=WHERE, remedy="give shares below 1")
        tested = math.ceil(math.log(1 - confidence) / math.log(accuracy))
        needed = max(needed, math.ceil(2 * tested / (1 - TRAINED_SHARE)) + 10)
    asked = "" if confidence is None else f" to show accuracy {accuracy:g} with confidence {confidence:g}"
    require(n >= needed, f"{n} samples are too few{asked}", where=WHERE, remedy=f"give at least {needed}")


def _key(weights: str, inputs: NDArray[Any], labels: NDArray[np.int64] | None, blocks: tuple[str, ...]) -> str:
    digest = hashlib.sha256(f"{weights} {inputs.dtype} {inputs.shape} {blocks}".encode())
    digest.update(np.ascontiguousarray(inputs).tobytes())
    digest.update(b"" if labels is None else labels.tobytes())
    return digest.hexdigest()


def _problem(
    chain: Chain,
    segment_s: NDArray[np.float64],
    explored: Sequence[Explored],
    how: Training,
    target: float,
    memory: float,
) -> tuple[list[Variant], Problem, list[int]]:
    """Every variant at every level of strictness, what composition needs of them, and which was explored for each."""
    entries: list[Variant] = []
    origins, hits, right = [], [], []
    for i, one in enumerate(explored):
        cache = one.trained.cache.to(chain.device)
        lookup_s = measure_lookup(cache, one.shape, chain.device)
        nowhere = (min(how.levels), np.zeros_like(one.trained.right))
        for level, hit in list(zip(one.trained.levels, one.trained.hits, strict=True)) or [nowhere]:
            entries.append(
                Variant(
                    layer=one.layer,
                    block=chain.names[one.layer],
                    variant=one.variant,
                    level=level,
                    shape=one.shape,
                    hit_rate=float(hit.mean()),
                    accuracy=float(one.trained.right[hit].mean()) if hit.any() else 1.0,
                    lookup_s=lookup_s,
                    memory_bytes=cache.memory_bytes,
                )
            )
            origins.append(i)
            hits.append(hit)
            right.append(one.trained.right)
    samples = len(explored[0].trained.right)
    problem = Problem(
        layer_s=segment_s,
        layer=np.array([entry.layer for entry in entries], dtype=np.int64),
        hit_rate=np.array([entry.hit_rate for entry in entries]),
        accuracy=np.array([entry.accuracy for entry in entries]),
        lookup_s=np.array([entry.lookup_s for entry in entries]),
        memory_bytes=np.array([entry.memory_bytes for entry in entries], dtype=np.float64),
        target=target,
        memory_budget_bytes=memory,
        hits=np.array(hits, dtype=np.bool_).reshape(-1, samples),
        right=np.array(right, dtype=np.bool_).reshape(-1, samples),
    )
    return entries, problem, origins


def _of_samples(problem: Problem, rows: NDArray[np.int64]) -> Problem:
    """The same variants, judged on some of the validation samples."""
    assert problem.hits is not None
    assert problem.right is not None
    hits, right = problem.hits[:, rows], problem.right[:, rows]
    counts = hits.sum(axis=1)
    accuracy = np.where(counts > 0, (hits & right).sum(axis=1) / np.maximum(1, counts), 1.0)
    return replace(problem, hits=hits, right=right, hit_rate=hits.mean(axis=1), accuracy=accuracy)


def _explained(entries: Sequence[Variant], problem: Problem, chosen: tuple[int, ...]) -> tuple[Variant, ...]:
    """The variants with why each was chosen or not: what adding it, or leaving it out, would come to."""
    now = joint_outcome(problem, chosen)
    told = []
    for v, entry in enumerate(entries):
        others = tuple(u for u in chosen if problem.layer[u] != problem.layer[v])
        if v in chosen:
            without = joint_outcome(problem, tuple(u for u in chosen if u != v))
            why = f"without it {1e3 * (without.latency_s - now.latency_s):+.3f} ms"
        else:
            changed = tuple(sorted((*others, v)))
            then = joint_outcome(problem, changed)
            if entry.hit_rate == 0:
                why = "it never hits"
            elif not problem.fits(changed):
                why = "does not fit beside the chosen ones"
            elif wrong_of(problem, changed) > problem.most_wrong:
                why = f"with it accuracy {then.accuracy:.2%}"
            else:
                why = f"with it {1e3 * (then.latency_s - now.latency_s):+.3f} ms"
        told.append(Variant(**{**_fields(entry), "chosen": v in chosen, "why": why}))
    return tuple(told)


def _fields(entry: Variant) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__struct_fields__}


def _choice(one: Composition) -> Choice:
    assert one.measured is not None
    return Choice(
        method=one.method,
        chosen=one.chosen,
        expected_latency_s=one.expected.latency_s,
        latency_s=one.measured.latency_s,
        accuracy=one.measured.accuracy,
        memory_bytes=one.memory_bytes,
        gap_s=one.gap_s,
    )


def _threshold_of(one: Explored, level: float) -> float:
    return one.trained.thresholds[one.trained.levels.index(level)]


def _at_threshold(cache: LearnedCache, threshold: float) -> LearnedCache:
    threshold_tensor: Tensor = cache.threshold
    threshold_tensor.fill_(threshold)
    return cache
