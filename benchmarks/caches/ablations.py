"""Learned caches with less memory, by each method of composition, and with one part of their design left out.

Everything is chosen from one exploration, which the other benchmarks share through `--work`, and from another without
distillation.  What each choice comes to is counted on images that nothing was trained or chosen on: how long each of
them takes by the measured times of segments and lookups, and whether the answer is the model's.  Gain is over the
segments of the model without caches; `cifar.py` and `tail.py` time whole models.

* Variants after two blocks (the paper's Table 4).
* Memory budgets (Figure 7a): the choice by price, which `caches.build` uses, and the paper's relaxation.
* Composition (A.2.1): the relaxation with its best alpha, both greedy ones, exact, joint, by price; lookups in line and
  beside.
* Ablations (A.2.1), all for the same target of agreement: predictors taught by labels alone; the predictor's highest
  probability instead of a selector, its thresholds set on the same samples, for the time of a lookup with one;
  selectors that see the whole distribution in the order of classes, instead of the five highest probabilities; one
  architecture or one size of each instead of all; lookups and layers charged by their count of multiplications instead
  of measured, or lookups as free.
  Since the same target may end in different agreement, also the latency at the same agreement on the unseen images, by
  the best mixture of two of some choices from stricter to laxer, with the 95 % interval of resampled images.

    python -m benchmarks.caches.ablations [--data DIR --network resnet20 | --digits] [--quick]

About a minute for digits, whose few samples tell little.  For a ResNet, after `cifar.py` with the same `--work`,
once more the time of its exploration (about 8 minutes for resnet20 on one core), and then ten minutes for resnet20, by
the size of its composition half an hour to an hour for resnet56; `--quick` takes a minute.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.caches.tasks import QUICK_TRAINING, Task, options_of, task_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from gearshift import caches
from gearshift.caches.building import compose
from gearshift.caches.building.choosing import BY_PRICE, by_price, choices_by_price, choose, problem_of
from gearshift.caches.building.evaluation import measure_beside, measure_in_line
from gearshift.caches.building.exploration import Exploration
from gearshift.caches.building.problem import Problem, exits_of, joint_outcome, latencies_of, wrong_of
from gearshift.caches.network.chain import Chain
from gearshift.caches.network.learned_cache import SELECTOR_WIDTH, LearnedCache
from gearshift.caches.network.train import Explored, Trained, fit_selector, thresholds_of
from gearshift.caches.running.lookup_process import start_lookups
from gearshift.caches.store.manifest import LIKELY, Variant
from gearshift.result import wilson_interval

SHARES_OF_MEMORY = (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64)
MOST_WRONG = 2
"""Times as many mistakes as are allowed: so far go the choices that mixtures are made of."""
SHOWN_LEVEL = 0.98
RESAMPLED = 200
SAME = 1e-9
MIB = 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """What caches say of images: how sure each is (caches, n) and of which class (caches, n), and the model's (n,)."""

    sure: np.ndarray
    best: np.ndarray
    base: np.ndarray


def logits_of(chain: Chain, explored: Sequence[Explored], images: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
    """What each predictor says of images (caches, n, classes), and the class that the model chooses (n,)."""
    said: list[list[torch.Tensor]] = [[] for _ in explored]
    best = []
    with torch.inference_mode():
        for rows in torch.from_numpy(images).split(64):
            for layer, hidden in enumerate(chain.hidden(rows)):
                for i, one in enumerate(explored):
                    if one.layer == layer:
                        said[i].append(one.trained.cache.predicted(hidden))
            best.append(hidden.argmax(dim=1).numpy())
    return torch.stack([torch.cat(parts) for parts in said]), np.concatenate(best)


def looked(chain: Chain, explored: Sequence[Explored], images: np.ndarray) -> Looked:
    """Every one of the explored caches after its layer, for all images."""
    said, base = logits_of(chain, explored, images)
    probabilities = torch.softmax(said, dim=2)
    with torch.inference_mode():
        sure = [one.trained.cache.judged(each).numpy() for one, each in zip(explored, probabilities, strict=True)]
    return Looked(np.stack(sure), probabilities.argmax(dim=2).numpy(), base)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What composition chooses from, as it is on the validation samples and on unseen images, and what each one is."""

    problem: Problem
    unseen: Problem
    entries: list[Variant]

    def only(self, wanted: Callable[[Variant], bool]) -> "Candidates":
        """Those that are wanted."""
        rows = [v for v, entry in enumerate(self.entries) if wanted(entry)]
        return Candidates(some_of(self.problem, rows), some_of(self.unseen, rows), [self.entries[v] for v in rows])

    def chosen(self, memory_bytes: float = np.inf) -> tuple[compose.Composition, ...]:
        """Every method's choice, as `caches.build` makes it; the last is the one that it uses."""
        return choose(replace(self.problem, memory_budget_bytes=memory_bytes), None, 0).choices


def some_of(problem: Problem, rows: Sequence[int] | np.ndarray) -> Problem:
    """Some of its variants."""
    names = ("layer", "hit_rate", "accuracy", "lookup_s", "memory_bytes", "hits", "right", "level")
    return replace(problem, **{name: array[rows] for name in names if (array := getattr(problem, name)) is not None})


def candidates_of(
    made: Exploration,
    explored: Sequence[Explored],
    images: np.ndarray,
    seconds: tuple[np.ndarray, Sequence[float]],
    target: float,
    *,
    beside: bool = False,
) -> Candidates:
    """Explored variants at all their thresholds, `images` being the unseen ones; seconds of segments and lookups."""
    entries, problem, origins = problem_of(
        made.chain, explored, *seconds, how=caches.Training(), target=target, beside=beside
    )
    seen = looked(made.chain, explored, images)
    thresholds = np.concatenate([one.trained.thresholds or (np.inf,) for one in explored]).astype(np.float32)
    unseen = replace(problem, hits=seen.sure[origins] >= thresholds[:, None], right=(seen.best == seen.base)[origins])
    return Candidates(problem, unseen, entries)


# Parts left out ------------------------------------------------------------------------------------------------------


class SurePredictor(LearnedCache):
    """Trusted by its own highest probability; its selector is not asked."""

    def judged(self, probabilities: torch.Tensor) -> torch.Tensor:
        return probabilities.amax(dim=1)


def without_selectors(made: Exploration, inputs: np.ndarray) -> list[Explored]:
    """The same predictors with thresholds of their own probabilities, set on the samples that selectors learn from."""
    own = []
    for one in made.explored:
        cache = SurePredictor(one.trained.cache.predictor, made.answers.probabilities.shape[1])
        cache.scale.copy_(one.trained.cache.scale)
        cache.selector = nn.Identity()
        own.append(replace(one, trained=replace(one.trained, cache=cache.eval())))
    return _judged_anew(made, own, inputs)


class WholeDistribution(LearnedCache):
    """Its selector sees the probabilities of all classes, in their order."""

    def __init__(self, predictor: nn.Module, classes: int) -> None:
        super().__init__(predictor, classes)
        self.selector = nn.Sequential(nn.Linear(classes, SELECTOR_WIDTH), nn.ReLU(), nn.Linear(SELECTOR_WIDTH, 1))

    def judged(self, probabilities: torch.Tensor) -> torch.Tensor:
        return self.selector(probabilities)[:, 0]


def with_whole_distribution(made: Exploration, inputs: np.ndarray, how: caches.Training) -> list[Explored]:
    """The same predictors with selectors of all their probabilities, trained on the samples of the others."""
    own, samples = [], torch.from_numpy(inputs[made.split.judge])
    with torch.no_grad():
        parts = [list(made.chain.hidden(rows)) for rows in samples.split(64)]
        best = torch.cat([part[-1] for part in parts]).argmax(dim=1)
    for i, one in enumerate(made.explored):
        torch.manual_seed(i)
        cache = WholeDistribution(one.trained.cache.predictor, made.answers.probabilities.shape[1])
        cache.scale.copy_(one.trained.cache.scale)
        with torch.no_grad():
            said = torch.softmax(torch.cat([cache.predicted(part[one.layer]) for part in parts]), dim=1)
        fit_selector(cache, said, said.argmax(dim=1) == best, how)
        own.append(replace(one, trained=replace(one.trained, cache=cache.requires_grad_(False).eval())))
    return _judged_anew(made, own, inputs)


def _judged_anew(made: Exploration, own: list[Explored], inputs: np.ndarray) -> list[Explored]:
    """With thresholds from the samples that selectors learn from, and hits on those that choose."""
    judged, checked = (looked(made.chain, own, inputs[rows]) for rows in (made.split.judge, made.split.check))
    levels = caches.Training().levels
    found = []
    for i, one in enumerate(own):
        pairs = thresholds_of(judged.sure[i], judged.best[i] == judged.base, levels)
        hits = np.array([checked.sure[i] >= threshold for _, threshold in pairs]).reshape(-1, len(checked.base))
        trained = Trained(
            one.trained.cache,
            tuple(level for level, _ in pairs),
            tuple(threshold for _, threshold in pairs),
            hits.astype(bool),
            checked.best[i] == checked.base,
        )
        found.append(replace(one, trained=trained))
    return found


def operations(module: nn.Module, rows: torch.Tensor) -> tuple[int, torch.Tensor]:
    """Multiplications and additions that matrices and convolutions take for these rows, and what it answers."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        answer = module(rows)
    return counter.get_total_flops(), answer


def by_count(
    problem: Problem, chain: Chain, entries: list[Variant], explored: list[Explored], row: np.ndarray
) -> Problem:
    """The same with the model's time shared out by count of operations, and lookups charged at that rate."""
    counts, hidden = [], torch.from_numpy(row)
    for segment in chain.segments:
        count, hidden = operations(segment, hidden)
        counts.append(count)
    rate = problem.base_s / sum(counts)
    lookups = {
        (one.layer, one.variant): operations(one.trained.cache, torch.zeros(1, *one.shape))[0] for one in explored
    }
    lookup_s = rate * np.array([lookups[entry.layer, entry.variant] for entry in entries], dtype=np.float64)
    return replace(problem, layer_s=rate * np.array(counts, dtype=np.float64), lookup_s=lookup_s)


def kind_of(entry: Variant) -> str:
    """The architecture of its predictor."""
    return entry.variant.partition("(")[0]


# Tables --------------------------------------------------------------------------------------------------------------

HEAD = ("", "caches", "MiB", "ms, validation", "ms, unseen", "gain", "agreement, validation", "agreement, unseen")


def begin_table(title: str, *columns: str) -> None:
    """A title, and the heads of the columns."""
    print(f"\n## {title}\n\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")


def row(name: str, among: Candidates, chosen: tuple[int, ...], *more: str) -> None:
    """What a choice comes to: caches, memory, milliseconds, gain over the model on unseen images, and agreement."""
    kinds = Counter(kind_of(among.entries[v]) for v in chosen)
    known, seen = joint_outcome(among.problem, chosen), joint_outcome(among.unseen, chosen)
    low, high = wilson_interval(seen.accuracy, among.unseen.samples)
    cells = (
        name,
        ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none",
        f"{among.problem.memory_bytes[list(chosen)].sum() / MIB:.2f}",
        f"{1e3 * known.latency_s:.3f}",
        f"{1e3 * seen.latency_s:.3f}",
        f"{among.unseen.base_s / seen.latency_s:.2f}",
        f"{known.accuracy:.2%}",
        f"{seen.accuracy:.2%} ({low:.2%} to {high:.2%})",
        *more,
    )
    print(f"| {' | '.join(cells)} |", flush=True)


def variants_table(candidates: Candidates, chain: Chain) -> None:
    """What there is after a third and two thirds of the blocks, for hits of which 98 % agree."""
    begin_table("Variants", "after", "variant", "hits agree", "hit rate", "lookup ms", "MiB")
    blocks = len(chain) - 1
    for entry in candidates.entries:
        if entry.layer in (blocks // 3, 2 * blocks // 3) and entry.level == SHOWN_LEVEL:
            print(
                f"| {entry.block} | {entry.variant} | {entry.accuracy:.1%} | {entry.hit_rate:.1%} | "
                f"{1e3 * entry.lookup_s:.3f} | {entry.memory_bytes / MIB:.2f} |"
            )


def memory_table(candidates: Candidates) -> None:
    """Less and less memory, from what the choices without a budget take."""
    begin_table("Memory budgets", *HEAD)
    most = max(one.memory_bytes for one in _by_method(candidates.chosen()).values())
    for share in SHARES_OF_MEMORY if most else (1,):
        for method, one in _by_method(candidates.chosen(share * most)).items():
            row(f"{share * most / MIB:.3g} MiB, {method}", candidates, one.chosen)


def _by_method(choices: tuple[compose.Composition, ...]) -> dict[str, compose.Composition]:
    return {one.method: one for one in choices if one.method in (BY_PRICE, "relaxation")}


def composition_table(candidates: Candidates, told: str, bars: Bars) -> None:
    """Every method on the same problem, and what it takes; that the better ones are so."""
    begin_table(f"Composition, lookups {told}", *HEAD, "nested ms", "open ms", "composed in s")
    problem = candidates.problem
    found: dict[str, compose.Composition] = {}
    ways: dict[str, Callable[[], compose.Composition]] = {
        "relaxation": partial(compose.relaxation, problem),
        "greedy by latency gain": partial(compose.greedy, problem, "latency gain"),
        "greedy by hit rate": partial(compose.greedy, problem, "hit rate"),
        "exact": partial(compose.exact, problem),
        "joint": lambda: compose.joint(problem, [one.chosen for one in found.values()]),
        BY_PRICE: lambda: compose.composed(BY_PRICE, problem, by_price(problem, problem, LIKELY).chosen),
    }
    for name, way in ways.items():
        began = time.perf_counter()
        found[name] = one = way()
        took_s = time.perf_counter() - began
        alpha = "" if one.alpha is None else f", alpha {one.alpha:g}"
        more = f"{1e3 * one.expected.latency_s:.3f}", f"{1e3 * one.gap_s:.3f}", f"{took_s:.2f}"
        row(f"{name}{alpha}", candidates, one.chosen, *more)
    *others, exact, joint, _ = found.values()
    least_s = min(one.expected.latency_s for one in others)
    bars.at_most(f"{told}, exact over the best before it, nested", exact.expected.latency_s / least_s, 1 + SAME)
    measured = [one.measured for one in found.values() if one.measured is not None]
    least_s = min(one.latency_s for one in measured if one.accuracy >= problem.target - SAME)
    assert joint.measured is not None
    bars.at_most(f"{told}, joint over the best that keeps the target", joint.measured.latency_s / least_s, 1 + SAME)


# Ablations -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Seconds of each unseen image (choices, n), and which are answered as by the model, for laxer and laxer choices.

    The first choice is the model alone.
    """

    seconds: np.ndarray
    right: np.ndarray

    def seconds_at(self, agreement: float, images: np.ndarray) -> float:
        """Mean seconds where so many of these images are answered as by the model."""
        return least_at(agreement, self.right[:, images].mean(axis=1), self.seconds[:, images].mean(axis=1))


def least_at(agreement: float, agreements: np.ndarray, seconds: np.ndarray) -> float:
    """The least mean seconds at an agreement, by one choice or a mixture of two."""
    keeps = agreements >= agreement
    least = float(seconds[keeps].min())
    for high, slow in zip(agreements[keeps], seconds[keeps], strict=True):
        for low, fast in zip(agreements[~keeps], seconds[~keeps], strict=True):
            least = min(least, fast + (slow - fast) * (agreement - low) / (high - low))
    return least


def curve_of(problem: Problem, unseen: Problem) -> Curve:
    """Choices at ever higher prices, made on one problem, as on unseen images."""
    chosen: list[tuple[int, ...]] = [()]
    for _, found in choices_by_price(problem):
        chosen.append(found)
        if wrong_of(problem, found) > MOST_WRONG * problem.most_wrong:
            break
    return Curve(
        np.array([latencies_of(unseen, one) for one in chosen]), np.array([right_of(unseen, one) for one in chosen])
    )


def right_of(problem: Problem, chosen: tuple[int, ...]) -> np.ndarray:
    """Which samples (n,) are answered as by the model."""
    right = np.vstack([problem.right[list(chosen)], np.ones((1, problem.samples), bool)])
    return right[exits_of(problem, chosen), np.arange(problem.samples)]


@dataclass(slots=True, eq=False)
class Ablations:
    """Rows of one table, each against the first of them."""

    target: float
    first: Curve | None = None

    def row(self, name: str, among: Candidates, problem: Problem | None = None) -> None:
        """What is chosen among candidates, or by a problem that has other times for them."""
        problem = problem or among.problem
        curve = curve_of(problem, among.unseen)
        self.first = self.first or curve
        ours, theirs = (one.seconds_at(self.target, np.arange(among.unseen.samples)) for one in (curve, self.first))
        generator, more = np.random.default_rng(0), []
        for _ in range(RESAMPLED):
            images = generator.integers(0, among.unseen.samples, among.unseen.samples)
            more.append(curve.seconds_at(self.target, images) / self.first.seconds_at(self.target, images) - 1)
        low, high = np.quantile(more, (0.025, 0.975))
        against = f"{ours / theirs - 1:+.1%} ({low:+.1%} to {high:+.1%})"
        row(name, among, choose(problem, None, 0).variants, f"{among.unseen.base_s / ours:.2f}", against)


def ablations_table(task: Task, made: Exploration, candidates: Candidates, images: tuple[np.ndarray, ...]) -> None:
    """One part left out at a time."""
    inputs, labels, unseen = images
    target, layer_s = candidates.problem.target, candidates.problem.layer_s
    taught = msgspec.structs.replace(QUICK_TRAINING if task.quick else caches.Training(), distillation=0.0)
    folder = task.caches_folder("large", "labels-alone")
    labelled = task.explored(made.chain.module, (inputs, labels), folder, training=taught).explored
    known = {(entry.layer, entry.variant): entry.lookup_s for entry in candidates.entries}
    labelled_s = [known[one.layer, one.variant] for one in labelled]
    own = without_selectors(made, inputs)
    own_s = [known[one.layer, one.variant] for one in own]  # their way for single rows is PyTorch's, which is slower
    whole = with_whole_distribution(made, inputs, caches.Training())
    first = {(entry.layer, kind_of(entry)): entry.variant for entry in reversed(candidates.entries)}
    counted = by_count(candidates.problem, made.chain, candidates.entries, made.explored, unseen[:1])
    free = replace(candidates.problem, lookup_s=np.zeros(len(candidates.problem)))

    told = f"{target:.0%} of unseen images"
    begin_table("Ablations", *HEAD, f"gain at {told}", f"latency there, against the first ({RESAMPLED} resamples)")
    table = Ablations(target)
    table.row("all of it", candidates)
    table.row("labels alone", candidates_of(made, labelled, unseen, (layer_s, labelled_s), target))
    table.row("highest probability, no selector", candidates_of(made, own, unseen, (layer_s, own_s), target))
    table.row("selectors see the whole distribution", candidates_of(made, whole, unseen, (layer_s, own_s), target))
    for kind in sorted({kind_of(entry) for entry in candidates.entries}):
        table.row(f"{kind} alone", candidates.only(lambda entry, kind=kind: kind_of(entry) == kind))
    sized = candidates.only(lambda entry: first[entry.layer, kind_of(entry)] == entry.variant)
    table.row("one size of each", sized)
    table.row("times by count of operations", candidates, counted)
    table.row("lookups as free", candidates, free)


def main() -> int:
    options = options_of(__doc__).parse_args()
    task = task_of(options)
    torch.set_num_threads(1)
    print(describe(), f"PyTorch {torch.__version__}, one thread", sep=", ")
    network, (inputs, labels), (unseen, _) = task.network("large"), task.images("build"), task.images("test")
    made = task.explored(network, (inputs, labels), task.caches_folder("large"))
    timed = inputs[made.split.check][:64]
    in_line = measure_in_line(made.chain, made.explored, timed)
    candidates = candidates_of(made, made.explored, unseen, in_line, options.accuracy)
    print(
        f"\n\n{task.name}: {len(made.explored)} variants explored after {len(made.chain) - 1} blocks, "
        f"{candidates.problem.samples} validation samples, {len(unseen)} unseen images; "
        f"the model takes {1e3 * candidates.problem.base_s:.3f} ms; agreement of {options.accuracy:.0%} asked for"
    )
    bars = Bars()
    variants_table(candidates, made.chain)
    memory_table(candidates)
    composition_table(candidates, "in line", bars)
    thread = start_lookups(made.chain.device, 1, [one.trained.cache for one in made.explored])
    if thread is not None:
        apart = measure_beside(made.chain, made.explored, timed, thread)
        beside = candidates_of(made, made.explored, unseen, apart, options.accuracy, beside=True)
        composition_table(beside, "beside", bars)
    ablations_table(task, made, candidates, (inputs, labels, unseen))
    kept = joint_outcome(candidates.unseen, candidates.chosen()[-1].chosen).accuracy
    bars.at_least("agreement on unseen images", kept, options.accuracy)
    print(f"\n{bars}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
